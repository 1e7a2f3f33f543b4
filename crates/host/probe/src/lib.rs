//! What this host can do for P4 Shield, what is missing, and what to do about it.
//!
//! Each [`Area`] has one probe, which reads the kernel's files, asks the processor, or starts QEMU. A probe
//! changes nothing, and one that does not end within [`LIMIT`] is a finding of its own.
#![forbid(unsafe_code)]

mod devices;
mod dpdk;
mod finding;
mod host;
mod netdev;
mod network;
mod tee;
mod virtualisation;

pub use finding::{Area, Finding, State};
pub use host::{Cpu, Host};

use finding::Found;
use std::sync::mpsc;
use std::time::Duration;

/// Time limit of a probe: that of a guest on KVM ([`p4shield_qemu::PATIENCE`]), and of all else.
pub const LIMIT: Duration = p4shield_qemu::PATIENCE.saturating_add(Duration::from_secs(10));

/// Probes an area.
#[must_use]
pub fn probe(area: Area, host: &Host) -> Finding {
    probe_within(area, host, LIMIT)
}

/// Probes an area within a time limit. A file of the kernel's may never answer, so the probe has a thread of
/// its own, which stays behind if it hangs.
#[must_use]
pub fn probe_within(area: Area, host: &Host, limit: Duration) -> Finding {
    let (result, received) = mpsc::channel();
    let machine = host.clone();
    let thread = std::thread::Builder::new().name(format!("probe-{area}"));
    let started = thread.spawn(move || drop(result.send(find(area, &machine))));
    let found = match started {
        Err(e) => Found::missing(format!("cannot start a thread for the probe: {e}"), "end other processes"),
        Ok(_) => received.recv_timeout(limit).unwrap_or_else(|_| {
            Found::missing(
                format!("the probe did not end within {} s", limit.as_secs_f64()),
                "a device or a file of the kernel's does not answer: read `dmesg`",
            )
        }),
    };
    let (state, found, remedy) = found.parts();
    Finding { area, state, found, remedy }
}

fn find(area: Area, host: &Host) -> Found {
    match area {
        Area::Kvm => virtualisation::kvm(host),
        Area::Qemu => virtualisation::qemu(host),
        Area::SevSnp => tee::sev_snp(host),
        Area::Tdx => tee::tdx(host),
        Area::GuestTee => tee::guest(host),
        Area::Iommu => devices::iommu(host),
        Area::SrIov => devices::sr_iov(host),
        Area::HugePages => devices::huge_pages(host),
        Area::AfXdp => network::af_xdp(host),
        Area::Tcx => network::tcx(host),
        Area::Dpdk => dpdk::dpdk(host),
    }
}
