//! The auditor's tap: a small kernel program that processes each frame of an interface.
//!
//! It counts frames, digests them and stores the digests (`src/bpf/tap.bpf.c`). It never changes or drops a
//! frame. It is attached
//!
//! * on ingress at native XDP, which runs before the kernel merges frames; at tc if the driver has no
//!   native XDP or another program uses it. Not at generic XDP, which also runs after merging and, unlike
//!   tc, cannot distinguish a merged packet from a single one;
//! * on egress at tc.
//!
//! At tc, the tap uses `tcx`, a link that ends with this process. Before Linux 6.6 it uses a `clsact` filter,
//! which is removed on drop.

mod link;
mod maps;
mod ring;

use std::net::IpAddr;

use libbpf_rs::{MapCore, MapFlags, MapHandle, ObjectBuilder};
use p4shield_abi::Direction;

use crate::audit::Counts;
use crate::audit::history::Histories;
use link::Attached;
use maps::{KEYS, Settings, Tally};
use ring::Ring;
use zeroize::Zeroizing;

/// The compiled program with the alignment that ELF requires.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/tap.bpf.o")));

/// Maximum number of addresses of a VM.
pub const MAX_ADDRESSES: usize = 1024;

/// Hook of the ingress program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hook {
    /// Native XDP if possible, else tc.
    #[default]
    Auto,
    /// tc only, which leaves XDP to other programs.
    Tc,
}

/// Configuration of a tap.
#[derive(Clone, Copy, Debug)]
pub struct TapConfig<'a> {
    /// The interface's name, in the network namespace of the calling thread.
    pub interface: &'a str,
    /// The VM's addresses. Frames without one of them on the VM's side count as "others". If the list is
    /// empty, the port is the VM's own, and every frame counts but those that no program judges.
    pub addresses: &'a [IpAddr],
    /// Keys of the packet digest, by their numbers.
    pub keys: [Option<&'a [u8; 16]>; 2],
    /// Header bytes that the P4 VM has of a packet: digests cover no more.
    pub cover: u32,
    /// Hook on ingress.
    pub hook: Hook,
}

