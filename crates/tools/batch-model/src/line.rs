//! A line through measured times, `t(n) = a + n b`, by least squares.
//!
//! The samples are summed up as they come, by Welford's method, so that millions of them take no memory and
//! lose no precision.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF as _, StudentsT};

/// Probability that an interval contains the value.
const CONFIDENCE: f64 = 0.95;

/// The reason why no line fits.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FitError {
    /// Two points always have a line.
    #[error("{0} batches: three are the least from which a line follows")]
    TooFew(u64),
    /// All batches have one size, so that the cost of a batch and that of a packet cannot be told apart.
    #[error("all batches have {0} packets: measure at more than one rate")]
    OneSize(f64),
    /// The clock is too coarse.
    #[error("every batch took {0} µs: the clock is too coarse for the times of batches")]
    OneTime(f64),
    /// A time is no number, infinite or negative.
    #[error("a batch took {0} µs, which is no time")]
    NoTime(f64),
}

/// A value with half the width of its interval, which contains the true one with a probability of 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// Half the width of the interval.
    pub half_width: f64,
}

impl Estimate {
    /// Returns whether the interval contains a value.
    #[must_use]
    pub fn contains(&self, value: f64) -> bool {
        (value - self.value).abs() <= self.half_width
    }
}

/// A line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Line {
    /// The cost of a batch.
    pub a: Estimate,
    /// The cost of a packet.
    pub b: Estimate,
    /// Root of the mean square of what the times differ from the line.
    pub deviation: f64,
    /// Number of batches.
    pub batches: u64,
}

/// Sums of samples: sizes of batches, and their times.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Samples {
    count: u64,
    mean_n: f64,
    mean_t: f64,
    /// Sums of squares and products of what the samples differ from their means.
    nn: f64,
    nt: f64,
    tt: f64,
    /// A time that is none.
    invalid: Option<f64>,
}

impl Samples {
    /// Adds the time of a batch of `n` packets.
    pub fn add(&mut self, n: u32, time: f64) {
        if !time.is_finite() || time < 0.0 {
            self.invalid.get_or_insert(time);
            return;
        }
        self.count += 1;
        let (from_n, from_t) = (f64::from(n) - self.mean_n, time - self.mean_t);
        self.mean_n += from_n / self.count as f64;
        self.mean_t += from_t / self.count as f64;
        self.nn += from_n * (f64::from(n) - self.mean_n);
        self.nt += from_n * (time - self.mean_t);
        self.tt += from_t * (time - self.mean_t);
    }

    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the line from which the samples differ least.
    ///
    /// # Errors
    /// [`FitError`].
    pub fn line(&self) -> Result<Line, FitError> {
        self.check()?;
        let b = self.nt / self.nn;
        let a = self.mean_t - b * self.mean_n;
        let (error, t) = (self.error(b), self.quantile());
        Ok(Line {
            a: Estimate { value: a, half_width: t * error * self.spread(0.0) },
            b: Estimate { value: b, half_width: t * error / self.nn.sqrt() },
            deviation: error,
            batches: self.count,
        })
    }

    /// Returns the time of the line at `n` packets.
    ///
    /// # Errors
    /// [`FitError`].
    pub fn at(&self, n: u32) -> Result<Estimate, FitError> {
        let Line { a, b, deviation, .. } = self.line()?;
        let value = a.value + b.value * f64::from(n);
        Ok(Estimate { value, half_width: self.quantile() * deviation * self.spread(n.into()) })
    }

    fn check(&self) -> Result<(), FitError> {
        match self.invalid {
            Some(time) => Err(FitError::NoTime(time)),
            None if self.count < 3 => Err(FitError::TooFew(self.count)),
            None if self.nn <= 0.0 => Err(FitError::OneSize(self.mean_n)),
            None if self.tt <= 0.0 => Err(FitError::OneTime(self.mean_t)),
            None => Ok(()),
        }
    }

    /// Returns the standard error of the samples about the line.
    fn error(&self, b: f64) -> f64 {
        // Rounding may leave less than nothing of samples on a line.
        let rest = (self.tt - b * self.nt).max(0.0);
        (rest / self.freedom()).sqrt()
    }

