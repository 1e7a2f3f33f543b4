//! The part of a user VM's definition that is for P4 Shield, as QEMU's options and as libvirt's domain XML.
//!
//! A page is an `ivshmem-plain` device. Agent and auditor find theirs by its size, whatever its address.
//! libvirt's own `<shmem>` names memory in `/dev/shm` only, so there a page is a pair of QEMU's options, too,
//! with an address that libvirt does not give to devices of its own.
//! The names of properties are those of QEMU's manual and of libvirt's "Domain XML format".

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The identifier of the memory that a vhost-user switch maps.
const MEMORY: &str = "p4shield-memory";
/// The identifier of the network interface.
const PORT: &str = "p4shield-port";
/// The slot of the first page on the root bus of libvirt's domains. libvirt fills the bus from slot 1, and
/// has the devices of the chipset from 0x1b. QEMU makes the devices of options before those of libvirt, and
/// would give them the slots from 1.
const FIRST_SLOT: usize = 0x10;

/// A user VM, as far as P4 Shield is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserVm {
    /// The name of its domain.
    pub name: String,
    /// Bytes of its memory, a whole number of MiB.
    pub memory: u64,
    /// Its pages, each with its bytes: a power of two.
    pub pages: Vec<(PathBuf, u64)>,
    /// Its port at the switch, if QEMU makes it.
    pub port: Option<Port>,
    /// The Ethernet address of its interface; `None`: QEMU's or libvirt's choice.
    pub mac: Option<String>,
}

/// The end of a user VM's interface on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Port {
    /// A vhost-user socket at which QEMU listens, and to which the switch connects.
    VhostServer(PathBuf),
    /// A vhost-user socket at which the switch listens.
    VhostClient(PathBuf),
    /// A tap interface that exists.
    Tap(String),
}

/// Reason why a user VM has no definition. Each refusal says what to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserVmError {
    /// A text would be cut where options are separated.
    #[error(
        "{0:?} contains white space, quotes or control characters, which command lines cut; move the file, \
         or choose another name"
    )]
    Text(String),
    /// The amount of memory is no whole number of MiB, or 0.
    #[error("{0} bytes of memory are no whole number of MiB; write for example --memory 1GiB")]
    Memory(u64),
    /// The Ethernet address is none of a machine.
    #[error("{0:?} is not the address of one interface; write for example --mac 52:54:00:12:34:56")]
    Mac(String),
}

impl UserVm {
    /// Checks what options and XML are made of.
    fn check(&self) -> Result<(), UserVmError> {
        if self.memory == 0 || !self.memory.is_multiple_of(1 << 20) {
            return Err(UserVmError::Memory(self.memory));
        }
        if let Some(mac) = self.mac.as_ref().filter(|mac| !is_unicast(mac)) {
            return Err(UserVmError::Mac(mac.clone()));
        }
        let port = self.port.as_ref().map(|port| match port {
            Port::VhostServer(path) | Port::VhostClient(path) => path.display().to_string(),
            Port::Tap(name) => name.clone(),
        });
        let pages = self.pages.iter().map(|(path, _)| path.display().to_string());
        let mut texts = pages.chain(port).chain([self.name.clone()]);
        let is_cut = |c: char| c.is_whitespace() || c.is_control() || "'\"\\`$\u{fffd}".contains(c);
        texts.find(|text| text.contains(is_cut)).map_or(Ok(()), |text| Err(UserVmError::Text(text)))
    }

    /// Returns QEMU's options, each with its value. The VM's own definition has all else.
    ///
    /// # Errors
    /// A text or a number is none that QEMU can take.
    pub fn qemu(&self) -> Result<Vec<[String; 2]>, UserVmError> {
        self.check()?;
        let mut all = Vec::new();
        let mut add = |name: &str, value: String| all.push([format!("-{name}"), value]);
        let mac = self.mac.as_ref().map(|mac| format!(",mac={mac}")).unwrap_or_default();
        match &self.port {
            Some(Port::VhostServer(path) | Port::VhostClient(path)) => {
                let mebibytes = self.memory >> 20;
                add("m", format!("{mebibytes}M"));
                add("object", format!("memory-backend-memfd,id={MEMORY},size={mebibytes}M,share=on"));
                add("machine", format!("memory-backend={MEMORY}"));
                let server = if matches!(self.port, Some(Port::VhostServer(_))) { ",server=on" } else { "" };
                add("chardev", format!("socket,id={PORT},path={}{server}", escaped(path)));
                add("netdev", format!("vhost-user,id={PORT},chardev={PORT}"));
                add("device", format!("virtio-net-pci,netdev={PORT}{mac}"));
            }
            Some(Port::Tap(name)) => {
                let name = name.replace(',', ",,");
                add("netdev", format!("tap,id={PORT},ifname={name},script=no,downscript=no"));
                add("device", format!("virtio-net-pci,netdev={PORT}{mac}"));
            }
            None => {}
        }
        all.extend(self.page_options(|_| String::new()));
        Ok(all)
    }

