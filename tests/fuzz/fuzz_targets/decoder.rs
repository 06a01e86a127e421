//! See `../targets/src/decoder.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| verbgate_fuzz_targets::decoder::run(data));
