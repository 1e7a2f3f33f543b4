//! ivshmem devices: discovery and activation through sysfs.
//!
//! `ivshmem-plain` of QEMU and Cloud Hypervisor is a PCI device 1af4:1110 whose third base address register
//! (BAR 2) is memory that the host shares (ivshmem-spec.rst of QEMU). Linux lets root map a BAR
//! from `/sys/bus/pci/devices/ADDRESS/resource2` (`Documentation/PCI/sysfs-pci.rst`), so no driver is
//! needed. Since Linux 5.10 the host can also read the mapping of a confidential VM.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Directory of PCI devices.
const SYSFS: &str = "/sys/bus/pci/devices";
const VENDOR: u64 = 0x1af4;
const DEVICE: u64 = 0x1110;
/// Line of BAR 2 in the file `resource`.
const BAR: usize = 2;

/// The address of a PCI device: `domain:bus:slot.function`, all hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PciAddress {
    domain: u16,
    bus: u8,
    slot: u8,
    function: u8,
}

impl FromStr for PciAddress {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (domain, rest) = text.split_once(':')?;
            let (bus, rest) = rest.split_once(':')?;
            let (slot, function) = rest.split_once('.')?;
            let number = |text: &str, digits: usize| {
                let whole = text.len() == digits && text.bytes().all(|b| b.is_ascii_hexdigit());
                whole.then(|| u16::from_str_radix(text, 16).ok()).flatten()
            };
            let byte = |text, digits, max| {
                number(text, digits).and_then(|n| u8::try_from(n).ok()).filter(|n| *n <= max)
            };
            Some(Self {
                domain: number(domain, 4)?,
                bus: byte(bus, 2, 0xff)?,
                slot: byte(slot, 2, 0x1f)?,
                function: byte(function, 1, 7)?,
            })
        };
        parse().ok_or_else(|| DeviceError::Address(text.to_owned()))
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.slot, self.function)
    }
}

