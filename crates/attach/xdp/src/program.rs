//! Loads and attaches the XDP program of one interface, fills its map of sockets, and reads its
//! counters.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libbpf_rs::libbpf_sys;
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder};

use crate::guard::Guard;
use crate::interfaces::Interface;

/// The most queues of an interface, as in `redirect.bpf.c`.
pub const MAX_QUEUES: u32 = 64;
/// `BPF_F_XDP_DEV_BOUND_ONLY`: the program runs on one device and may call its driver's metadata
/// functions.
const DEVICE_BOUND: u32 = 1 << 6;
/// `XDP_FLAGS_SKB_MODE` and `XDP_FLAGS_DRV_MODE`.
const GENERIC: u32 = 1 << 1;
const NATIVE: u32 = 1 << 2;

/// Index of the loopback interface in each network namespace (`LOOPBACK_IFINDEX`).
const LOOPBACK: i32 = 1;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/redirect.bpf.o"));

/// How the program may be attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver if it supports XDP, otherwise in the network stack.
    #[default]
    Auto,
    /// In the driver only.
    Native,
    /// In the network stack, which works for any interface. It is slower and cannot restore VLAN tags
    /// from packet metadata.
    Generic,
}

/// The program's counters of frames, most of which did not reach a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpCounters {
    /// Dropped: longer than a UMEM frame. A jumbo frame, or from a sender with segmentation offload.
    pub oversize: u64,
    /// Dropped: received on a queue without a socket.
    pub no_socket: u64,
    /// Redirected although the driver could not report whether there was a VLAN tag in the packet
    /// metadata.
    pub tag_unknown: u64,
    /// Dropped: the VLAN tag could not be inserted into the frame.
    pub tag_failed: u64,
}

