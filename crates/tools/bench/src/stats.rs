//! Statistics of samples.

use serde::{Deserialize, Serialize};

/// Order statistics of a set of samples, in the samples' unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
}

impl Percentiles {
    /// Computes the percentiles of `samples` and sorts them; zeros if there are none.
    pub fn of(samples: &mut [f64]) -> Self {
        samples.sort_unstable_by(f64::total_cmp);
        let at = |percent: usize| {
            let i = (samples.len() * percent).div_ceil(100).saturating_sub(1);
            samples.get(i).copied().unwrap_or_default()
        };
        Self { p50: at(50), p90: at(90), p99: at(99) }
    }
}

/// A figure over several rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Median; the upper one of an even number.
    pub median: f64,
    /// Standard deviation over mean, percent.
    pub variation_percent: f64,
    /// Every round's figure, sorted.
    pub rounds: Vec<f64>,
}

impl Spread {
    /// Computes the spread of these rounds; zeros if there are none.
    #[must_use]
    pub fn of(mut rounds: Vec<f64>) -> Self {
        rounds.sort_unstable_by(f64::total_cmp);
        let count = rounds.len().max(1) as f64;
        let mean = rounds.iter().sum::<f64>() / count;
        let variance = rounds.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
        let variation_percent = if mean > 0.0 { 100.0 * variance.sqrt() / mean } else { 0.0 };
        let median = rounds.get(rounds.len() / 2).copied().unwrap_or_default();
        Self { median, variation_percent, rounds }
    }
}

/// Quantiles 0.975 of Student's t distribution by degrees of freedom from 1 (NIST/SEMATECH e-Handbook of
/// Statistical Methods, 1.3.6.7.2).
const STUDENT: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];

/// Returns the 95 % confidence interval of these samples' mean; `None` of fewer than two samples.
pub(crate) fn interval(samples: &[f64]) -> Option<[f64; 2]> {
    let freedom = samples.len().checked_sub(1)?;
    let quantile = STUDENT.get(freedom.min(STUDENT.len()).checked_sub(1)?)?;
    let count = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / count;
    let variance = samples.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let half = quantile * (variance / count).sqrt();
    Some([mean - half, mean + half])
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

    #[test]
    fn a_mean_is_known_better_from_more_samples() {
        let half = |samples: &[f64]| interval(samples).map(|[least, most]| (most - least) / 2.0);
        assert_eq!((half(&[]), half(&[7.0])), (None, None));
        assert!((half(&[1.0, 3.0]).unwrap() - 12.706).abs() < 1e-9);
        assert!((half(&[1.0, 2.0, 3.0]).unwrap() - 4.303 / 3.0_f64.sqrt()).abs() < 1e-9);
        let many: Vec<f64> = (0..40).map(|n| f64::from(n % 2)).collect();
        assert!((half(&many).unwrap() - 2.228 * 0.5 / 39.0_f64.sqrt()).abs() < 1e-9);
        assert_eq!(interval(&[2.0; 3]), Some([2.0, 2.0]));
    }

    #[test]
    fn a_spread_has_median_and_variation() {
        let s = Spread::of(vec![12.0, 8.0, 10.0]);
        assert_eq!((s.median, s.rounds.as_slice()), (10.0, &[8.0, 10.0, 12.0][..]));
        assert!((s.variation_percent - 20.0).abs() < 1e-9);
        assert_eq!(Spread::of(vec![5.0]).variation_percent, 0.0);
        assert_eq!(Spread::of(Vec::new()).median, 0.0);
    }
}
