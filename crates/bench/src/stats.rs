//! Figures from samples.

use serde::Serialize;

/// Order statistics of a set of samples, in the samples' unit.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Percentiles {
    /// Half of the samples are at or below it.
    pub p50: f64,
    /// 90 of 100.
    pub p90: f64,
    /// 99 of 100.
    pub p99: f64,
}

impl Percentiles {
    /// Of `samples`, which are sorted on the way; zeros if there are none.
    pub fn of(samples: &mut [f64]) -> Self {
        samples.sort_unstable_by(f64::total_cmp);
        let at = |percent: usize| {
            let i = (samples.len() * percent).div_ceil(100).saturating_sub(1);
            samples.get(i).copied().unwrap_or_default()
        };
        Self { p50: at(50), p90: at(90), p99: at(99) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_by_nearest_rank() {
        let mut samples: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let p = Percentiles::of(&mut samples);
        assert_eq!((p.p50, p.p90, p.p99), (50.0, 90.0, 99.0));
        assert_eq!(Percentiles::of(&mut [7.0]).p50, 7.0);
        assert_eq!(Percentiles::of(&mut []).p99, 0.0);
    }
}
