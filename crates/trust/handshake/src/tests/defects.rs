//! Takes the place of the crate's checks in tests, where a party can have a defect. Without one, each check
//! is the product's.

#[path = "../checks.rs"]
mod real;

use std::cell::Cell;
use std::sync::Arc;

use hkdf::Hkdf;
use sha2::Sha256;

use crate::binding::{Binding, Role};
use crate::error::HandshakeError;
use crate::evidence::{Judge, Judgement, Standing};
use crate::key::PublicKey;
use crate::message::Introduction;
use crate::trust::Trust;

/// A defect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Defect {
    /// No defect.
    #[default]
    None,
    /// Any evidence counts as attested.
    EvidenceUnjudged,
    /// A peer without evidence passes although it is required.
    EvidenceOptional,
    /// Evidence is not bound to the exchange of keys.
    ChannelUnbound,
    /// Evidence is bound neither to the role nor to the key of its sender.
    RoleUnbound,
    /// Tenant, VM and configuration are no part of what is agreed.
    IdentityUnbound,
    /// The pinned key is not compared.
    PinIgnored,
    /// A party without verification is accepted although its peer did not agree to that.
    UnverifiedByOne,
    /// The initiator uses the keys before the responder has confirmed them.
    EarlyRelease,
    /// Each party takes the epoch that it proposed.
    OwnEpoch,
    /// The keys do not depend on what both parties chose at random.
    ConstantSecret,
}

impl Defect {
    /// All defects.
    pub(crate) const ALL: [Self; 10] = [
        Self::EvidenceUnjudged,
        Self::EvidenceOptional,
        Self::ChannelUnbound,
        Self::RoleUnbound,
        Self::IdentityUnbound,
        Self::PinIgnored,
        Self::UnverifiedByOne,
        Self::EarlyRelease,
        Self::OwnEpoch,
        Self::ConstantSecret,
    ];
}

thread_local! {
    /// The defect and the role of the party that this thread runs.
    static RUNNING: Cell<(Defect, Role)> = const { Cell::new((Defect::None, Role::Initiator)) };
}

fn defect() -> Defect {
    RUNNING.get().0
}

/// Runs a party with a defect.
pub(crate) fn with<T>(defect: Defect, role: Role, run: impl FnOnce() -> T) -> T {
    let before = RUNNING.replace((defect, role));
    let result = run();
    RUNNING.set(before);
    result
}

pub(crate) fn identity(binding: &Binding) -> Vec<u8> {
    if defect() == Defect::IdentityUnbound { Vec::new() } else { real::identity(binding) }
}

pub(crate) fn report_data(binding: &Binding, role: Role, hash: &[u8; 32], key: &PublicKey) -> [u8; 64] {
    let (name, identity) = (role.name().as_bytes(), identity(binding));
    match defect() {
        Defect::RoleUnbound => real::digest_of(b"", hash, b"", &identity),
        Defect::ChannelUnbound => real::digest_of(name, b"", b"", &identity),
        Defect::IdentityUnbound => real::digest_of(name, hash, &key.0, &identity),
        _ => real::report_data(binding, role, hash, key),
    }
}

pub(crate) fn judgement(
    judge: Option<&Arc<dyn Judge>>,
    evidence: &[u8],
    report_data: &[u8; 64],
    unix_s: u64,
) -> Result<Judgement, HandshakeError> {
    match defect() {
        Defect::EvidenceUnjudged => Ok(Judgement::Attested(String::new())),
        _ => real::judgement(judge, evidence, report_data, unix_s),
    }
}

pub(crate) fn key(trust: &Trust, found: PublicKey) -> Result<(), HandshakeError> {
    if defect() == Defect::PinIgnored { Ok(()) } else { real::key(trust, found) }
}

pub(crate) fn standing(
    trust: &Trust,
    judgement: Judgement,
    peer_allows_unverified: bool,
) -> Result<Standing, HandshakeError> {
    match (defect(), judgement) {
        (Defect::EvidenceOptional, Judgement::NotAttested) => {
            let decided = real::standing(trust, Judgement::Attested(String::new()), peer_allows_unverified);
            decided.map(|standing| Standing { claims: None, ..standing })
        }
        (Defect::UnverifiedByOne, judgement) => real::standing(trust, judgement, true),
        (_, judgement) => real::standing(trust, judgement, peer_allows_unverified),
    }
}

pub(crate) fn epoch(initiator: &Introduction, responder: &Introduction) -> u64 {
    match RUNNING.get() {
        (Defect::OwnEpoch, Role::Initiator) => initiator.lowest_epoch,
        (Defect::OwnEpoch, Role::Responder) => responder.lowest_epoch,
        _ => real::epoch(initiator, responder),
    }
}

pub(crate) fn secret(transcript: &[u8; 32], random: &[u8]) -> Hkdf<Sha256> {
    match defect() {
        Defect::ConstantSecret => Hkdf::new(None, &[0; 32]),
        _ => real::secret(transcript, random),
    }
}
