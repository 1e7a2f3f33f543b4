//! A host with parties of two tenants, keys and evidence of its own, and every message ever sent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::parties::{
    Fence, HOSTILE, HonestImage, Loot, Party, Tee, Thief, assert_agreed, at, attested, binding, key, keys,
};
use crate::binding::{Binding, Role};
use crate::checks::Defect;
use crate::config::{Config, Limits};
use crate::crypto::Curve;
use crate::error::Awaited;
use crate::key::PublicKey;
use crate::session::MAX_LEAD_NS;
use crate::trust::Trust;

/// What every party accepts, as no clock of a test is earlier.
const HIGHEST_PROPOSAL: u64 = at(0).unix_s * 1_000_000_000 + MAX_LEAD_NS;

/// Random numbers (SplitMix64): the same ones for the same seed.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Returns a number below `n`.
    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// Who verifies whom how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pairing {
    /// Both have hardware.
    Attested,
    /// The initiator has a pinned key, the P4 VM has hardware.
    PinnedInitiator,
    /// Both have pinned keys.
    Pinned,
    /// The initiator demands nothing, the P4 VM knows its key but consents to nothing unverified.
    OneConsents,
    /// Neither demands anything.
    Unverified,
}

const PAIRINGS: [Pairing; 5] =
    [Pairing::Attested, Pairing::PinnedInitiator, Pairing::Pinned, Pairing::OneConsents, Pairing::Unverified];

/// A VM with the way in which it and its P4 VM verify each other.
#[derive(Clone, Copy, Debug)]
struct Place {
    binding: Binding,
    pairing: Pairing,
}

/// A party in the world.
struct Member {
    party: Party,
    role: Role,
    is_honest: bool,
    key: PublicKey,
    trust: Trust,
    /// The member to which the host relays its messages.
    partner: usize,
    /// Messages that wait to be relayed.
    outbox: Vec<Vec<u8>>,
}

/// How often what happened, to show that a search reaches it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) agreed: u64,
    pub(super) failed: u64,
    pub(super) hostile_agreed: u64,
    pub(super) delivered: u64,
}

pub(super) struct World {
    curve: Curve,
    defect: Defect,
    random: Random,
    now: u64,
    places: [Place; 4],
    members: Vec<Member>,
    sent: Vec<Vec<u8>>,
    loot: Loot,
    counts: Counts,
}

impl World {
    pub(super) fn new(seed: u64, curve: Curve, defect: Defect) -> Self {
        let mut random = Random(seed);
        let places = [(1, 1), (1, 2), (2, 1), (2, 2)].map(|(tenant, vm)| Place {
            binding: binding(tenant, vm),
            pairing: PAIRINGS[random.below(PAIRINGS.len())],
        });
        Self {
            curve,
            defect,
            random,
            now: 0,
            places,
            members: Vec::new(),
            sent: Vec::new(),
            loot: Arc::new(Mutex::new(Vec::new())),
            counts: Counts::default(),
        }
    }

    /// The static key of an honest party that keeps one: with pinned keys the same at each start.
    fn kept_key(place: usize, role: Role) -> u64 {
        10 + place as u64 * 2 + u64::from(role == Role::Responder)
    }

    fn honest(&mut self, place: usize, role: Role) -> Config {
        let Place { binding, pairing } = self.places[place];
        let pinned = |role| key(self.curve, Self::kept_key(place, role)).public();
        let own = key(self.curve, Self::kept_key(place, role));
        let plain = |trust| Config::new(binding, own.clone(), trust).with_judge(Arc::new(HonestImage));
        let config = match (pairing, role) {
            (Pairing::Attested, _) => attested(self.curve, binding, self.random.next() | 1 << 63),
            (Pairing::PinnedInitiator, Role::Initiator) => plain(Trust::attested()),
            (Pairing::PinnedInitiator, Role::Responder) => {
                let config = attested(self.curve, binding, self.random.next() | 1 << 63);
                Config { trust: Trust::pinned(pinned(Role::Initiator)), ..config }
            }
            (Pairing::Pinned, _) => plain(Trust::pinned(pinned(role.peer()))),
            (Pairing::OneConsents, Role::Responder) => plain(Trust::pinned(pinned(Role::Initiator))),
            (Pairing::OneConsents | Pairing::Unverified, _) => plain(Trust::unverified()),
        };
        let epoch = self.random.next() % HIGHEST_PROPOSAL;
        config.with_lowest_epoch(epoch)
    }

