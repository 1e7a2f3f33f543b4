//! Values of command line options.

use std::num::ParseIntError;
use std::time::Duration;

/// Parses a number of milliseconds, at least one.
pub(crate) fn milliseconds(text: &str) -> Result<Duration, ParseIntError> {
    text.parse().map(|n: u32| Duration::from_millis(n.max(1).into()))
}

/// Parses a number of seconds, at least one.
pub(crate) fn seconds(text: &str) -> Result<Duration, ParseIntError> {
    text.parse().map(|n: u32| Duration::from_secs(n.max(1).into()))
}
