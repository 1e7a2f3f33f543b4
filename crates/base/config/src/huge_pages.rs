//! Huge pages of switches with DPDK: the key `huge_pages` of `[topology]`.

use super::check::Checker;
use super::file;
use super::levels::{Datapath, SwitchKind};
use super::quantity::SizeLimits;

/// No pages by default; the least that Open vSwitch starts in with its fewest packet buffers.
const PAGES: SizeLimits = SizeLimits { default: 0, least: 96 << 20, example: "128MiB" };

impl Checker<'_> {
    /// Checks how many bytes of huge pages each switch has.
    pub(super) fn huge_pages(&mut self, t: &file::Topology, switch: SwitchKind, datapath: Datapath) -> u64 {
        let Some(value) = &t.huge_pages else { return 0 };
        if datapath != Datapath::Dpdk {
            let remedy = match switch {
                SwitchKind::Ovs => "write datapath = \"dpdk\" or level = \"3\", or remove the key",
                SwitchKind::P4 => "write switch = \"ovs\", or remove the key",
            };
            let message = format!("huge_pages: only switches with DPDK use them; {remedy}");
            self.problem(value.span(), message);
        }
        self.size("huge_pages", Some(value), &PAGES)
    }
}

#[cfg(test)]
mod tests {
    use crate::topology::tests::{TOPOLOGY, errors, parse};

    fn with(level: &str, keys: &str) -> String {
        let text = TOPOLOGY.replacen("\"2\"", &format!("{level:?}"), 1);
        text.replacen("uplink", &format!("{keys}\nuplink"), 1)
    }

    #[test]
    fn switches_with_dpdk_may_have_huge_pages() {
        let pages = |text: &str| parse(text).unwrap().topology.unwrap().huge_pages;
        assert_eq!(pages(&with("3", "")), 0);
        assert_eq!(pages(&with("3", "huge_pages = \"256MiB\"")), 256 << 20);
        assert_eq!(pages(&with("baseline", "datapath = \"dpdk\"\nhuge_pages = \"96MiB\"")), 96 << 20);
    }

    #[test]
    fn other_switches_have_no_huge_pages() {
        for (level, keys, remedy) in [
            ("2", "", "write datapath = \"dpdk\""),
            ("2", "switch = \"p4\"\n", "write switch = \"ovs\""),
            ("3", "switch = \"p4\"\n", "write switch = \"ovs\""),
        ] {
            let error = errors(&with(level, &format!("{keys}huge_pages = \"128MiB\"")));
            assert!(
                error.contains("huge_pages: only switches with DPDK") && error.contains(remedy),
                "{error}"
            );
        }
        let error = errors(&with("3", "huge_pages = \"64MiB\""));
        assert!(error.contains("is not a size of at least 96MiB"), "{error}");
    }
}
