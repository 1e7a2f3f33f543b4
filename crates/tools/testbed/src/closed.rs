//! What `libp4shield_xsk.so` says of an AF_XDP socket that is closed: who had how many of its frames.

use std::collections::BTreeMap;

/// Words of the line.
const MARK: &str = "an AF_XDP socket is being closed";

/// The account of one socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// How many frames each owner had, by its name.
    pub frames: BTreeMap<String, u64>,
    /// How many steps that were none were refused to whom.
    pub faults: BTreeMap<String, u64>,
}

impl Closed {
    /// Every account in a log.
    #[must_use]
    pub fn all(log: &str) -> Vec<Self> {
        let line = |l: &str| Self { frames: fields(l, "Census {"), faults: fields(l, "Faults {") };
        log.lines().filter(|l| l.contains(MARK)).map(line).collect()
    }

    /// All frames, whoever had them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.frames.values().sum()
    }

    /// How many steps were refused in all; none where a line did not say.
    #[must_use]
    pub fn refused(&self) -> Option<u64> {
        (!self.faults.is_empty()).then(|| self.faults.values().sum())
    }
}

/// The `name: number` pairs between `mark` and the next closing brace.
fn fields(line: &str, mark: &str) -> BTreeMap<String, u64> {
    let inside = line.split_once(mark).and_then(|(_, rest)| rest.split_once('}')).map_or("", |(i, _)| i);
    let pair = |part: &str| {
        let (name, value) = part.split_once(':')?;
        Some((name.trim().to_owned(), value.trim().parse().ok()?))
    };
    inside.split(',').filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_in_a_log() {
        let log = "p4shield: INFO mediating\n\
                   p4shield: INFO an AF_XDP socket is being closed interface=2 queue=0 \
                   census=Census { application: 10, fill: 6 } faults=Faults { kernel: 1, judge: 2 }\n\
                   p4shield: INFO an AF_XDP socket is being closed\n";
        let all = Closed::all(log);
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].total(), all[0].refused(), all[0].frames["fill"]), (16, Some(3), 6));
        assert_eq!((all[1].total(), all[1].refused()), (0, None));
    }
}
