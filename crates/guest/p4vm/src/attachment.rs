//! Descriptors for what came with a request.

use anyhow::{Context, ensure};
use p4shield_channel::Doorbell;
use p4shield_line::{Attachment, Rings};
use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// PCI devices in sysfs.
const DEVICES: &str = "/sys/bus/pci/devices";
/// Longest time for the kernel to find a device that was plugged, on a loaded machine.
const PLUGGED: Duration = Duration::from_secs(20);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(1);

/// Returns the runtime's descriptor for an attachment. The other end of a doorbell goes to `rings`.
pub(crate) fn descriptor(attachment: Attachment, rings: &Rings) -> anyhow::Result<OwnedFd> {
    match attachment {
        Attachment::Region { bridge, slot, len, write_combining } => {
            region(Path::new(DEVICES), (bridge, slot), len, write_combining)
        }
        Attachment::Bytes(bytes) => file(&bytes),
        Attachment::Doorbell(number) => {
            let (ours, theirs) = Doorbell::pair().context("cannot create a doorbell")?;
            rings.add(number, ours);
            Ok(theirs.into_fd())
        }
    }
}

/// Opens the memory of the ivshmem device behind a bridge, once the kernel has found it. Linux lets root
/// map a base address register from sysfs without a driver (`Documentation/PCI/sysfs-pci.rst`).
fn region(
    devices: &Path,
    (bridge, slot): (u8, u8),
    len: u64,
    write_combining: bool,
) -> anyhow::Result<OwnedFd> {
    ensure!(bridge < 32 && slot < 32, "there is no slot {slot} behind bridge {bridge}");
    let bridge = devices.join(format!("0000:00:{bridge:02x}.0"));
    let name = if write_combining { "resource2_wc" } else { "resource2" };
    let end = Instant::now() + PLUGGED;
    let device = loop {
        match behind(&bridge, slot).filter(|device| device.join(name).exists()) {
            Some(device) => break device,
            None if Instant::now() < end => std::thread::sleep(PAUSE),
            None => anyhow::bail!("no device with a {name} appeared in slot {slot} of {}", bridge.display()),
        }
    };
    let identity = |name| fs::read_to_string(device.join(name)).unwrap_or_default();
    ensure!(
        identity("vendor").trim() == "0x1af4" && identity("device").trim() == "0x1110",
        "{} is not an ivshmem device",
        device.display()
    );
    let enable = device.join("enable");
    if fs::read_to_string(&enable).is_ok_and(|on| on.trim() == "0") {
        fs::write(&enable, "1").with_context(|| format!("cannot enable {}", device.display()))?;
    }
    let path = device.join(name);
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(&path, flags, Mode::empty())
        .with_context(|| format!("cannot open {}", path.display()))?;
    let found = rustix::fs::fstat(&file)?.st_size;
    ensure!(u64::try_from(found) == Ok(len), "{} has {found} bytes instead of {len}", path.display());
    Ok(file)
}

/// Returns the device in a slot behind a bridge, whose bus has a number of the firmware's choice.
fn behind(bridge: &Path, slot: u8) -> Option<PathBuf> {
    let suffix = format!(":{slot:02x}.0");
    let mut entries = fs::read_dir(bridge).ok()?.flatten();
    entries.find_map(|entry| {
        let name = entry.file_name();
        let name = name.to_str()?;
        (name.starts_with("0000:") && name.ends_with(&suffix)).then(|| entry.path())
    })
}

/// Returns a memory file with these bytes.
fn file(bytes: &[u8]) -> anyhow::Result<OwnedFd> {
    let file = memfd_create("carried", MemfdFlags::CLOEXEC).context("cannot create a memory file")?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let n = rustix::io::write(&file, rest).context("cannot write a memory file")?;
        rest = &rest[n..];
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(devices: &Path, ids: [&str; 2]) -> PathBuf {
        let device = devices.join("0000:00:12.0/0000:05:1f.0");
        fs::create_dir_all(&device).unwrap();
        for (name, text) in [("vendor", ids[0]), ("device", ids[1]), ("enable", "0\n"), ("resource2", "1234")]
        {
            fs::write(device.join(name), text).unwrap();
        }
        device
    }

    #[test]
    fn a_region_is_found_by_bridge_and_slot() {
        let devices = tempfile::tempdir().unwrap();
        let device = device(devices.path(), ["0x1af4\n", "0x1110\n"]);
        region(devices.path(), (0x12, 0x1f), 4, false).unwrap();
        assert_eq!(fs::read_to_string(device.join("enable")).unwrap(), "1");
        let size = region(devices.path(), (0x12, 0x1f), 8, false).unwrap_err().to_string();
        assert!(size.contains("4 bytes instead of 8"), "{size}");
        assert!(region(devices.path(), (0xff, 1), 4, false).is_err());
    }

    #[test]
    fn only_ivshmem_devices_are_regions() {
        let devices = tempfile::tempdir().unwrap();
        device(devices.path(), ["0x1af4\n", "0x1000\n"]);
        let other = region(devices.path(), (0x12, 0x1f), 4, false).unwrap_err().to_string();
        assert!(other.contains("not an ivshmem device"), "{other}");
    }
}
