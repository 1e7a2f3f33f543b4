//! The packets that the interface counted: by the tap, or, without the rights for it, by the kernel.

use p4shield_abi::Direction;
use p4shield_abi::log_page::DIGEST_BYTES;
use p4shield_seal::{Now, PacketDigest};

use super::{AuditError, Event};
use crate::audit::history::History;
use crate::audit::{Audit, Counts};
use crate::collect::parse::{Counters, net_dev};
use crate::config::AuditConfig;
use crate::interface;
use crate::tap::{Tap, TapConfig, TapError};

/// An audited interface.
pub(super) struct InterfaceWatch {
    config: AuditConfig,
    digest: PacketDigest,
    source: CountSource,
}

enum CountSource {
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
    /// The interface does not exist at present.
    Missing,
}

impl InterfaceWatch {
    pub(super) fn new(config: &AuditConfig, digest: PacketDigest) -> Result<Self, AuditError> {
        let source = open(config, &digest, DIGEST_BYTES as u32)?;
        Ok(Self { config: config.clone(), digest, source })
    }

    /// Returns whether frames that no mediator submits are counted separately.
    pub(super) const fn counts_others_separately(&self) -> bool {
        matches!(self.source, CountSource::Tap { .. })
    }

    /// Returns the event that starts the audit: the interface, and the limitations.
    pub(super) fn started_event(&self) -> Event {
        let interface = &self.config.interface;
        match &self.source {
            CountSource::Tap { tap, .. } => {
                Event::Started { place: format!("{interface}, {}", tap.place()), blind: String::new() }
            }
            CountSource::Counters { why, .. } => Event::Started {
                place: format!("{interface}, its counters only ({why})"),
                blind: format!(
                    "swapped packets are not detected, and up to {} frames per second may bypass the \
                     program as ARP",
                    self.config.unmediated_per_second
                ),
            },
            CountSource::Missing => {
                Event::Started { place: format!("{interface} is gone"), blind: String::new() }
            }
        }
    }

    /// Reopens a re-created interface, and sets the length of digests to `cover` from the P4 VM's record.
    /// Returns true if the counts start from zero.
    pub(super) fn refresh(&mut self, cover: Option<u32>) -> bool {
        let index = interface::index(&self.config.interface).unwrap_or(0);
        let cover = cover.map(|c| c.min(DIGEST_BYTES as u32));
        let watched = match &mut self.source {
            CountSource::Tap { tap, since, .. } => {
                if let Some(cover) = cover.filter(|c| *c != tap.cover()) {
                    change_cover(tap, since, cover);
                }
                tap.index()
            }
            CountSource::Counters { index, .. } => *index,
            CountSource::Missing => 0,
        };
        if watched == index {
            return false;
        }
        let opened = open(&self.config, &self.digest, cover.unwrap_or(DIGEST_BYTES as u32));
        self.source = match opened {
            Ok(source) => {
                tracing::info!(interface = self.config.interface, "auditing the re-created interface");
                source
            }
            Err(error) => {
                tracing::warn!(%error, "the interface is not available at present");
                CountSource::Missing
            }
        };
        true
    }

    /// Passes the counts of one direction to the audit engine.
    pub(super) fn observe(&mut self, now: Now, direction: Direction, audit: &mut Audit) {
        match &mut self.source {
            CountSource::Tap { tap, histories, since } => {
                let history = &mut histories[direction as usize];
                match tap.observe(direction, history) {
                    Ok(counts) => {
                        history.forget_before(since[direction as usize]);
                        audit.observe(now, direction, counts, Some(history));
                    }
                    Err(error) => tracing::warn!(%error, "cannot read the tap"),
                }
            }
            CountSource::Counters { base, .. } => {
                if let Some(c) = counters(&self.config.interface) {
                    audit.observe(now, direction, since_base(direction, &c, base), None);
                }
            }
            CountSource::Missing => {}
        }
    }
}

/// Changes the length of digests. Earlier sums are not comparable with later ones.
fn change_cover(tap: &mut Tap, since: &mut [u64; 2], cover: u32) {
    if let Err(error) = tap.set_cover(cover) {
        tracing::warn!(%error, "cannot change the length of digests: packets will seem swapped");
    }
    for (direction, since) in Direction::ALL.into_iter().zip(since) {
        if let Ok(counts) = tap.counts(direction) {
            // The tap may be processing a frame with the old length.
            *since = counts.packets + 1;
        }
    }
}

fn open(config: &AuditConfig, digest: &PacketDigest, cover: u32) -> Result<CountSource, AuditError> {
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
        Ok(tap) => Ok(CountSource::Tap { tap, histories: Default::default(), since: [0; 2] }),
        Err(TapError::Kernel { doing, source }) => {
            open_counters(config, format!("the kernel refused to {doing} the tap: {source}"))
        }
        Err(other) => Err(other.into()),
    }
}

fn open_counters(config: &AuditConfig, why: String) -> Result<CountSource, AuditError> {
    let gone = || AuditError::NoInterface(config.interface.clone());
    let base = counters(&config.interface).ok_or_else(gone)?;
    let index = interface::index(&config.interface).map_err(|_| gone())?;
    Ok(CountSource::Counters { base, index, why })
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
