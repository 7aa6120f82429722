"""ClickHouse's HTTP interface in front of chdb, the current engine in this process.

`clickhouse.py DIRECTORY` listens on a free port of 127.0.0.1 and prints it. It has what the store uses: POST with
`query` and settings in the URL, the user in headers, data in the body, and error codes. Requests run one after another.
The user is `default`, the password `secret`.
"""

import re
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from chdb import session

HANDLED = {"database", "query", "wait_end_of_query"}


class Engine:
    def __init__(self, directory):
        self.directory = Path(directory)
        self.session = session.Session(str(self.directory / "data"))
        self.lock = threading.Lock()
        self.database = None
        self.settings = {}

    def run(self, parameters, body):
        with self.lock:
            self.use(parameters.get("database", "default"))
            self.set({name: value for name, value in parameters.items() if name not in HANDLED})
            statement = parameters.get("query", "")
            if "FORMAT RowBinary" in statement:
                return self.insert(statement, body)
            statement += body.decode()
            # A statement that changes something gives no rows.
            return self.session.query(statement, "TabSeparated").bytes()

    def use(self, database):
        if database != self.database:
            self.session.query(f"USE `{database}`")
            self.database = database

    def set(self, settings):
        for name in self.settings.keys() - settings.keys():
            self.session.query(f"SET {name} = DEFAULT")
        for name, value in settings.items():
            if self.settings.get(name) != value:
                value = value if re.fullmatch(r"-?\d+", value) else f"'{value}'"
                self.session.query(f"SET {name} = {value}")
        self.settings = settings

    def insert(self, statement, body):
        with tempfile.NamedTemporaryFile(dir=self.directory) as file:
            file.write(body)
            file.flush()
            statement = statement.replace("FORMAT RowBinary", "")
            self.session.query(f"{statement} FROM INFILE '{file.name}' FORMAT RowBinary")
        return b""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # A reply is small: it need not wait for more.
    disable_nagle_algorithm = True

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        who = (self.headers.get("x-clickhouse-user"), self.headers.get("x-clickhouse-key"))
        if who != ("default", "secret"):
            message = "Code: 516. DB::Exception: default: Authentication failed. (AUTHENTICATION_FAILED)"
            return self.reply(403, message.encode(), "516")
        try:
            parameters = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
            return self.reply(200, self.server.engine.run(parameters, body))
        except Exception as error:
            message = str(error)
            code = re.search(r"Code: (\d+)", message)
            return self.reply(500, message.encode(), code.group(1) if code else "1001")

    def reply(self, status, body, code=None):
        self.send_response(status)
        if code:
            self.send_header("X-ClickHouse-Exception-Code", code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def main():
    server = Server(("127.0.0.1", 0), Handler)
    server.engine = Engine(sys.argv[1])
    print(server.server_address[1], flush=True)
    # Ends with the process that started it: its pipe closes.
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


main()
