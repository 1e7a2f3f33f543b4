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

/// Attaches the program in the driver of an interface, and pins the link.
///
/// In the driver only: the kernel's generic XDP shows no VLAN tag that is in a packet's metadata and
/// redirects the packet with it, and from a port in a driver no frame can be redirected to an interface whose
/// driver has no XDP.
pub(crate) fn attach(folder: &Folder, interface: &Interface) -> Result<(), NicError> {
    let failed = |remedy, source| {
        let step = "attach the NIC switch's program to";
        NicError::Port { step, interface: interface.name.clone(), remedy, source }
    };
    if let Ok(object) = load(folder, TAGGED, Some(interface.index))
        && attach_program(&object, TAGGED, folder, interface).is_ok()
    {
        return Ok(());
    }
    // Before Linux 6.8, or a driver without XDP metadata: tags have to be in the frame. A veth's peer can
    // leave one in the metadata nevertheless; the redirect loses it, so that it is on no wire.
    ethtool::keep_received_tags(&interface.name)
        .map_err(|error| failed(": its driver takes VLAN tags out of frames, unseen", error.into()))?;
    let object = load(folder, PLAIN, None).map_err(|source| failed("", source))?;
    let attached = attach_program(&object, PLAIN, folder, interface);
    attached.map_err(|error| failed(p4shield_xdp::program::remedy(&error), error.into()))
}

fn attach_program(object: &Object, name: &str, folder: &Folder, to: &Interface) -> io::Result<()> {
    let mut programs = object.progs();
    let program = programs.find(|program| program.name() == name).expect("the object has this program");
    p4shield_xdp::program::attach_pinned(program.as_fd(), to.index, &folder.link(&to.name))
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
