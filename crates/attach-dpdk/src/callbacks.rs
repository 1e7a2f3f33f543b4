//! Whether the application calls receive callbacks at all.
//!
//! `rte_eth_rx_burst` is compiled into the application, and with it the decision (`RTE_ETHDEV_RXTX_CALLBACKS`). If it was
//! built with them, the program or one of its libraries imports `rte_eth_call_rx_callbacks`. DPDK's own libraries do
//! not count: they say how DPDK was built, which for the application's part decides nothing.

use object::{Object, ObjectSymbol};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const CALL: &[u8] = b"rte_eth_call_rx_callbacks";
const BURST_TABLE: &[u8] = b"rte_eth_fp_ops";

/// The application polls ports and calls no callbacks.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} receives packets without calling receive callbacks, so it was built with RTE_ETHDEV_RXTX_CALLBACKS turned \
     off; build it with a DPDK that has them (the default)", file.display()
)]
pub(crate) struct Missing {
    file: PathBuf,
}

/// Checks the files that this process's program consists of.
///
/// # Errors
/// If one of them receives packets and calls no callbacks.
pub(crate) fn check() -> Result<(), Missing> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for file in application_files(&maps) {
        if receives_silently(&file) {
            return Err(Missing { file });
        }
    }
    Ok(())
}

/// The files with code of this process but DPDK's own.
fn application_files(maps: &str) -> BTreeSet<PathBuf> {
    let code = maps.lines().filter(|l| l.split(' ').nth(1).is_some_and(|p| p.contains('x')));
    let paths = code.filter_map(|l| l.find('/').map(|at| Path::new(&l[at..])));
    let ours = |p: &&Path| {
        let name = p.file_name().unwrap_or_default().to_string_lossy();
        !name.starts_with("librte_") && !name.starts_with("libp4shield_")
    };
    paths.filter(ours).map(Path::to_owned).collect()
}

/// Whether a file receives packets, for which it needs DPDK's table of functions, and calls no callbacks. What cannot be
/// read is taken for harmless: a switch that was updated while it runs has no file any more.
fn receives_silently(file: &Path) -> bool {
    let Ok(bytes) = std::fs::read(file) else { return false };
    let Ok(elf) = object::File::parse(&*bytes) else { return false };
    // The table may be an import or, in a program that is not position-independent, a copy of its own.
    let mentions = |name: &[u8]| elf.dynamic_symbols().any(|s| s.name_bytes().is_ok_and(|n| n == name));
    mentions(BURST_TABLE) && !mentions(CALL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dpdks_own_files_are_left_out() {
        let maps = "1-2 r--p 0 0:0 1 /usr/bin/switch\n1-2 r-xp 0 0:0 1 /usr/bin/switch\n\
                    1-2 r-xp 0 0:0 2 /usr/lib/librte_net_bond.so.23\n1-2 r-xp 0 0:0 0 [vdso]\n\
                    1-2 r-xp 0 0:0 3 /usr/lib/with space.so\n1-2 rw-p 0 0:0 4 /dev/shm/x\n";
        let files: Vec<_> = application_files(maps).into_iter().collect();
        assert_eq!(files, [Path::new("/usr/bin/switch"), Path::new("/usr/lib/with space.so")]);
    }

    /// Both are switches that call them; a shell receives nothing.
    #[test]
    fn distributions_switches_call_back() {
        for file in ["/usr/bin/dpdk-testpmd", "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk", "/bin/sh"]
        {
            if !Path::new(file).exists() {
                println!("skipped: {file} is not installed");
                continue;
            }
            assert!(!receives_silently(Path::new(file)), "{file}");
        }
    }
}
