//! The auditor's eyes: a small program in the kernel that sees each frame of an interface.
//!
//! It counts, digests and remembers (`src/bpf/tap.bpf.c`); it never changes or drops a frame. It is attached
//!
//! * on ingress at native XDP, which sees frames before the kernel merges them; where the driver has none or another
//!   program is there already, at tc. Not at generic XDP: that runs after merging too, and cannot tell a merged
//!   packet from a single one, which tc can;
//! * on egress at tc.
//!
//! At tc, `tcx` is preferred: it is a link that vanishes with this process. Before Linux 6.6 a `clsact` filter does,
//! removed on drop.

mod link;
mod maps;
mod ring;

use std::net::IpAddr;

use libbpf_rs::{MapCore, MapFlags, MapHandle, ObjectBuilder};
use p4shield_abi::Direction;

use crate::audit::Counts;
use crate::audit::history::History;
use link::Attached;
use maps::{Settings, Tally};
use ring::Ring;

/// The compiled program, aligned as ELF wants it.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/tap.bpf.o")));

/// Most addresses of a VM.
pub const ADDRESSES: usize = 1024;

/// Where the ingress part is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hook {
    /// Native XDP, else tc.
    #[default]
    Auto,
    /// tc only: leaves XDP to others.
    Tc,
}

/// What a tap is to see.
#[derive(Clone, Copy, Debug)]
pub struct TapConfig<'a> {
    /// The interface's name, in the network namespace of the calling thread.
    pub interface: &'a str,
    /// The VM's addresses. IP frames with none of them on the VM's side are "others"; if it is empty, none are.
    pub addresses: &'a [IpAddr],
    /// Key of the packet digest.
    pub key: &'a [u8; 16],
    /// Bytes of a packet that a digest covers.
    pub cover: u32,
    /// Where to attach on ingress.
    pub hook: Hook,
}

/// Why there is no tap.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TapError {
    /// There is no such interface.
    #[error("there is no interface {interface}; `ip link` lists them")]
    NoInterface {
        /// Its name.
        interface: String,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// More addresses than the map holds.
    #[error("{0} addresses are more than the {ADDRESSES} that one VM may have")]
    Addresses(usize),
    /// The kernel did not take the program, or did not answer about it.
    #[error("cannot {doing} the tap; it needs CAP_BPF and CAP_NET_ADMIN, and Linux 5.18 or later")]
    Kernel {
        /// What was tried.
        doing: &'static str,
        /// The kernel's reason.
        #[source]
        source: libbpf_rs::Error,
    },
    /// A map is not as the program's source has it.
    #[error("the tap's map {0} is not what this version expects")]
    Map(&'static str),
    /// Memory of the history could not be mapped.
    #[error("cannot map the tap's history")]
    History(#[source] std::io::Error),
}

fn kernel(doing: &'static str) -> impl FnOnce(libbpf_rs::Error) -> TapError {
    move |source| TapError::Kernel { doing, source }
}

/// An attached tap; detached when dropped.
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
    /// When there is no such interface, or the kernel refuses; the caller then falls back to counters.
    pub fn attach(config: &TapConfig<'_>) -> Result<Self, TapError> {
        if config.addresses.len() > ADDRESSES {
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
            addresses.update(&key, &[1], MapFlags::ANY).map_err(kernel("tell addresses to"))?;
        }
        let every_ip = config.addresses.is_empty();
        let settings = Settings { key: *config.key, cover: config.cover, every_ip };
        let tap_settings = map("settings")?;
        settings.store(&tap_settings)?;
        let tallies = map("tallies")?;
        let ring = Ring::map(&map("histories")?)?;
        let links = link::attach(&object, index, config.hook)?;
        Ok(Self { settings: tap_settings, tallies, ring, config: settings, links, index })
    }

    /// Where it is attached, for the user: `"ingress at xdp, egress at tcx"`.
    #[must_use]
    pub fn place(&self) -> String {
        let places: Vec<String> = self.links.iter().map(ToString::to_string).collect();
        places.join(", ")
    }

    /// The interface's number when it was attached; a new one means a new interface.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Bytes of a packet that digests cover now.
    #[must_use]
    pub const fn cover(&self) -> u32 {
        self.config.cover
    }

    /// Changes how many bytes digests cover. Sums before and after do not go together.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn set_cover(&mut self, cover: u32) -> Result<(), TapError> {
        self.config.cover = cover;
        self.config.store(&self.settings)
    }

    /// What was counted in one direction.
    ///
    /// # Errors
    ///
    /// When the kernel does not answer.
    pub fn counts(&self, direction: Direction) -> Result<Counts, TapError> {
        self.tally(direction).map(|t| t.counts)
    }

    /// What was counted, and the history that goes with it: `history` follows this tap and direction, and no other.
    ///
    /// # Errors
    ///
    /// When the kernel does not answer.
    pub fn observe(&self, direction: Direction, history: &mut History) -> Result<Counts, TapError> {
        let before = self.tally(direction)?;
        let mut failed = None;
        history.follow(
            before.counts.packets,
            |i| self.ring.load(direction, i),
            || {
                self.tally(direction)
                    .map(|t| t.counts.packets)
                    .map_err(|e| failed = Some(e))
                    .unwrap_or(u64::MAX)
            },
        );
        history.forget_before(before.whole_since);
        failed.map_or(Ok(before.counts), Err)
    }

    fn tally(&self, direction: Direction) -> Result<Tally, TapError> {
        Tally::load(&self.tallies, direction)
    }
}
