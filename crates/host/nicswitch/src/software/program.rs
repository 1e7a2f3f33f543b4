//! The programs of an interface.

use std::hash::{DefaultHasher, Hasher as _};
use std::io;
use std::os::fd::AsFd;

use libbpf_rs::{Object, ObjectBuilder, Program};
use p4shield_afxdp::ethtool;
use p4shield_xdp::Interface;
use p4shield_xdp::guard::Guard;
use p4shield_xdp::program::{Place, attach_pinned, remedy};

use super::Hook;
use super::folder::Folder;
use super::maps;
use crate::NicError;

/// `BPF_F_XDP_DEV_BOUND_ONLY`: the program runs on one device and may call its driver's metadata functions.
const DEVICE_BOUND: u32 = 1 << 6;

/// Programs of `xdp.bpf.c`, and of `tc.bpf.c`, which has the guard, too.
const TAGGED: &str = "nic_tagged";
const PLAIN: &str = "nic_plain";
const GUARD: &str = "nic_guard";
const SWITCH: &str = "nic_switch";
const OUTWARD: &str = "nic_outward";

static IN_XDP: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/xdp.bpf.o"));
static IN_TC: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tc.bpf.o"));

/// Passes libbpf's messages to the log.
pub(crate) fn quiet() {
    static QUIET: std::sync::Once = std::sync::Once::new();
    QUIET.call_once(|| {
        let log = |_level, text: String| tracing::debug!("{}", text.trim_end());
        libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Info, log)));
    });
}

/// Loads programs with the pinned maps, which it pins if they are new; `device` is their only interface.
fn load(object: &[u8], folder: &Folder, names: &[&str], device: Option<u32>) -> libbpf_rs::Result<Object> {
    let mut open = ObjectBuilder::default().open_memory(object)?;
    for mut map in open.maps_mut() {
        if let Some(pinned) = maps::NAMES.into_iter().find(|pinned| map.name() == *pinned) {
            map.set_pin_path(folder.map(pinned))?;
        }
    }
    for mut program in open.progs_mut() {
        program.set_autoload(names.iter().any(|name| program.name() == *name));
        if let Some(device) = device {
            program.set_flags(DEVICE_BOUND);
            program.set_ifindex(device);
        }
    }
    open.load()
}

