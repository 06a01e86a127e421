//! See `../targets/src/way.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbgate_fuzz_targets::way::run(data));
