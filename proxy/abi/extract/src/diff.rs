//! What differs between two kernels.
use verbgate_abi_gen::facts::Facts;
/// x
#[must_use]
pub fn diff(_: &Facts, _: &Facts) -> Vec<String> { Vec::new() }
