//! The programs of an interface.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use libbpf_rs::{Object, ObjectBuilder};
use p4shield_afxdp::ethtool;
use p4shield_xdp::{Interface, guard};

use super::folder::Folder;
use super::maps;
use crate::NicError;

/// `BPF_F_XDP_DEV_BOUND_ONLY`: the program runs on one device and may call its driver's metadata functions.
const DEVICE_BOUND: u32 = 1 << 6;

const TAGGED: &str = "nic_tagged";
const PLAIN: &str = "nic_plain";
const GUARD: &str = "nic_guard";

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/nic.bpf.o"));

/// Passes libbpf's messages to the log.
pub(crate) fn quiet() {
    static QUIET: std::sync::Once = std::sync::Once::new();
    QUIET.call_once(|| {
        let log = |_level, text: String| tracing::debug!("{}", text.trim_end());
        libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Info, log)));
    });
}

/// Loads one program with the pinned maps, which it pins if they are new; `device` is its only interface.
fn load(folder: &Folder, name: &str, device: Option<u32>) -> libbpf_rs::Result<Object> {
    let mut open = ObjectBuilder::default().open_memory(OBJECT)?;
    for mut map in open.maps_mut() {
        if let Some(pinned) = maps::NAMES.into_iter().find(|pinned| map.name() == *pinned) {
            map.set_pin_path(folder.map(pinned))?;
        }
    }
    for mut program in open.progs_mut() {
        program.set_autoload(program.name() == name);
        if let Some(device) = device {
            program.set_flags(DEVICE_BOUND);
            program.set_ifindex(device);
        }
    }
    open.load()
}

/// A program that the kernel has checked for an interface.
pub(crate) struct Loaded {
    object: Object,
    name: &'static str,
}

/// Loads the program for the driver of an interface.
///
/// In the driver only: the kernel's generic XDP shows no VLAN tag that is in a packet's metadata and
/// redirects the packet with it, and from a port in a driver no frame can be redirected to an interface whose
/// driver has no XDP.
pub(crate) fn prepare(folder: &Folder, interface: &Interface) -> Result<Loaded, NicError> {
    match load(folder, TAGGED, Some(interface.index)) {
        Ok(object) => Ok(Loaded { object, name: TAGGED }),
        Err(_) => prepare_plain(folder, interface),
    }
}

/// Loads the program for Linux before 6.8, or a driver without XDP metadata: tags have to be in the frame. A
/// veth's peer can leave one in the metadata nevertheless; the redirect loses it, so that it is on no wire.
fn prepare_plain(folder: &Folder, interface: &Interface) -> Result<Loaded, NicError> {
    ethtool::keep_received_tags(&interface.name)
        .map_err(|error| failed(interface, ": its driver takes VLAN tags out of frames, unseen", error))?;
    let object = load(folder, PLAIN, None).map_err(|source| failed(interface, "", source))?;
    Ok(Loaded { object, name: PLAIN })
}

fn failed(interface: &Interface, remedy: &'static str, source: impl Into<libbpf_rs::Error>) -> NicError {
    let step = "attach the NIC switch's program to";
    NicError::Port { step, interface: interface.name.clone(), remedy, source: source.into() }
}

impl Loaded {
    /// Attaches the program to its interface, and pins the link.
    pub(crate) fn attach(self, folder: &Folder, to: &Interface) -> Result<(), NicError> {
        match self.attach_to(folder, to) {
            Err(_) if self.name == TAGGED => prepare_plain(folder, to)?.attach(folder, to),
            attached => attached.map_err(|e| failed(to, p4shield_xdp::program::remedy(&e), e)),
        }
    }

    fn attach_to(&self, folder: &Folder, to: &Interface) -> io::Result<()> {
        let mut programs = self.object.progs();
        let program =
            programs.find(|program| program.name() == self.name).expect("the object has this program");
        p4shield_xdp::program::attach_pinned(program.as_fd(), to.index, &folder.link(&to.name))
    }
}

/// The program that closes interfaces to the host's own stack.
#[derive(Debug)]
pub(crate) struct Guard(Object);

impl Guard {
    /// Loads it, and makes the pinned maps that are missing.
    pub(crate) fn load(folder: &Folder) -> Result<Self, NicError> {
        load(folder, GUARD, None).map(Self).map_err(NicError::kernel("load the guard and the maps"))
    }

    fn run<R>(&self, with: impl FnOnce(BorrowedFd<'_>) -> R) -> R {
        let mut programs = self.0.progs();
        let program = programs.find(|program| program.name() == GUARD).expect("the object has this program");
        with(program.as_fd())
    }

    /// Closes an interface, if it is open.
    pub(crate) fn close(&self, interface: &Interface) -> Result<(), NicError> {
        let close = |program: BorrowedFd<'_>| match guard::is_closed(program, interface.index) {
            true => Ok(()),
            false => guard::close(program, interface.index),
        };
        self.run(close).map_err(|source| NicError::Port {
            step: "close the host's own way to",
            interface: interface.name.clone(),
            remedy: "; the kernel needs clsact and BPF filters (CONFIG_NET_CLS_ACT, CONFIG_NET_CLS_BPF)",
            source,
        })
    }

    /// Opens an interface, if it is closed.
    pub(crate) fn open(&self, interface: &str, index: u32) -> Result<(), NicError> {
        let open = |program: BorrowedFd<'_>| match guard::is_closed(program, index) {
            true => guard::open(program, index),
            false => Ok(()),
        };
        let interface = interface.to_owned();
        let failed =
            |source| NicError::Port { step: "open the host's own way to", interface, remedy: "", source };
        self.run(open).map_err(failed)
    }
}
