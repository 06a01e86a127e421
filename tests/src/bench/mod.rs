//! Benchmarks of the proxy's cost, natively and proxied in one run.

pub mod against;
pub mod calls;
pub mod containers;
pub mod doorbells;
pub mod fabric;
pub mod host;
pub mod lab;
pub mod neighbours;
pub mod nics;
pub mod policy;
mod rounds;
pub mod starts;
pub mod storm;
pub mod sysfs;

/// The middle one of these; the upper of two.
pub fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut []), None);
    }
}
