#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| endstop_gateway::fuzzing::admission(data));