/// Reason why a program could not be attached.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// libbpf or the kernel's verifier refused.
    #[error("cannot {step} on {interface}{}", denied(source))]
    Bpf {
        /// The step that failed.
        step: &'static str,
        /// The interface.
        interface: String,
        /// The cause.
        #[source]
        source: libbpf_rs::Error,
    },
    /// The kernel refused to attach the program.
    #[error("cannot attach the XDP program to {interface}{hint}")]
    Attach {
        /// The interface.
        interface: String,
        /// The remedy, if it is known.
        hint: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Keeps a program attached.
#[derive(Debug)]
struct Link(OwnedFd);

impl Drop for Link {
    /// Detaches the program at once: a child between fork and exec may have the descriptor, too, and closing
    /// it here would not detach.
    fn drop(&mut self) {
        // SAFETY: a system call on a live descriptor.
        let _ = unsafe { libbpf_sys::bpf_link_detach(self.0.as_raw_fd()) };
    }
}

/// A loaded and attached program. It is detached when dropped, or when the process ends.
#[derive(Debug)]
pub struct XdpProgram {
    object: Object,
    native: bool,
    tagged: bool,
    interface: u32,
    _link: Link,
}

impl XdpProgram {
    /// Loads the best program that works and attaches it; `max_packet` is the capacity of a frame.
    ///
    /// # Errors
    /// [`XdpError`].
    pub fn attach(interface: &Interface, mode: XdpMode, max_packet: u32) -> Result<Self, XdpError> {
        static QUIET: std::sync::Once = std::sync::Once::new();
        QUIET.call_once(|| {
            let log = |_level, text: String| tracing::debug!("{}", text.trim_end());
            libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Info, log)));
        });
        let native =
            if mode == XdpMode::Generic { None } else { Some(Self::attach_native(interface, max_packet)) };
        match native {
            Some(Err(e)) if mode == XdpMode::Auto && e.is_unsupported() => {
                tracing::warn!(
                    event = "xdp_not_native",
                    interface = interface.name,
                    "the driver has no XDP support, using the network stack's"
                );
            }
            Some(result) => return result,
            None => {}
        }
        let program = Self::try_attach(interface, GENERIC, false, max_packet)?;
        tracing::warn!(
            event = "xdp_not_native",
            interface = interface.name,
            "XDP runs in the network stack: VLAN tags in packet metadata are lost"
        );
        Ok(program)
    }

    fn attach_native(interface: &Interface, max_packet: u32) -> Result<Self, XdpError> {
        match Self::try_attach(interface, NATIVE, true, max_packet) {
            // Before Linux 6.8, or with a driver without XDP metadata. A tap has none and needs none:
            // tags from its file are always in the frame.
            Err(XdpError::Bpf { .. }) => Self::try_attach(interface, NATIVE, false, max_packet),
            result => result,
        }
    }

    fn try_attach(
        interface: &Interface,
        flags: u32,
        tagged: bool,
        max_packet: u32,
    ) -> Result<Self, XdpError> {
        let failed = |step| move |source| XdpError::Bpf { step, interface: interface.name.clone(), source };
        let name = if tagged { "redirect_tagged" } else { "redirect_plain" };
        let mut open =
            ObjectBuilder::default().open_memory(OBJECT).map_err(failed("open the XDP program's object"))?;
        for mut map in open.maps_mut() {
            if map.name().to_string_lossy().ends_with(".rodata") {
                map.set_initial_value(&max_packet.to_ne_bytes()).map_err(failed("set the longest packet"))?;
            }
        }
        for mut program in open.progs_mut() {
            program.set_autoload(program.name() == name || program.name() == "wire_guard");
            if tagged && program.name() == name {
                program.set_flags(DEVICE_BOUND);
                program.set_ifindex(interface.index);
            }
        }
        let object = open.load().map_err(failed("load the XDP program"))?;
        let program = object.progs().find(|p| p.name() == name).expect("the object has this program");
        let fd =
            create_link(program.as_fd(), interface.index, libbpf_sys::BPF_XDP, flags).map_err(|source| {
                XdpError::Attach { interface: interface.name.clone(), hint: remedy(&source), source }
            })?;
        Ok(Self { native: flags == NATIVE, tagged, interface: interface.index, _link: Link(fd), object })
    }

    /// Returns whether the program runs in the driver.
    #[must_use]
    pub const fn native(&self) -> bool {
        self.native
    }

    /// Returns whether the program restores VLAN tags from packet metadata.
    #[must_use]
    pub const fn restores_tags(&self) -> bool {
        self.tagged
    }

    /// Redirects the frames of `queue` to this bound socket from now on.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn serve(&self, queue: u32, socket: BorrowedFd<'_>) -> libbpf_rs::Result<()> {
        let fd = socket.as_raw_fd().to_ne_bytes();
        self.map("sockets").update(&queue.to_ne_bytes(), &fd, MapFlags::ANY)
    }

    /// Closes the interface to the host's own stack; see [`crate::guard`].
    ///
    /// # Errors
    /// What the kernel says.
    pub fn close_guard(&self) -> libbpf_rs::Result<()> {
        Guard::dropping(self.guard()).close(self.interface)
    }

    /// Opens the interface again.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open_guard(&self) -> libbpf_rs::Result<()> {
        Guard::dropping(self.guard()).open(self.interface)
    }

    fn guard(&self) -> BorrowedFd<'_> {
        let mut programs = self.object.progs();
        let guard = programs.find(|p| p.name() == "wire_guard").expect("the object has this program");
        // SAFETY: the object owns the descriptor and outlives the borrow; libbpf's own type borrows it
        // from a temporary.
        unsafe { BorrowedFd::borrow_raw(guard.as_fd().as_raw_fd()) }
    }

    /// Reads the counters.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn counters(&self) -> libbpf_rs::Result<XdpCounters> {
        let map = self.map("counters");
        let sum = |index: u32| -> libbpf_rs::Result<u64> {
            let values = map.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default();
            Ok(values.iter().filter_map(|v| v.first_chunk().copied()).map(u64::from_ne_bytes).sum())
        };
        Ok(XdpCounters { oversize: sum(0)?, no_socket: sum(1)?, tag_unknown: sum(2)?, tag_failed: sum(3)? })
    }

    fn map(&self, name: &str) -> libbpf_rs::Map<'_> {
        self.object.maps().find(|m| m.name() == name).expect("the object has this map")
    }
}