    /// Returns the options of the pages; `place` has what says where the device of a page is.
    fn page_options(&self, place: impl Fn(usize) -> String) -> Vec<[String; 2]> {
        let options = self.pages.iter().enumerate().flat_map(|(n, (path, size))| {
            let (id, path) = (format!("p4shield-page{n}"), escaped(path));
            let memory = format!("memory-backend-file,id={id},size={size},mem-path={path},share=on");
            [("object", memory), ("device", format!("ivshmem-plain,memdev={id}{}", place(n)))]
        });
        options.map(|(name, value)| [format!("-{name}"), value]).collect()
    }

    /// Returns a domain of libvirt that has nothing but what P4 Shield needs.
    ///
    /// # Errors
    /// As [`Self::qemu`].
    pub fn libvirt(&self) -> Result<String, UserVmError> {
        self.check()?;
        let memory = if matches!(self.port, Some(Port::VhostServer(_) | Port::VhostClient(_))) {
            "  <memoryBacking>\n    <source type='memfd'/>\n    <access mode='shared'/>\n  </memoryBacking>\n"
        } else {
            ""
        };
        let mut arguments = String::new();
        let place = |page: usize| format!(",bus=pcie.0,addr={:#x}", FIRST_SLOT + page);
        for argument in self.page_options(place).iter().flatten() {
            let _ = writeln!(arguments, "    <qemu:arg value='{}'/>", in_xml(argument));
        }
        Ok(format!(
            "<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>\n  \
             <name>{}</name>\n  <memory unit='MiB'>{}</memory>\n{memory}  \
             <os>\n    <type arch='x86_64' machine='q35'>hvm</type>\n  </os>\n  \
             <devices>\n{}  </devices>\n  \
             <qemu:commandline>\n{arguments}  </qemu:commandline>\n</domain>\n",
            in_xml(&self.name),
            self.memory >> 20,
            self.interface(),
        ))
    }

    /// Returns libvirt's network interface.
    fn interface(&self) -> String {
        let source = |path: &Path, mode| {
            let path = in_xml(&path.display().to_string());
            ("vhostuser", format!("      <source type='unix' path='{path}' mode='{mode}'/>\n"))
        };
        let (kind, end) = match &self.port {
            Some(Port::VhostServer(path)) => source(path, "server"),
            Some(Port::VhostClient(path)) => source(path, "client"),
            Some(Port::Tap(name)) => {
                ("ethernet", format!("      <target dev='{}' managed='no'/>\n", in_xml(name)))
            }
            None => return String::new(),
        };
        let mac = self.mac.as_ref().map(|mac| format!("      <mac address='{mac}'/>\n")).unwrap_or_default();
        format!("    <interface type='{kind}'>\n{mac}{end}      <model type='virtio'/>\n    </interface>\n")
    }
}

/// Returns a path in the value of an option, where a comma stands for itself if it is doubled.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// Returns a text in an attribute between single quotes. [`UserVm::check`] refuses quotes.
fn in_xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Returns whether a text is the address of one interface: six pairs of digits, not a group's.
fn is_unicast(mac: &str) -> bool {
    let pairs: Vec<_> = mac.split(':').collect();
    let octet = |pair: &&str| {
        let is_pair = pair.len() == 2 && pair.bytes().all(|digit| digit.is_ascii_hexdigit());
        u8::from_str_radix(pair, 16).ok().filter(|_| is_pair)
    };
    let octets: Vec<_> = pairs.iter().filter_map(octet).collect();
    pairs.len() == 6 && octets.len() == 6 && octets[0] & 1 == 0 && octets.iter().any(|octet| *octet != 0)
}
