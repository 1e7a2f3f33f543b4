//! IOMMU, virtual functions and huge pages.

use crate::finding::Found;
use crate::host::Host;

/// Whether the kernel uses an IOMMU.
pub(crate) fn iommu(host: &Host) -> Found {
    let units = host.names("/sys/class/iommu");
    let groups = host.names("/sys/kernel/iommu_groups").len();
    if units.is_empty() || groups == 0 {
        return Found::missing(
            "the kernel uses no IOMMU, so devices that a guest drives could write all memory",
            "enable VT-d or AMD-Vi in the firmware, and boot with `intel_iommu=on` on Intel",
        );
    }
    Found::works(format!("{groups} groups of devices ({})", units.join(", ")))
}

/// Network interfaces with virtual functions.
pub(crate) fn sr_iov(host: &Host) -> Found {
    let offers = |interface: &String| {
        let total = host.number(&format!("/sys/class/net/{interface}/device/sriov_totalvfs"))?;
        let used = host.number(&format!("/sys/class/net/{interface}/device/sriov_numvfs")).unwrap_or(0);
        Some(format!("{interface} {used} of {total}"))
    };
    let found: Vec<_> = host.names("/sys/class/net").iter().filter_map(offers).collect();
    if found.is_empty() {
        return Found::absent("no network interface offers virtual functions");
    }
    Found::works(format!("virtual functions in use: {}", found.join(", ")))
}

/// Huge pages by size.
pub(crate) fn huge_pages(host: &Host) -> Found {
    const FOLDER: &str = "/sys/kernel/mm/hugepages";
    let pool = |name: &String| {
        let of = |file: &str| host.number(&format!("{FOLDER}/{name}/{file}"));
        let size = name.strip_prefix("hugepages-")?;
        let (total, free) = (of("nr_hugepages")?, of("free_hugepages")?);
        (total > 0).then(|| format!("{free} of {total} of {size} are free"))
    };
    let pools: Vec<_> = host.names(FOLDER).iter().filter_map(pool).collect();
    if pools.is_empty() {
        return Found::limited(
            "none are reserved; DPDK needs them, or runs slower with `--no-huge`",
            "boot with `hugepages=1024`, or run `sysctl vm.nr_hugepages=1024`",
        );
    }
    Found::works(pools.join("; "))
}
