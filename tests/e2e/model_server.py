"""A llama.cpp server with a small model: `model_server.py MODEL PORT CONTEXT`. Runs in the environment `model`."""

import sys
import time

import xllamacpp

SLOTS = 2

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.port = int(sys.argv[2])  # the host is 127.0.0.1
params.n_parallel = SLOTS
params.n_ctx = SLOTS * int(sys.argv[3])
params.use_jinja = True
# More threads than free cores make it slower.
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
time.sleep(10**9)
