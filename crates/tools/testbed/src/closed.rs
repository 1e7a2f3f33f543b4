//! The report of `libp4shield_xsk.so` on a closed AF_XDP socket: the owners of its frames.

use std::collections::BTreeMap;

/// Text that identifies the line.
const MARK: &str = "an AF_XDP socket is being closed";

/// Frame account of one socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// Frames by the owner's name.
    pub frames: BTreeMap<String, u64>,
    /// Refused transitions by their cause; `None` if the line lacks them.
    pub faults: Option<BTreeMap<String, u64>>,
}

impl Closed {
    /// Returns every account in a log.
    #[must_use]
    pub fn all(log: &str) -> Vec<Self> {
        let line =
            |l: &str| Self { frames: counts(l, "frames").unwrap_or_default(), faults: counts(l, "refused") };
        log.lines().filter(|l| l.contains(MARK)).map(line).collect()
    }

    /// Returns the number of all frames.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.frames.values().sum()
    }

    /// Returns the number of refused transitions; `None` if the line lacks it.
    #[must_use]
    pub fn refused(&self) -> Option<u64> {
        self.faults.as_ref().map(|faults| faults.values().sum())
    }
}

/// Returns the `name number` pairs of a field, which has the value `none` without any.
fn counts(line: &str, field: &str) -> Option<BTreeMap<String, u64>> {
    let (_, rest) = line.split_once(&format!("{field}=\""))?;
    let (inside, _) = rest.split_once('"')?;
    let pair = |part: &str| {
        let (name, value) = part.rsplit_once(' ')?;
        Some((name.trim().to_owned(), value.parse().ok()?))
    };
    Some(inside.split(',').filter_map(pair).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_in_a_log() {
        let log = "p4shield: INFO mediating\n\
                   p4shield: INFO an AF_XDP socket is being closed interface=2 queue=0 \
                   frames=\"application 10, fill ring 6\" \
                   refused=\"kernel 1, verdict 2\"\n\
                   p4shield: INFO an AF_XDP socket is being closed interface=2 queue=1 \
                   frames=\"application 16\" refused=\"none\"\n\
                   p4shield: INFO an AF_XDP socket is being closed\n";
        let all = Closed::all(log);
        assert_eq!(all.len(), 3);
        assert_eq!((all[0].total(), all[0].refused(), all[0].frames["fill ring"]), (16, Some(3), 6));
        assert_eq!((all[1].total(), all[1].refused()), (16, Some(0)));
        assert_eq!((all[2].total(), all[2].refused()), (0, None));
    }
}
