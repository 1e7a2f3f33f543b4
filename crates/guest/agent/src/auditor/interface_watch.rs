//! The packets that the interface counted: by the tap, or, without the rights for it, by the kernel.

use p4shield_abi::Direction;
use p4shield_abi::log_page::DIGEST_HEADER_BYTES;
use p4shield_seal::{Now, PacketDigest};

use super::{AuditError, Event};
use crate::audit::finding::Finding;
use crate::audit::history::{Histories, History};
use crate::audit::{Audit, Counts, Method};
use crate::collect::parse::{Counters, net_dev};
use crate::config::AuditConfig;
use crate::interface;
use crate::tap::{Tap, TapConfig, TapError};

/// An audited interface. If it is re-created, its counts continue.
pub(super) struct InterfaceWatch {
    config: AuditConfig,
    /// By number of the key: what packets are digested with.
    digests: [Option<PacketDigest>; 2],
    /// Number of the key that the log has.
    key: usize,
    source: CountSource,
    /// Whether the present interface, or the last one, has a tap.
    has_tap: bool,
    /// Counts of previous interfaces of this name, by direction.
    before: [Counts; 2],
    /// By direction.
    histories: [Histories; 2],
    /// Packets before these have another length of digests.
    since: [u64; 2],
    /// The newest hooks of a tap.
    place: String,
}

enum CountSource {
    Tap {
        tap: Box<Tap>,
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
        let digests = [Some(digest), None];
        let source = open(config, &digests, DIGEST_HEADER_BYTES as u32)?;
        let place = source.place();
        let (config, (before, histories)) = (config.clone(), Default::default());
        let has_tap = source.has_tap();
        Ok(Self { config, digests, key: 0, source, has_tap, before, histories, since: [0; 2], place })
    }

    /// Returns what the interface shows of its packets.
    pub(super) const fn method(&self) -> Method {
        if self.has_tap { Method::Digests } else { Method::Counters }
    }