/// Reason why a tap is not available.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TapError {
    /// The interface does not exist.
    #[error("interface {interface} does not exist: `ip link` lists the interfaces")]
    NoInterface {
        /// Name of the interface.
        interface: String,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The VM has more addresses than the map can hold.
    #[error("{0} addresses exceed the limit of {MAX_ADDRESSES} per VM")]
    Addresses(usize),
    /// The kernel refuses the program or an operation on it.
    #[error("cannot {doing} the tap: CAP_BPF, CAP_NET_ADMIN and Linux 5.18 or later are required")]
    Kernel {
        /// The operation.
        doing: &'static str,
        /// The kernel's error.
        #[source]
        source: libbpf_rs::Error,
    },
    /// A map differs from the program's source.
    #[error("the tap's map {0} does not match this version")]
    Map(&'static str),
    /// The history cannot be mapped.
    #[error("cannot map the tap's history")]
    History(#[source] std::io::Error),
}

fn kernel(doing: &'static str) -> impl FnOnce(libbpf_rs::Error) -> TapError {
    move |source| TapError::Kernel { doing, source }
}

/// An attached tap. Dropping it detaches it.
pub struct Tap {
    settings: MapHandle,
    tallies: MapHandle,
    ring: Ring,
    config: Settings,
    links: Vec<Attached>,
    index: u32,
}

impl Tap {
    /// Loads the program and attaches it in both directions.
    ///
    /// # Errors
    ///
    /// If the interface does not exist or the kernel refuses the tap. The caller then uses counters.
    pub fn attach(config: &TapConfig<'_>) -> Result<Self, TapError> {
        if config.addresses.len() > MAX_ADDRESSES {
            return Err(TapError::Addresses(config.addresses.len()));
        }
        let index = crate::interface::index(config.interface)
            .map_err(|source| TapError::NoInterface { interface: config.interface.to_owned(), source })?;
        libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Debug, |_, line| {
            tracing::debug!(target: "libbpf", "{}", line.trim_end());
        })));
        let object = ObjectBuilder::default()
            .open_memory(&OBJECT.0)
            .and_then(libbpf_rs::OpenObject::load)
            .map_err(kernel("load"))?;
        let map = |name: &'static str| {
            let map = object.maps().find(|m| m.name() == name).ok_or(TapError::Map(name))?;
            MapHandle::try_from(&map).map_err(kernel("open a map of"))
        };
        let addresses = map("addresses")?;
        for address in config.addresses {
            let key = maps::address_key(*address);
            addresses.update(&key, &[1], MapFlags::ANY).map_err(kernel("configure the addresses of"))?;
        }
        let every_ip = config.addresses.is_empty();
        let keys = config.keys.map(|key| key.map(|key| Zeroizing::new(*key)));
        let settings = Settings { keys, cover: config.cover, every_ip };
        let tap_settings = map("settings")?;
        settings.store(&tap_settings)?;
        let tallies = map("tallies")?;
        let ring = Ring::map(&map("histories")?)?;
        let links = link::attach(&object, index, config.hook)?;
        Ok(Self { settings: tap_settings, tallies, ring, config: settings, links, index })
    }

    /// Returns the hooks of the tap: `"ingress at xdp, egress at tcx"`.
    #[must_use]
    pub fn place(&self) -> String {
        let places: Vec<String> = self.links.iter().map(ToString::to_string).collect();
        places.join(", ")
    }

    /// Returns the interface's index at the time of attachment. A re-created interface has another one.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Returns how many bytes of a packet a digest covers.
    #[must_use]
    pub const fn cover(&self) -> u32 {
        self.config.cover
    }

    /// Changes how many bytes a digest covers. Sums before and after are not comparable.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub fn set_cover(&mut self, cover: u32) -> Result<(), TapError> {
        self.config.cover = cover;
        self.config.store(&self.settings)
    }

    /// Digests packets from now on with key number `key` (0 or 1), too. Digests with another are not
    /// interrupted.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub fn use_key(&mut self, key: usize, bytes: &[u8; 16]) -> Result<(), TapError> {
        self.stop_key(key)?;
        // A packet that is digested meanwhile must not find half a key.
        let mut settings = self.config.clone();
        settings.keys[key % KEYS] = Some(Zeroizing::new(*bytes));
        settings.store_unused(&self.settings, key % KEYS)?;
        settings.store(&self.settings)?;
        self.config = settings;
        Ok(())
    }

    /// Digests packets no longer with key number `key`.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub fn stop_key(&mut self, key: usize) -> Result<(), TapError> {
        self.config.keys[key % KEYS] = None;
        self.config.store(&self.settings)
    }

    /// Returns the counts of one direction.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub fn counts(&self, direction: Direction) -> Result<Counts, TapError> {
        self.tally(direction).map(|t| t.counts)
    }

    /// Returns the counts and updates `histories`, one of each key, which must always be used with this tap
    /// and direction.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub fn observe(&self, direction: Direction, histories: &mut Histories) -> Result<Counts, TapError> {
        let before = self.tally(direction)?;
        let mut failed = None;
        for (key, history) in histories.iter_mut().enumerate() {
            history.follow(
                before.counts.packets,
                |i| self.ring.load(direction, key, i),
                || {
                    self.tally(direction)
                        .map(|t| t.counts.packets)
                        .map_err(|e| failed = Some(e))
                        .unwrap_or(u64::MAX)
                },
            );
        }
        failed.map_or(Ok(before.counts), Err)
    }

    fn tally(&self, direction: Direction) -> Result<Tally, TapError> {
        Tally::load(&self.tallies, direction)
    }
}

#[cfg(test)]
mod tests;
