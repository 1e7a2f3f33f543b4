//! What the interface saw: through the tap, or, without the rights for it, from the kernel's counters.

use p4shield_abi::Direction;
use p4shield_abi::log::DIGEST_BYTES;
use p4shield_seal::{Now, PacketDigest};

use super::{AuditError, Event};
use crate::audit::history::History;
use crate::audit::{Audit, Counts};
use crate::collect::parse::{Counters, net_dev};
use crate::config::AuditConfig;
use crate::interface;
use crate::tap::{Tap, TapConfig, TapError};

/// A watched interface.
pub(super) struct Witness {
    config: AuditConfig,
    digest: PacketDigest,
    eyes: Eyes,
}

enum Eyes {
    Tap {
        tap: Tap,
        histories: [History; 2],
        since: [u64; 2],
    },
    Counters {
        base: Counters,
        index: u32,
        why: String,
    },
    /// The interface is gone, and may come back.
    Closed,
}

impl Witness {
    pub(super) fn new(config: &AuditConfig, digest: PacketDigest) -> Result<Self, AuditError> {
        let eyes = open(config, &digest, DIGEST_BYTES as u32)?;
        Ok(Self { config: config.clone(), digest, eyes })
    }

    /// Whether frames that no mediator submits are counted apart.
    pub(super) const fn tells_others_apart(&self) -> bool {
        matches!(self.eyes, Eyes::Tap { .. })
    }

    /// Where it watches, and what it cannot see there.
    pub(super) fn introduce(&self) -> Event {
        let interface = &self.config.interface;
        match &self.eyes {
            Eyes::Tap { tap, .. } => {
                Event::Started { place: format!("{interface}, {}", tap.place()), blind: String::new() }
            }
            Eyes::Counters { why, .. } => Event::Started {
                place: format!("{interface}, its counters only ({why})"),
                blind: format!(
                    "swapped packets cannot be seen, and up to {} frames a second pass as ARP and the like",
                    self.config.unmediated_per_second
                ),
            },
            Eyes::Closed => Event::Started { place: format!("{interface} is gone"), blind: String::new() },
        }
    }

    /// Keeps watching the right interface with digests of the right length (`cover`, from the P4 VM's record). True:
    /// the counts begin anew.
    pub(super) fn watch(&mut self, cover: Option<u32>) -> bool {
        let index = interface::index(&self.config.interface).unwrap_or(0);
        let cover = cover.map(|c| c.min(DIGEST_BYTES as u32));
        let watched = match &mut self.eyes {
            Eyes::Tap { tap, since, .. } => {
                if let Some(cover) = cover.filter(|c| *c != tap.cover()) {
                    change_cover(tap, since, cover);
                }
                tap.index()
            }
            Eyes::Counters { index, .. } => *index,
            Eyes::Closed => 0,
        };
        if watched == index {
            return false;
        }
        let opened = open(&self.config, &self.digest, cover.unwrap_or(DIGEST_BYTES as u32));
        self.eyes = match opened {
            Ok(eyes) => {
                tracing::info!(interface = self.config.interface, "watching the interface anew");
                eyes
            }
            Err(error) => {
                tracing::warn!(%error, "the interface cannot be watched now");
                Eyes::Closed
            }
        };
        true
    }

    /// Tells the engine what was counted in one direction.
    pub(super) fn observe(&mut self, now: Now, direction: Direction, audit: &mut Audit) {
        match &mut self.eyes {
            Eyes::Tap { tap, histories, since } => {
                let history = &mut histories[direction as usize];
                match tap.observe(direction, history) {
                    Ok(counts) => {
                        history.forget_before(since[direction as usize]);
                        audit.observe(now, direction, counts, Some(history));
                    }
                    Err(error) => tracing::warn!(%error, "the tap does not answer"),
                }
            }
            Eyes::Counters { base, .. } => {
                if let Some(c) = counters(&self.config.interface) {
                    audit.observe(now, direction, since_base(direction, &c, base), None);
                }
            }
            Eyes::Closed => {}
        }
    }
}

/// Digests of another length begin: what was summed before does not go together with what comes.
fn change_cover(tap: &mut Tap, since: &mut [u64; 2], cover: u32) {
    if let Err(error) = tap.set_cover(cover) {
        tracing::warn!(%error, "digests keep their length and will not fit");
    }
    for (direction, since) in Direction::ALL.into_iter().zip(since) {
        if let Ok(counts) = tap.counts(direction) {
            // A frame may be half way through the tap with the old length.
            *since = counts.packets + 1;
        }
    }
}

fn open(config: &AuditConfig, digest: &PacketDigest, cover: u32) -> Result<Eyes, AuditError> {
    if config.counters_only {
        return open_counters(config, "as configured".to_owned());
    }
    let tap = Tap::attach(&TapConfig {
        interface: &config.interface,
        addresses: &config.addresses,
        key: digest.expose_key(),
        cover,
        hook: config.hook,
    });
    match tap {
        Ok(tap) => Ok(Eyes::Tap { tap, histories: Default::default(), since: [0; 2] }),
        Err(TapError::Kernel { doing, source }) => {
            open_counters(config, format!("the kernel refused to {doing} the tap: {source}"))
        }
        Err(other) => Err(other.into()),
    }
}

fn open_counters(config: &AuditConfig, why: String) -> Result<Eyes, AuditError> {
    let gone = || AuditError::NoInterface(config.interface.clone());
    let base = counters(&config.interface).ok_or_else(gone)?;
    let index = interface::index(&config.interface).map_err(|_| gone())?;
    Ok(Eyes::Counters { base, index, why })
}

fn counters(name: &str) -> Option<Counters> {
    net_dev(&std::fs::read_to_string("/proc/thread-self/net/dev").ok()?, name)
}

fn since_base(direction: Direction, c: &Counters, base: &Counters) -> Counts {
    let [packets, bytes] = match direction {
        Direction::Ingress => [(c.rx_packets, base.rx_packets), (c.rx_bytes, base.rx_bytes)],
        Direction::Egress => [(c.tx_packets, base.tx_packets), (c.tx_bytes, base.tx_bytes)],
    }
    .map(|(now, then)| now.saturating_sub(then));
    Counts { packets, bytes, ..Counts::default() }
}