    /// Returns the event that starts the audit: the interface, and the limitations.
    pub(super) fn started_event(&self) -> Event {
        let interface = &self.config.interface;
        match &self.source {
            CountSource::Tap { tap } => {
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

    /// Digests packets with another key, too.
    pub(super) fn rotate(&mut self, digest: PacketDigest) {
        let other = self.key ^ 1;
        if let CountSource::Tap { tap } = &mut self.source
            && let Err(error) = tap.use_key(other, digest.expose_key())
        {
            tracing::warn!(
                event = "tap_key_failed",
                %error,
                "cannot digest packets with the new key: they are not compared"
            );
        }
        self.digests[other] = Some(digest);
    }

    /// Digests packets with the newer key only.
    pub(super) fn finish_rotation(&mut self) {
        let old = self.key;
        self.key ^= 1;
        self.digests[old] = None;
        if let CountSource::Tap { tap } = &mut self.source
            && let Err(error) = tap.stop_key(old)
        {
            tracing::warn!(
                event = "tap_key_failed",
                %error,
                "packets are still digested with the old key, too"
            );
        }
    }

    /// Reopens a re-created interface, and sets the length of digests to `cover` from the P4 VM's record.
    pub(super) fn refresh(&mut self, cover: Option<u32>) -> Vec<Finding> {
        let index = interface::index(&self.config.interface).unwrap_or(0);
        let cover = cover.map(|c| c.min(DIGEST_HEADER_BYTES as u32));
        let watched = match &mut self.source {
            CountSource::Tap { tap } => {
                if let Some(cover) = cover.filter(|c| *c != tap.cover()) {
                    change_cover(tap, &mut self.since, &self.histories, cover);
                }
                tap.index()
            }
            CountSource::Counters { index, .. } => *index,
            CountSource::Missing => 0,
        };
        if watched == index { Vec::new() } else { self.reopen(index, cover) }
    }

    fn reopen(&mut self, index: u32, cover: Option<u32>) -> Vec<Finding> {
        self.finish();
        if index == 0 {
            tracing::warn!(
                event = "audit_interface_gone",
                interface = self.config.interface,
                "the interface is gone"
            );
            return Vec::new();
        }
        match open(&self.config, &self.digests, cover.unwrap_or(DIGEST_HEADER_BYTES as u32)) {
            Ok(source) => {
                self.has_tap = source.has_tap();
                self.source = source;
            }
            Err(error) => {
                tracing::warn!(
                    event = "audit_interface_gone",
                    %error,
                    "the interface is not available at present"
                );
                return Vec::new();
            }
        }
        tracing::info!(
            event = "audit_interface_back",
            interface = self.config.interface,
            "auditing the re-created interface"
        );
        let mut findings = vec![Finding::Replugged];
        let place = self.source.place();
        if place != self.place {
            let from = std::mem::replace(&mut self.place, place.clone());
            findings.push(Finding::TapMoved { from, to: place });
        }
        findings.extend(self.unseen());
        findings
    }

    /// Takes the last counts of an interface that is gone over.
    fn finish(&mut self) {
        for direction in Direction::ALL {
            let d = direction as usize;
            if let Some(counts) = self.counts(direction) {
                self.before[d] = counts;
            }
            self.histories[d].iter_mut().for_each(History::continue_with_new_ring);
        }
        self.source = CountSource::Missing;
    }

    /// Reports the frames that the new interface counted before its tap did.
    fn unseen(&mut self) -> Vec<Finding> {
        let Some(counters) = counters(&self.config.interface) else { return Vec::new() };
        let tap = match &mut self.source {
            CountSource::Tap { tap } => tap,
            CountSource::Counters { base, .. } => {
                // All of them are audited.
                *base = Counters::default();
                return Vec::new();
            }
            CountSource::Missing => return Vec::new(),
        };
        let all = [counters.rx_packets, counters.tx_packets];
        let seen = |d| tap.counts(d).map_or(0, |c: Counts| c.packets + c.others);
        let unseen = Direction::ALL.map(|d| (d, all[d as usize].saturating_sub(seen(d))));
        let audited = self.config.directions();
        unseen
            .into_iter()
            .filter(|(direction, frames)| *frames > 0 && audited.contains(direction))
            .map(|(direction, frames)| Finding::Unseen { direction, frames })
            .collect()
    }

    /// Passes the counts of one direction to the audit engine.
    pub(super) fn observe(&mut self, now: Now, direction: Direction, audit: &mut Audit) {
        let Some(counts) = self.counts(direction) else { return };
        let history = self.has_tap.then_some(&self.histories[direction as usize]);
        audit.observe(now, direction, counts, history);
    }

    /// Returns the counts of one direction since the audit began, and updates its history.
    fn counts(&mut self, direction: Direction) -> Option<Counts> {
        let d = direction as usize;
        let counts = match &mut self.source {
            CountSource::Tap { tap } => match tap.observe(direction, &mut self.histories[d]) {
                Ok(counts) => counts,
                Err(error) => {
                    tracing::warn!(event = "tap_unreadable", %error, "cannot read the tap");
                    return None;
                }
            },
            CountSource::Counters { base, .. } => {
                since_base(direction, &counters(&self.config.interface)?, base)
            }
            // Its last packets are still compared.
            CountSource::Missing => Counts::default(),
        };
        self.histories[d].iter_mut().for_each(|history| history.forget_before(self.since[d]));
        Some(self.before[d].and(counts))
    }
}

impl CountSource {
    const fn has_tap(&self) -> bool {
        matches!(self, Self::Tap { .. })
    }

    /// Returns the hooks of the tap.
    fn place(&self) -> String {
        match self {
            Self::Tap { tap } => tap.place(),
            Self::Counters { .. } => "the interface's counters".to_owned(),
            Self::Missing => String::new(),
        }
    }
}

/// Changes the length of digests. Earlier sums are not comparable with later ones.
fn change_cover(tap: &mut Tap, since: &mut [u64; 2], histories: &[Histories; 2], cover: u32) {
    if let Err(error) = tap.set_cover(cover) {
        tracing::warn!(
            event = "digest_length_failed",
            %error,
            "cannot change the length of digests: packets will seem swapped"
        );
    }
    for ((direction, since), [history, _]) in Direction::ALL.into_iter().zip(since).zip(histories) {
        if let Ok(counts) = tap.counts(direction) {
            // The tap may be processing a frame with the old length.
            *since = history.base() + counts.packets + 1;
        }
    }
}

fn open(
    config: &AuditConfig,
    digests: &[Option<PacketDigest>; 2],
    cover: u32,
) -> Result<CountSource, AuditError> {
    if config.counters_only {
        return open_counters(config, "as configured".to_owned());
    }
    let tap = Tap::attach(&TapConfig {
        interface: &config.interface,
        addresses: &config.addresses,
        keys: digests.each_ref().map(|digest| digest.as_ref().map(PacketDigest::expose_key)),
        cover,
        hook: config.hook,
    });
    match tap {
        Ok(tap) => Ok(CountSource::Tap { tap: Box::new(tap) }),
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