    /// A party of the host: it accepts everything, and presents what it has.
    fn hostile(&mut self, place: usize) -> Config {
        let number = self.random.next() % 4;
        let trust = if number < 2 { Trust::unverified() } else { Trust::attested() };
        let own = key(self.curve, 1000 + number);
        let config = Config::new(self.places[place].binding, own, trust)
            .with_judge(Arc::new(Thief(Arc::clone(&self.loot))))
            .with_lowest_epoch(self.random.next() % (HIGHEST_PROPOSAL + HIGHEST_PROPOSAL / 8));
        match self.random.below(4) {
            0 => config,
            1 => config.with_prover(Arc::new(Tee(HOSTILE))),
            _ => config.with_prover(Arc::new(Fence(Arc::clone(&self.loot)))),
        }
    }

    fn defect_of(&self, is_honest: bool) -> Defect {
        // What honest parties leave out under a defect, the host leaves out, too.
        let keeps = [Defect::IdentityUnbound, Defect::ConstantSecret, Defect::ChannelUnbound];
        if is_honest || keeps.contains(&self.defect) { self.defect } else { Defect::EvidenceOptional }
    }

    fn join(&mut self, config: Config, role: Role, is_honest: bool) -> usize {
        let limits = Limits { total_ms: 4000, resend_ms: 300, resends: 8, forgeries: 200 };
        let (key, trust) = (config.key.public(), config.trust);
        let seed = self.random.next();
        let config = config.with_limits(limits);
        let (party, first) = Party::with_defect(self.defect_of(is_honest), role, config, seed, at(self.now));
        let partner = self.members.len();
        let mut member = Member { party, role, is_honest, key, trust, partner, outbox: Vec::new() };
        self.sent.extend(first.clone());
        member.outbox.extend(first);
        self.members.push(member);
        partner
    }

    /// Adds parties of a place: the honest two, or a host in the middle of them.
    fn populate(&mut self) {
        let place = self.random.below(self.places.len());
        // At times the P4 VM of another place.
        let other = if self.random.one_in(4) { self.random.below(self.places.len()) } else { place };
        let config = self.honest(place, Role::Initiator);
        let i = self.join(config, Role::Initiator, true);
        let config = self.honest(other, Role::Responder);
        let r = self.join(config, Role::Responder, true);
        if self.random.one_in(2) {
            return self.pair(i, r);
        }
        let config = self.hostile(place);
        let false_r = self.join(config, Role::Responder, false);
        let config = self.hostile(other);
        let false_i = self.join(config, Role::Initiator, false);
        self.pair(i, false_r);
        self.pair(false_i, r);
    }

    fn pair(&mut self, a: usize, b: usize) {
        self.members[a].partner = b;
        self.members[b].partner = a;
    }

    fn deliver(&mut self, to: usize, bytes: &[u8]) {
        self.counts.delivered += 1;
        let member = &mut self.members[to];
        if let Some(answer) = member.party.handle(bytes, at(self.now)) {
            self.sent.push(answer.clone());
            member.outbox.push(answer);
        }
    }

    /// Delivers the oldest message of a random member to its partner.
    fn relay(&mut self) {
        let from = self.random.below(self.members.len());
        if !self.members[from].outbox.is_empty() {
            let message = self.members[from].outbox.remove(0);
            self.deliver(self.members[from].partner, &message);
        }
    }

    fn any_message(&mut self) -> Vec<u8> {
        let n = self.random.below(self.sent.len());
        self.sent[n].clone()
    }

    /// Returns a changed copy of a message.
    fn changed(&mut self) -> Vec<u8> {
        let mut message = self.any_message();
        let other = self.any_message();
        match self.random.below(6) {
            0 => {
                let at = self.random.below(message.len());
                message[at] ^= 1 << self.random.below(8);
            }
            1 => message.truncate(self.random.below(message.len())),
            2 => message.push(self.random.next() as u8),
            3 => message[4] = 1 + self.random.below(7) as u8,
            // Contents of one attempt under the number of another.
            4 => message[5..21].copy_from_slice(&other[5..21]),
            _ => {
                let at = self.random.below(message.len().min(other.len()));
                message[at..].iter_mut().zip(&other[at..]).for_each(|(to, from)| *to = *from);
            }
        }
        message
    }