impl XdpError {
    fn is_unsupported(&self) -> bool {
        matches!(self, Self::Attach { source, .. } if source.raw_os_error() == Some(libc::EOPNOTSUPP))
    }
}

fn denied(error: &libbpf_rs::Error) -> &'static str {
    let is_denied = error.kind() == libbpf_rs::ErrorKind::PermissionDenied;
    if is_denied { remedy(&io::Error::from_raw_os_error(libc::EPERM)) } else { "" }
}

/// Returns the remedy, as the end of a sentence, for an error of the kernel's when a program is attached;
/// empty if none is known.
#[must_use]
pub fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ERANGE) => ": its MTU or its peer's is too large for XDP; set both to 3498 or less",
        Some(libc::ENOSPC) => {
            ": its peer has more transmit queues than it has receive queues; configure as many (ethtool -L)"
        }
        Some(libc::EBUSY | libc::EEXIST) => {
            ": another XDP program is attached; end the process that holds it, or remove the program \
             (ip link set dev X xdp off)"
        }
        Some(libc::EOPNOTSUPP) => {
            ": its driver has no XDP; put a bridge between it and a veth pair, and use the pair's other end"
        }
        Some(libc::EPERM) => ": CAP_NET_ADMIN and CAP_BPF are needed",
        _ => "",
    }
}

/// Where a program sees the frames that an interface receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In its driver, by XDP.
    Driver,
    /// At the ingress of traffic control, before all other filters (`tcx`, Linux 6.6).
    Ingress,
}

/// Returns whether this kernel has [`Place::Ingress`].
#[must_use]
pub fn has_ingress() -> bool {
    // SAFETY: all-zero is a valid `bpf_prog_query_opts`: it asks for numbers only.
    let mut options: libbpf_sys::bpf_prog_query_opts = unsafe { std::mem::zeroed() };
    options.sz = size_of_val(&options) as libbpf_sys::size_t;
    // SAFETY: libbpf reads and writes live options of the size that they contain.
    let found =
        unsafe { libbpf_sys::bpf_prog_query_opts(LOOPBACK, libbpf_sys::BPF_TCX_INGRESS, &raw mut options) };
    // Others than "invalid argument" are about the loopback interface or this process.
    found != -libc::EINVAL
}

/// Attaches a program to an interface by a link that is pinned at `path` in a BPF file system, so that it
/// outlives this process.
///
/// # Errors
/// The kernel's error, for which [`remedy`] may have advice.
pub fn attach_pinned(program: BorrowedFd<'_>, place: Place, interface: u32, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let (kind, flags) = match place {
        Place::Driver => (libbpf_sys::BPF_XDP, NATIVE),
        Place::Ingress => (libbpf_sys::BPF_TCX_INGRESS, libbpf_sys::BPF_F_BEFORE),
    };
    let link = create_link(program, interface, kind, flags)?;
    // SAFETY: a system call with a live descriptor and a string that ends with a zero.
    let pinned = unsafe { libbpf_sys::bpf_obj_pin(link.as_raw_fd(), path.as_ptr()) };
    if pinned < 0 { Err(io::Error::from_raw_os_error(-pinned)) } else { Ok(()) }
}

fn create_link(
    program: BorrowedFd<'_>,
    interface: u32,
    kind: libbpf_sys::bpf_attach_type,
    flags: u32,
) -> io::Result<OwnedFd> {
    // SAFETY: all-zero is a valid `bpf_link_create_opts`: no options.
    let mut options: libbpf_sys::bpf_link_create_opts = unsafe { std::mem::zeroed() };
    options.sz = size_of_val(&options) as libbpf_sys::size_t;
    options.flags = flags;
    // SAFETY: libbpf reads live options of the size that they contain.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), interface.cast_signed(), kind, &raw const options)
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: a new descriptor that only this function has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