/// Reason why a device cannot provide a page.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The text is not a PCI address.
    #[error(
        "{0:?} is not a PCI address: write pci:0000:00:05.0 (`lspci -D -d 1af4:1110` lists devices) or \
         pci:auto"
    )]
    Address(String),
    /// No device has the required size.
    #[error("no ivshmem device (PCI 1af4:1110) has a memory of {size} bytes; there {found}")]
    None {
        /// Size of the page.
        size: u64,
        /// The existing devices.
        found: String,
    },
    /// Several devices have the required size.
    #[error("{} ivshmem devices have a memory of {size} bytes ({}): select one", .found.len(), list(.found))]
    Several {
        /// Size of the page.
        size: u64,
        /// Their addresses.
        found: Vec<PciAddress>,
    },
    /// The device is not an ivshmem device.
    #[error("the PCI device {0} is not an ivshmem device (1af4:1110)")]
    Other(PciAddress),
    /// The device's memory has another size than the page.
    #[error(
        "the memory of the ivshmem device {address} has {actual} bytes, the page {size}: check that info \
         page and log page are not swapped"
    )]
    Size {
        /// Address of the device.
        address: PciAddress,
        /// Size of the page.
        size: u64,
        /// Size of the memory.
        actual: u64,
    },
    /// A system call failed.
    #[error("cannot {what} {}: root rights and a kernel without lockdown are required", path.display())]
    System {
        /// The operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

fn list(addresses: &[PciAddress]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// An ivshmem device.
#[derive(Debug)]
pub(super) struct Device {
    address: PciAddress,
    folder: PathBuf,
    size: u64,
}

impl Device {
    /// Opens the device at `address`, whose memory must have `size` bytes.
    pub(super) fn at(address: PciAddress, size: u64) -> Result<Self, DeviceError> {
        Self::within(Path::new(SYSFS), address)?.of_size(size)
    }

    /// Finds the only device whose memory has `size` bytes.
    pub(super) fn find(size: u64) -> Result<Self, DeviceError> {
        Self::find_within(Path::new(SYSFS), size)
    }

    fn find_within(sysfs: &Path, size: u64) -> Result<Self, DeviceError> {
        let entries = fs::read_dir(sysfs).map_err(failed("read", sysfs))?;
        let mut addresses: Vec<PciAddress> =
            entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
        addresses.sort();
        let all: Vec<Self> = addresses.into_iter().filter_map(|a| Self::within(sysfs, a).ok()).collect();
        let found = match all.as_slice() {
            [] => "is none".to_owned(),
            some => some
                .iter()
                .map(|d| format!("is {} with {}", d.address, d.size))
                .collect::<Vec<_>>()
                .join(", "),
        };
        let mut fit: Vec<Self> = all.into_iter().filter(|d| d.size == size).collect();
        match (fit.pop(), fit.len()) {
            (Some(device), 0) => Ok(device),
            (None, _) => Err(DeviceError::None { size, found }),
            (Some(last), _) => {
                fit.push(last);
                Err(DeviceError::Several { size, found: fit.iter().map(|d| d.address).collect() })
            }
        }
    }

    fn within(sysfs: &Path, address: PciAddress) -> Result<Self, DeviceError> {
        let folder = sysfs.join(address.to_string());
        let read = |name| {
            let path = folder.join(name);
            fs::read_to_string(&path).map_err(failed("read", &path))
        };
        if hexadecimal(&read("vendor")?) != Some(VENDOR) || hexadecimal(&read("device")?) != Some(DEVICE) {
            return Err(DeviceError::Other(address));
        }
        let size = bar_size(&read("resource")?).ok_or(DeviceError::Other(address))?;
        Ok(Self { address, folder, size })
    }

    fn of_size(self, size: u64) -> Result<Self, DeviceError> {
        if self.size != size {
            return Err(DeviceError::Size { address: self.address, size, actual: self.size });
        }
        Ok(self)
    }

    pub(super) const fn address(&self) -> PciAddress {
        self.address
    }

    /// Returns the file that maps the device's memory, uncached or with write combining.
    pub(super) fn memory(&self, combined: bool) -> PathBuf {
        self.folder.join(if combined { "resource2_wc" } else { "resource2" })
    }

    /// Enables the device if necessary, and opens its memory. With `combine`, writes are gathered into whole
    /// cache lines if the kernel supports that; the result states whether they are.
    pub(super) fn open(&self, combine: bool) -> Result<(File, bool), DeviceError> {
        let enable = self.folder.join("enable");
        let on = fs::read_to_string(&enable).map_err(failed("read", &enable))?;
        if on.trim() == "0" {
            fs::write(&enable, "1").map_err(failed("enable the device with", &enable))?;
        }
        let combine = combine && self.memory(true).exists();
        let path = self.memory(combine);
        let file = File::options().read(true).write(true).open(&path).map_err(failed("open", &path))?;
        Ok((file, combine))
    }
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> DeviceError {
    let path = path.to_owned();
    move |source| DeviceError::System { what, path, source }
}

/// Returns the size of BAR 2 from the file `resource`, which has a line `first last flags` per BAR.
fn bar_size(resource: &str) -> Option<u64> {
    let mut words = resource.lines().nth(BAR)?.split_whitespace();
    let (first, last) = (hexadecimal(words.next()?)?, hexadecimal(words.next()?)?);
    last.checked_sub(first)?.checked_add(1).filter(|_| last != 0)
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a device like that of a guest's sysfs.
    fn device(sysfs: &Path, address: &str, ids: [&str; 2], bar: &str) {
        let folder = sysfs.join(address);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("vendor"), format!("{}\n", ids[0])).unwrap();
        fs::write(folder.join("device"), format!("{}\n", ids[1])).unwrap();
        let none = "0x0000000000000000 0x0000000000000000 0x0000000000000000";
        let registers = "0x00000000febf1000 0x00000000febf10ff 0x0000000000040200";
        fs::write(folder.join("resource"), format!("{registers}\n{none}\n{bar}\n{none}\n")).unwrap();
        fs::write(folder.join("enable"), "0\n").unwrap();
        fs::write(folder.join("resource2"), [1; 16]).unwrap();
    }

    const IVSHMEM: [&str; 2] = ["0x1af4", "0x1110"];
    const BAR_8K: &str = "0x00000000fe000000 0x00000000fe001fff 0x000000000014220c";
    const BAR_16K: &str = "0x00000000fe004000 0x00000000fe007fff 0x000000000014220c";

    #[test]
    fn devices_are_found_by_size_and_by_address() {
        let sysfs = tempfile::tempdir().unwrap();
        device(sysfs.path(), "0000:00:03.0", ["0x1af4", "0x1000"], BAR_8K);
        device(sysfs.path(), "0000:00:05.0", IVSHMEM, BAR_8K);
        device(sysfs.path(), "0000:00:06.0", IVSHMEM, BAR_16K);
        let find = |size| Device::find_within(sysfs.path(), size);
        assert_eq!(find(8192).unwrap().address().to_string(), "0000:00:05.0");
        assert_eq!(find(16384).unwrap().address().to_string(), "0000:00:06.0");
        let none = find(4096).unwrap_err().to_string();
        assert!(none.contains("0000:00:05.0 with 8192") && none.contains("4096"), "{none}");
        let at = |text: &str| Device::within(sysfs.path(), text.parse().unwrap());
        assert!(matches!(at("0000:00:03.0"), Err(DeviceError::Other(_))));
        assert!(at("0000:00:07.0").unwrap_err().to_string().contains("0000:00:07.0"));
        let confused = at("0000:00:05.0").unwrap().of_size(16384).unwrap_err().to_string();
        assert!(confused.contains("8192") && confused.contains("16384"), "{confused}");
        device(sysfs.path(), "0000:00:08.0", IVSHMEM, BAR_8K);
        let several = find(8192).unwrap_err().to_string();
        assert!(several.contains("0000:00:05.0, 0000:00:08.0"), "{several}");
    }

    #[test]
    fn a_device_is_enabled_once() {
        let sysfs = tempfile::tempdir().unwrap();
        device(sysfs.path(), "0000:00:05.0", IVSHMEM, BAR_8K);
        let enable = sysfs.path().join("0000:00:05.0/enable");
        let device = Device::find_within(sysfs.path(), 8192).unwrap();
        assert!(!device.open(true).unwrap().1, "resource2_wc does not exist");
        assert_eq!(fs::read_to_string(&enable).unwrap(), "1");
        fs::write(&enable, "2").unwrap();
        fs::write(sysfs.path().join("0000:00:05.0/resource2_wc"), [1; 16]).unwrap();
        assert!(device.open(true).unwrap().1);
        assert!(!device.open(false).unwrap().1);
        assert_eq!(fs::read_to_string(&enable).unwrap(), "2", "the file counts its users");
    }

    #[test]
    fn broken_resources_have_no_size() {
        for text in [
            "",
            "0x0 0x0 0x0\n0x0 0x0 0x0\n",
            "a\nb\n0x2 0x1 0x0",
            "a\nb\n0x0 0xffffffffffffffff 0",
            "a\nb\nx y",
        ] {
            assert_eq!(bar_size(text), None, "{text:?}");
        }
        assert_eq!(bar_size(&format!("a\nb\n{BAR_8K}\n")), Some(8192));
    }
}
