//! The decisions on which a handshake's security rests, one function each. Tests put a defect into the place
//! of each, and show that it is found.

use std::sync::Arc;

use hkdf::Hkdf;
use sha2::{Digest, Sha256, Sha512};

use crate::binding::{Binding, PROTOCOL, Role, joined};
use crate::error::HandshakeError;
use crate::evidence::{Judge, Judgement, Standing};
use crate::key::PublicKey;
use crate::message::Introduction;
use crate::trust::Trust;

/// Returns the bytes by which tenant, VM and configuration are part of what is agreed.
pub(crate) fn identity(binding: &Binding) -> Vec<u8> {
    binding.encode()
}

/// Returns the report data of the evidence of a party: what the hardware signs for it.
pub(crate) fn report_data(binding: &Binding, role: Role, hash: &[u8; 32], key: &PublicKey) -> [u8; 64] {
    digest_of(role.name().as_bytes(), hash, &key.0, &identity(binding))
}

/// Returns the report data that binds these parts.
pub(crate) fn digest_of(role: &[u8], hash: &[u8], key: &[u8], identity: &[u8]) -> [u8; 64] {
    Sha512::digest(joined(&[PROTOCOL, b"evidence", role, hash, key, identity])).into()
}

/// Judges the peer's evidence, which is empty if it has none.
pub(crate) fn judgement(
    judge: Option<&Arc<dyn Judge>>,
    evidence: &[u8],
    report_data: &[u8; 64],
    unix_s: u64,
) -> Result<Judgement, HandshakeError> {
    match judge {
        Some(judge) if !evidence.is_empty() => {
            judge.judge(evidence, report_data, unix_s).map_err(HandshakeError::EvidenceRefused)
        }
        _ => Ok(Judgement::NotAttested),
    }
}

/// Checks the key that the peer proved to have.
pub(crate) fn key(trust: &Trust, found: PublicKey) -> Result<(), HandshakeError> {
    trust.check_key(found)
}

/// Decides about a peer, whose key was checked.
pub(crate) fn standing(
    trust: &Trust,
    judgement: Judgement,
    peer_allows_unverified: bool,
) -> Result<Standing, HandshakeError> {
    trust.decide(judgement, peer_allows_unverified)
}

/// Returns the epoch of the session: not below the proposal of either party.
pub(crate) fn epoch(initiator: &Introduction, responder: &Introduction) -> u64 {
    initiator.lowest_epoch.max(responder.lowest_epoch)
}

/// Returns what the session's keys are derived from: the transcript, and what both parties chose at random.
pub(crate) fn secret(transcript: &[u8; 32], random: &[u8]) -> Hkdf<Sha256> {
    Hkdf::new(Some(transcript), random)
}