    fn pass_time(&mut self, ms: u64) {
        self.now += ms;
        for n in 0..self.members.len() {
            let member = &mut self.members[n];
            if let Some(again) = member.party.poll(at(self.now)) {
                self.sent.push(again.clone());
                member.outbox.push(again);
            }
        }
    }

    fn act(&mut self) {
        let to = self.random.below(self.members.len());
        match self.random.below(100) {
            0..72 => self.relay(),
            72..80 => {
                let message = self.any_message();
                self.deliver(to, &message);
            }
            80..90 => {
                let message = self.changed();
                self.deliver(to, &message);
            }
            90..93 => {
                let partner = self.random.below(self.members.len());
                self.members[to].partner = partner;
            }
            93..95 => {
                self.members[to].outbox.pop();
            }
            95..98 => self.pass_time(310),
            _ if self.members.len() < 10 => self.populate(),
            _ => self.pass_time(1000),
        }
    }

    /// Plays `moves` moves, then checks everything.
    pub(super) fn play(mut self, moves: usize) -> Result<Counts, String> {
        self.populate();
        if self.random.one_in(2) {
            self.populate();
        }
        for _ in 0..moves {
            self.act();
        }
        self.pass_time(5000);
        self.check()?;
        Ok(self.counts)
    }

    fn check(&mut self) -> Result<(), String> {
        let mut by_key: HashMap<[u8; 32], [u8; 32]> = HashMap::new();
        let mut ends: HashMap<([u8; 32], Role), usize> = HashMap::new();
        for (n, member) in self.members.iter().enumerate() {
            if !matches!(member.party.machine.awaits(), Awaited::Nothing | Awaited::Beginning) {
                return Err(format!("member {n} hangs"));
            }
            let Some(session) = &member.party.session else {
                self.counts.failed += u64::from(member.party.error.is_some());
                continue;
            };
            if ends.insert((*session.transcript(), member.role), n).is_some() {
                return Err(format!("member {n} has a session that another one of its role has"));
            }
            for key in keys(session) {
                if by_key.insert(key, *session.transcript()).is_some_and(|t| t != *session.transcript()) {
                    return Err(format!("two sessions of member {n} and another share a key"));
                }
            }
        }
        for n in 0..self.members.len() {
            self.check_member(n, &ends)?;
        }
        Ok(())
    }

    fn check_member(&mut self, n: usize, ends: &HashMap<([u8; 32], Role), usize>) -> Result<(), String> {
        let member = &self.members[n];
        let (Some(session), true) = (&member.party.session, member.is_honest) else { return Ok(()) };
        let Some(peer) = self.members.iter().find(|m| m.key == session.peer()) else {
            return Err(format!("member {n} has a peer that does not exist"));
        };
        let other = ends.get(&(*session.transcript(), member.role.peer())).map(|at| &self.members[*at]);
        if session.standing().is_verified() {
            if !peer.is_honest {
                return Err(format!("the host is the verified peer of member {n}"));
            }
        } else if !(member.trust.allows_unverified() && peer.trust.allows_unverified()) {
            return Err(format!("member {n} has an unverified peer that did not consent"));
        }
        match other {
            None if member.role == Role::Initiator => {
                return Err(format!("initiator {n} has a session alone"));
            }
            None => {}
            Some(other) => {
                let theirs = other.party.session.as_ref().expect("only sessions are in the table");
                let same = session.binding() == theirs.binding()
                    && session.epoch() == theirs.epoch()
                    && keys(session) == keys(theirs)
                    && session.peer() == other.key
                    && theirs.peer() == member.key;
                if !same {
                    return Err(format!("the ends of the session of member {n} differ"));
                }
                assert_agreed(session, theirs);
            }
        }
        self.counts.agreed += u64::from(other.is_some_and(|other| other.is_honest));
        self.counts.hostile_agreed += u64::from(!peer.is_honest);
        Ok(())
    }
}
