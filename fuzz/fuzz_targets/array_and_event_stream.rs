#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| endstop::fuzzing::array_and_event_stream(data));