/// Passes an object's program.
fn with<R>(object: &Object, name: &str, then: impl FnOnce(&Program<'_>) -> R) -> R {
    let mut programs = object.progs();
    then(&programs.find(|program| program.name() == name).expect("the object has this program"))
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
    match load(IN_XDP, folder, &[TAGGED], Some(interface.index)) {
        Ok(object) => Ok(Loaded { object, name: TAGGED }),
        Err(_) => prepare_plain(folder, interface),
    }
}

/// Loads the program for Linux before 6.8, or a driver without XDP metadata: tags have to be in the frame. A
/// veth's peer can leave one in the metadata nevertheless; the redirect loses it, so that it is on no wire.
fn prepare_plain(folder: &Folder, interface: &Interface) -> Result<Loaded, NicError> {
    ethtool::keep_received_tags(&interface.name)
        .map_err(|error| failed(interface, ": its driver takes VLAN tags out of frames, unseen", error))?;
    let object = load(IN_XDP, folder, &[PLAIN], None).map_err(|source| failed(interface, "", source))?;
    Ok(Loaded { object, name: PLAIN })
}

fn failed(interface: &Interface, remedy: &'static str, source: impl Into<libbpf_rs::Error>) -> NicError {
    let step = "attach the NIC switch's program to";
    NicError::Port { step, interface: interface.name.clone(), remedy, source: source.into() }
}

impl Loaded {
    /// Puts the program in the place of the one that a pinned link attaches to its interface.
    pub(crate) fn replace(self, folder: &Folder, of: &Interface) -> Result<(), NicError> {
        match with(&self.object, self.name, |program| folder.replace(&of.name, program)) {
            Err(_) if self.name == TAGGED => prepare_plain(folder, of)?.replace(folder, of),
            replaced => replaced.map_err(|error| failed(of, "", error)),
        }
    }

    /// Attaches the program to its interface, and pins the link.
    pub(crate) fn attach(self, folder: &Folder, to: &Interface) -> Result<(), NicError> {
        match self.attach_to(folder, to) {
            Err(_) if self.name == TAGGED => prepare_plain(folder, to)?.attach(folder, to),
            attached => attached.map_err(|e| failed(to, remedy(&e), e)),
        }
    }

    fn attach_to(&self, folder: &Folder, to: &Interface) -> io::Result<()> {
        with(&self.object, self.name, |program| {
            attach_pinned(program.as_fd(), Place::Driver, to.index, &folder.link(&to.name))
        })
    }
}

/// The programs that are the same for all interfaces: the guard, which closes them to the host's own stack,
/// and in traffic control the switch.
#[derive(Debug)]
pub(crate) struct Shared {
    hook: Hook,
    object: Object,
}

impl Shared {
    /// Loads them, and makes the pinned maps that are missing.
    pub(crate) fn load(hook: Hook, folder: &Folder) -> Result<Self, NicError> {
        let object = match hook {
            Hook::Xdp => load(IN_XDP, folder, &[GUARD], None),
            Hook::TrafficControl { .. } => load(IN_TC, folder, &[SWITCH, GUARD, OUTWARD], None),
        };
        let object = object.map_err(NicError::kernel("load the programs and maps"))?;
        Ok(Self { hook, object })
    }

    /// Returns a number that differs between versions of the programs of this hook, and is not 0.
    pub(crate) fn version(&self) -> u32 {
        let mut hasher = DefaultHasher::new();
        hasher.write(match self.hook {
            Hook::Xdp => IN_XDP,
            Hook::TrafficControl { .. } => IN_TC,
        });
        hasher.finish() as u32 | 1
    }

    /// Puts the switch of traffic control in the place of the one that a pinned link attaches.
    pub(crate) fn replace(&self, folder: &Folder, of: &Interface) -> Result<(), NicError> {
        with(&self.object, SWITCH, |program| folder.replace(&of.name, program))
            .map_err(|error| failed(of, "", error))
    }

    /// Attaches the switch of traffic control to an interface, and pins the link.
    pub(crate) fn attach(&self, folder: &Folder, to: &Interface) -> Result<(), NicError> {
        let attach = |program: &Program<'_>| {
            attach_pinned(program.as_fd(), Place::Ingress, to.index, &folder.link(&to.name))
        };
        with(&self.object, SWITCH, attach).map_err(|error| failed(to, remedy(&error), error))
    }

    fn guard<R>(&self, then: impl FnOnce(Guard<'_>) -> R) -> R {
        with(&self.object, GUARD, |dropping| match self.hook {
            Hook::Xdp => then(Guard::dropping(dropping.as_fd())),
            Hook::TrafficControl { .. } => {
                with(&self.object, OUTWARD, |outward| then(Guard::passing(dropping.as_fd(), outward.as_fd())))
            }
        })
    }

    /// Closes an interface, if it is open or by a guard of another version.
    pub(crate) fn close(&self, interface: &Interface, renews: bool) -> Result<(), NicError> {
        let close = |guard: Guard<'_>| match guard.is_closed(interface.index) && !renews {
            true => Ok(()),
            false => guard.close(interface.index),
        };
        self.guard(close).map_err(|source| NicError::Port {
            step: "close the host's own way to",
            interface: interface.name.clone(),
            remedy: "; the kernel needs clsact and BPF filters (CONFIG_NET_CLS_ACT, CONFIG_NET_CLS_BPF)",
            source,
        })
    }

    /// Opens an interface, if it is closed.
    pub(crate) fn open(&self, interface: &str, index: u32) -> Result<(), NicError> {
        let open = |guard: Guard<'_>| match guard.is_closed(index) {
            true => guard.open(index),
            false => Ok(()),
        };
        let interface = interface.to_owned();
        let failed =
            |source| NicError::Port { step: "open the host's own way to", interface, remedy: "", source };
        self.guard(open).map_err(failed)
    }
}
