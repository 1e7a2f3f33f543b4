//! Checks of durations and sizes.

use super::DEFAULT_MEMORY;
use super::check::Checker;
use super::units::{Quantity, parse_duration, parse_size};
use std::time::Duration;
use toml::Spanned;

/// The default and the limit of a size, both in bytes.
pub(super) struct SizeLimits {
    pub(super) default: u64,
    /// Whole MiB.
    pub(super) least: u64,
    pub(super) example: &'static str,
}

/// The memory of P4 VMs.
const P4_VM: SizeLimits = SizeLimits { default: DEFAULT_MEMORY, least: 64 << 20, example: "512MiB" };

impl Checker<'_> {
    pub(super) fn duration(
        &mut self,
        key: &str,
        value: Option<&Spanned<Quantity>>,
        default: Duration,
        most: Duration,
    ) -> Duration {
        let Some(value) = value else { return default };
        let Quantity { text, quoted } = value.as_ref();
        let valid = |text: &str| parse_duration(text).filter(|d| !d.is_zero() && *d <= most);
        if let Some(duration) = valid(text).filter(|_| *quoted) {
            return duration;
        }
        let in_millis = format!("{text}ms");
        let message = if *quoted {
            let example = format!("{default:?}");
            format!(
                "{key}: {text:?} is not a duration above 0 and up to {most:?}; write for example {key} = \
                     {example:?}"
            )
        } else {
            let example = valid(&in_millis).map_or_else(|| format!("{default:?}"), |_| in_millis);
            format!("{key}: {text} has no unit; write it in quotes, for example {key} = {example:?}")
        };
        self.problem(value.span(), message);
        default
    }

    /// Returns the memory of a P4 VM in bytes.
    pub(super) fn memory(&mut self, value: Option<&Spanned<Quantity>>) -> u64 {
        self.size("memory", value, &P4_VM)
    }

    /// Returns a size in bytes.
    pub(super) fn size(&mut self, key: &str, value: Option<&Spanned<Quantity>>, limits: &SizeLimits) -> u64 {
        let SizeLimits { default, least, example } = *limits;
        let Some(value) = value else { return default };
        let Quantity { text, quoted } = value.as_ref();
        if let Some(bytes) = parse_size(text).filter(|n| *quoted && *n >= least) {
            return bytes;
        }
        let message = if *quoted {
            let least = least >> 20;
            format!(
                "{key}: {text:?} is not a size of at least {least}MiB; write for example {key} = {example:?}"
            )
        } else {
            format!("{key}: {text} is not in quotes; write for example {key} = {example:?}")
        };
        self.problem(value.span(), message);
        default
    }
}