    /// Returns the factor of the standard error at `n`: the further from the mean, the greater.
    fn spread(&self, n: f64) -> f64 {
        ((self.count as f64).recip() + (n - self.mean_n).powi(2) / self.nn).sqrt()
    }

    fn freedom(&self) -> f64 {
        self.count as f64 - 2.0
    }

    /// Returns the quantile of Student's distribution for the confidence.
    fn quantile(&self) -> f64 {
        let distribution = StudentsT::new(0.0, 1.0, self.freedom());
        distribution.map_or(f64::INFINITY, |d| d.inverse_cdf(0.5 + CONFIDENCE / 2.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn samples(all: &[(u32, f64)]) -> Samples {
        let mut samples = Samples::default();
        all.iter().for_each(|(n, time)| samples.add(*n, *time));
        samples
    }

    #[test]
    fn a_textbook_example_has_its_published_line() {
        // Sums by hand: nn = 10, nt = 6, tt = 6.
        let line = samples(&[(1, 2.0), (2, 4.0), (3, 5.0), (4, 4.0), (5, 5.0)]).line().unwrap();
        assert!((line.a.value - 2.2).abs() < 1e-12 && (line.b.value - 0.6).abs() < 1e-12, "{line:?}");
        // s² = 2.4 / 3; t(0.975, 3) = 3.182446; se(b) = s / sqrt(10); se(a) = s sqrt(1/5 + 9/10).
        let s = 0.8_f64.sqrt();
        assert!((line.deviation - s).abs() < 1e-12);
        assert!((line.b.half_width - 3.182_446 * s / 10_f64.sqrt()).abs() < 1e-5, "{line:?}");
        assert!((line.a.half_width - 3.182_446 * s * 1.1_f64.sqrt()).abs() < 1e-5, "{line:?}");
    }

    #[test]
    fn samples_from_which_no_line_follows_are_refused() {
        let why = |all: &[(u32, f64)]| samples(all).line().unwrap_err();
        assert_eq!(why(&[]), FitError::TooFew(0));
        assert_eq!(why(&[(1, 1.0), (2, 2.0)]), FitError::TooFew(2));
        assert_eq!(why(&[(32, 1.0), (32, 2.0), (32, 3.0)]), FitError::OneSize(32.0));
        assert_eq!(why(&[(1, 2.0), (2, 2.0), (3, 2.0)]), FitError::OneTime(2.0));
        assert_eq!(why(&[(1, 1.0), (2, -1.0), (3, 3.0), (4, 4.0)]), FitError::NoTime(-1.0));
        assert!(matches!(why(&[(1, f64::NAN)]), FitError::NoTime(time) if time.is_nan()));
    }

    #[test]
    fn samples_on_a_line_give_it_back_exactly() {
        let line = samples(&[(1, 3.5), (8, 7.0), (32, 19.0)]).line().unwrap();
        assert!((line.a.value - 3.0).abs() < 1e-9 && (line.b.value - 0.5).abs() < 1e-9, "{line:?}");
        assert!(line.a.half_width < 1e-6 && line.b.half_width < 1e-6, "{line:?}");
        assert!(line.b.contains(line.b.value) && !line.b.contains(0.6));
    }

    proptest! {
        #[test]
        fn sums_agree_with_those_of_two_passes(
            all in prop::collection::vec((1_u32..33, 0.0_f64..1e6), 3..60),
        ) {
            let count = all.len() as f64;
            let mean_n = all.iter().map(|(n, _)| f64::from(*n)).sum::<f64>() / count;
            let mean_t = all.iter().map(|(_, t)| t).sum::<f64>() / count;
            let nn: f64 = all.iter().map(|(n, _)| (f64::from(*n) - mean_n).powi(2)).sum();
            let nt: f64 = all.iter().map(|(n, t)| (f64::from(*n) - mean_n) * (t - mean_t)).sum();
            prop_assume!(nn > 0.5);
            let line = samples(&all).line();
            prop_assume!(line.is_ok());
            let (b, found) = (nt / nn, line.unwrap().b.value);
            prop_assert!((b - found).abs() <= 1e-6 * (1.0 + b.abs()), "{b} {found}");
        }
    }
}
