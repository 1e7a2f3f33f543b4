//! DPDK's libraries.

use crate::finding::Found;
use crate::host::Host;

/// Folders where libraries are installed on x86-64.
const FOLDERS: [&str; 4] =
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/lib/x86_64-linux-gnu", "/usr/local/lib64"];
/// The environment abstraction layer, which all DPDK applications link; the ABI's number follows.
const LIBRARY: &str = "librte_eal.so.";
/// Releases with long-term support by ABI (DPDK's ABI policy: a new one each November).
const RELEASES: [(u32, &str); 4] = [(23, "22.11"), (24, "23.11"), (25, "24.11"), (26, "25.11")];

/// Which ABIs of DPDK are installed.
pub(crate) fn dpdk(host: &Host) -> Found {
    let abi = |name: &String| name.strip_prefix(LIBRARY)?.parse::<u32>().ok();
    let mut abis: Vec<_> =
        FOLDERS.iter().flat_map(|folder| host.names(folder)).filter_map(|name| abi(&name)).collect();
    abis.sort_unstable();
    abis.dedup();
    if abis.is_empty() {
        return Found::missing(
            "no shared library of DPDK is installed",
            "install openvswitch-switch-dpdk or dpdk, if a DPDK switch is to be attached",
        );
    }
    let name = |abi: &u32| {
        let release = RELEASES.iter().find(|(known, _)| known == abi);
        release.map_or_else(|| format!("ABI {abi}"), |(_, release)| format!("DPDK {release} (ABI {abi})"))
    };
    Found::works(abis.iter().map(name).collect::<Vec<_>>().join(", "))
}
