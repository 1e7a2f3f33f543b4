//! What this host can do for P4 Shield, what is missing, and what to do about it.
//!
//! Each [`Area`] has one probe, which reads the kernel's files, asks the processor, or starts QEMU. A probe
//! changes nothing, and ends within [`p4shield_qemu::PATIENCE`] at most: only KVM's starts a guest.
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

/// Probes an area.
#[must_use]
pub fn probe(area: Area, host: &Host) -> Finding {
    let (state, found, remedy) = match area {
        Area::Kvm => virtualisation::kvm(host),
        Area::Qemu => virtualisation::qemu(host),
        Area::SevSnp => tee::sev_snp(host),
        Area::Tdx => tee::tdx(host),
        Area::GuestTee => tee::guest(host),
        Area::Iommu => devices::iommu(host),
        Area::SrIov => devices::sr_iov(host),
        Area::HugePages => devices::huge_pages(host),
        Area::AfXdp => network::af_xdp(host),
        Area::Dpdk => dpdk::dpdk(host),
    }
    .parts();
    Finding { area, state, found, remedy }
}
