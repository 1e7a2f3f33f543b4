//! The regions of a virtual machine: memory that it shares with the host, each a device of its own.
//!
//! A region is plugged while the machine runs. Its device is an `ivshmem-plain` behind one of a few
//! bridges, where the guest finds it by bridge and slot. The machine can map no byte of the host but its
//! regions.

use crate::qmp::{Qmp, QmpError};
use serde_json::json;
use std::os::fd::BorrowedFd;

/// Bridges.
pub(crate) const BRIDGES: u8 = 8;
/// Slot of the first bridge on PCI bus 0.
pub(crate) const FIRST_BRIDGE: u8 = 0x10;
/// Devices behind a bridge: slot 0 is the bridge's own hot-plug controller's in QEMU.
const SLOTS: u8 = 31;
/// The most regions.
pub const MAX_REGIONS: usize = BRIDGES as usize * SLOTS as usize;

/// A region that is plugged. [`Regions::unplug`] removes it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) number: u8,
    pub(crate) len: u64,
}

impl Region {
    /// Returns the slot of its bridge on PCI bus 0.
    pub(crate) const fn bridge(&self) -> u8 {
        FIRST_BRIDGE + self.number / SLOTS
    }

    /// Returns its slot behind the bridge.
    pub(crate) const fn slot(&self) -> u8 {
        1 + self.number % SLOTS
    }
}

/// Reason why a region is not plugged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegionError {
    #[error(
        "the virtual machine has {MAX_REGIONS} regions already: channels and pages; give the switch fewer \
         queues, or the tenant fewer VMs"
    )]
    Full,
    #[error("a region has {0} bytes, which is no power of two of at least 4096")]
    Length(u64),
    #[error(transparent)]
    Qemu(#[from] QmpError),
}

/// The places for regions.
#[derive(Debug)]
pub(crate) struct Regions {
    used: [bool; MAX_REGIONS],
}

impl Default for Regions {
    fn default() -> Self {
        Self { used: [false; MAX_REGIONS] }
    }
}

impl Regions {
    /// Plugs the memory of `file`, which has `len` bytes.
    pub(crate) fn plug(
        &mut self,
        qemu: &mut Qmp,
        file: BorrowedFd<'_>,
        len: u64,
    ) -> Result<Region, RegionError> {
        if !len.is_power_of_two() || len < 4096 {
            return Err(RegionError::Length(len));
        }
        let number = self.used.iter().position(|used| !used).ok_or(RegionError::Full)?;
        let region = Region { number: number as u8, len };
        plug(qemu, file, &region)?;
        self.used[number] = true;
        Ok(region)
    }

    /// Removes a region. One that the guest does not release keeps its place.
    pub(crate) fn unplug(&mut self, qemu: &mut Qmp, region: &Region) -> Result<(), QmpError> {
        let (device, memory) = names(region);
        qemu.call("device_del", &json!({ "id": device }))?;
        qemu.wait_removed(&device)?;
        qemu.call("object-del", &json!({ "id": memory }))?;
        self.used[usize::from(region.number)] = false;
        Ok(())
    }
}

/// Returns QEMU's names of a region's device and memory.
fn names(region: &Region) -> (String, String) {
    (format!("region{}", region.number), format!("memory{}", region.number))
}

fn plug(qemu: &mut Qmp, file: BorrowedFd<'_>, region: &Region) -> Result<(), QmpError> {
    let (device, memory) = names(region);
    let sent = qemu.call_with("add-fd", &json!({}), &[file])?;
    let (Some(fd), Some(set)) = (sent["fd"].as_u64(), sent["fdset-id"].as_u64()) else {
        return Err(QmpError::Protocol("add-fd returned no descriptor".to_owned()));
    };
    let path = format!("/proc/self/fd/{fd}");
    let object = json!({
        "qom-type": "memory-backend-file", "id": memory, "size": region.len, "mem-path": path, "share": true,
    });
    let added = qemu.call("object-add", &object);
    qemu.call("remove-fd", &json!({ "fdset-id": set }))?;
    added?;
    let bus = format!("bridge{}", region.bridge() - FIRST_BRIDGE);
    // QEMU reads the address as hexadecimal.
    let addr = format!("{:x}", region.slot());
    let arguments =
        json!({ "driver": "ivshmem-plain", "id": device, "memdev": memory, "bus": bus, "addr": addr });
    if let Err(error) = qemu.call("device_add", &arguments) {
        qemu.call("object-del", &json!({ "id": memory }))?;
        return Err(error);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_region_has_a_device_of_its_own() {
        let all: BTreeSet<_> = (0..MAX_REGIONS)
            .map(|n| Region { number: u8::try_from(n).unwrap(), len: 4096 })
            .map(|r| (r.bridge(), r.slot()))
            .collect();
        assert_eq!(all.len(), MAX_REGIONS);
        assert!(all.iter().all(|(bridge, slot)| (0x10..0x18).contains(bridge) && (1..=31).contains(slot)));
    }
}
