//! What each party demands, and the errors of both when it is not met.

use std::sync::Arc;

use super::parties::{HOSTILE, HonestImage, NoTee, Party, Tee, assert_agreed, at, attested, binding, key};
use crate::binding::Role;
use crate::config::{Config, Now};
use crate::crypto::Curve;
use crate::error::{HandshakeError, RefusalReason};
use crate::evidence::{Prover, ProverError};
use crate::message::EVIDENCE_LIMIT;
use crate::session::{MAX_LEAD_NS, Renewal, SessionLimits};
use crate::trust::Trust;

const CURVE: Curve = Curve::X25519;

fn honest(seed: u64) -> Config {
    attested(CURVE, binding(1, 1), seed)
}

fn without_tee(seed: u64, trust: Trust) -> Config {
    Config::new(binding(1, 1), key(CURVE, seed), trust).with_judge(Arc::new(HonestImage))
}

/// Runs a handshake without a host.
fn run(initiator: Config, responder: Config) -> (Party, Party) {
    run_at(initiator, responder, at(1))
}

/// Runs a handshake of which each message comes at `now`.
fn run_at(initiator: Config, responder: Config, now: Now) -> (Party, Party) {
    let (mut i, first) = Party::new(Role::Initiator, initiator, 1, at(0));
    let (mut r, _) = Party::new(Role::Responder, responder, 2, at(0));
    let mut to_r = first;
    while let Some(sent) = to_r {
        to_r = r.handle(&sent, now).and_then(|answer| i.handle(&answer, now));
    }
    (i, r)
}

fn errors(initiator: Config, responder: Config) -> (HandshakeError, HandshakeError) {
    let (i, r) = run(initiator, responder);
    assert!(i.session.is_none() && r.session.is_none(), "a session in spite of an error");
    (i.error.expect("the initiator has an error"), r.error.expect("the responder has an error"))
}

#[test]
fn an_attested_p4_vm_and_a_pinned_workstation_agree() {
    let workstation = key(CURVE, 1).public();
    let responder = Config { trust: Trust::pinned(workstation), ..honest(2) };
    let (i, r) = run(without_tee(1, Trust::attested()), responder);
    let (a, b) = (i.session.unwrap(), r.session.unwrap());
    assert_agreed(&a, &b);
    assert!(a.standing().is_attested() && !a.standing().is_pinned());
    assert!(!b.standing().is_attested() && b.standing().is_pinned());
    assert_eq!(b.peer(), workstation);
}

#[test]
fn two_pinned_parties_agree_without_evidence() {
    let (i, r) = (key(CURVE, 1).public(), key(CURVE, 2).public());
    let (i, r) = run(without_tee(1, Trust::pinned(r)), without_tee(2, Trust::pinned(i)));
    assert_agreed(&i.session.unwrap(), &r.session.unwrap());
}

#[test]
fn another_key_than_the_pinned_one_is_refused() {
    let other = key(CURVE, 3).public();
    let responder = Config { trust: Trust::pinned(other), ..honest(2) };
    let (i, r) = errors(without_tee(1, Trust::attested()), responder);
    assert_eq!(i, HandshakeError::RefusedByPeer(RefusalReason::Key));
    assert_eq!(r, HandshakeError::WrongKey { expected: other, found: key(CURVE, 1).public() });
    // The initiator cannot know whether the host answered first: it waits for the right key.
    let (i, r) = run(without_tee(1, Trust::pinned(other)), honest(2));
    assert!(i.session.is_none() && r.session.is_none());
}

/// The host answers faster than the P4 VM, with a key of its own.
#[test]
fn a_false_answer_does_not_displace_the_pinned_one() {
    let genuine = key(CURVE, 2).public();
    let (mut i, first) =
        Party::new(Role::Initiator, without_tee(1, Trust::attested().and_pinned(genuine)), 1, at(0));
    let responder = Config { trust: Trust::pinned(key(CURVE, 1).public()), ..honest(2) };
    let (mut r, _) = Party::new(Role::Responder, responder, 2, at(0));
    let (mut host, _) = Party::new(Role::Responder, without_tee(9, Trust::unverified()), 9, at(0));
    let first = first.unwrap();
    let false_answer = host.handle(&first, at(1)).unwrap();
    assert_eq!(i.handle(&false_answer, at(1)), None);
    let mut to_r = Some(first);
    while let Some(sent) = to_r {
        to_r = r.handle(&sent, at(1)).and_then(|answer| i.handle(&answer, at(1)));
    }
    let session = i.session.unwrap();
    assert_agreed(&session, &r.session.unwrap());
    assert!(session.standing().is_pinned() && session.standing().is_attested());
}

#[test]
fn evidence_of_another_image_is_refused_by_either() {
    let hostile = |seed| honest(seed).with_prover(Arc::new(Tee(HOSTILE)));
    let (i, r) = errors(honest(1), hostile(2));
    assert!(matches!(i, HandshakeError::EvidenceRefused(_)), "{i}");
    assert_eq!(r, HandshakeError::RefusedByPeer(RefusalReason::Evidence));
    let (i, r) = errors(hostile(1), honest(2));
    assert_eq!(i, HandshakeError::RefusedByPeer(RefusalReason::Evidence));
    assert!(matches!(r, HandshakeError::EvidenceRefused(_)), "{r}");
}

#[test]
fn missing_and_sample_evidence_attests_nothing() {
    struct Sample;
    impl Prover for Sample {
        fn evidence(&self, _: &[u8; 64]) -> Result<Vec<u8>, ProverError> {
            Ok(b"sample".to_vec())
        }
    }
    let sample = || without_tee(2, Trust::attested()).with_prover(Arc::new(Sample));
    for responder in [without_tee(2, Trust::attested()), sample()] {
        let (i, r) = errors(honest(1), responder);
        assert_eq!(i, HandshakeError::NotAttested);
        assert_eq!(r, HandshakeError::RefusedByPeer(RefusalReason::NotAttested));
    }
    let (i, r) = errors(without_tee(1, Trust::attested()), honest(2));
    assert_eq!(i, HandshakeError::RefusedByPeer(RefusalReason::NotAttested));
    assert_eq!(r, HandshakeError::NotAttested);
}

#[test]
fn unverified_sessions_need_the_consent_of_both() {
    let (i, r) = run(without_tee(1, Trust::unverified()), without_tee(2, Trust::unverified()));
    let (a, b) = (i.session.unwrap(), r.session.unwrap());
    assert_agreed(&a, &b);
    for session in [&a, &b] {
        assert!(!session.standing().is_verified());
        assert!(session.standing().to_string().contains("not attested"));
    }
    let pinning = || without_tee(2, Trust::pinned(key(CURVE, 1).public()));
    let (i, r) = errors(without_tee(1, Trust::unverified()), pinning());
    assert_eq!(i, HandshakeError::Unverified { by_peer: true });
    assert_eq!(r, HandshakeError::RefusedByPeer(RefusalReason::Unverified));
    // A P4 VM without hardware that consents, and knows its workstation.
    let trust = Trust::pinned(key(CURVE, 1).public()).and_unverified();
    let (i, r) = run(without_tee(1, Trust::unverified()), without_tee(2, trust));
    assert!(!i.session.unwrap().standing().is_verified());
    assert!(r.session.unwrap().standing().is_pinned());
}

#[test]
fn a_party_that_cannot_prove_says_so() {
    let broken = |seed| honest(seed).with_prover(Arc::new(NoTee));
    let (i, r) = errors(honest(1), broken(2));
    assert_eq!(i, HandshakeError::RefusedByPeer(RefusalReason::NoEvidence));
    assert!(matches!(r, HandshakeError::Prover(_)), "{r}");
    let (i, r) = errors(broken(1), honest(2));
    assert!(matches!(i, HandshakeError::Prover(_)), "{i}");
    assert_eq!(r, HandshakeError::RefusedByPeer(RefusalReason::NoEvidence));
}

#[test]
fn evidence_of_any_length_fits_or_is_an_error() {
    struct Long(usize);
    impl Prover for Long {
        fn evidence(&self, _: &[u8; 64]) -> Result<Vec<u8>, ProverError> {
            Ok(vec![7; self.0])
        }
    }
    let party = |seed, len| {
        Config::new(binding(1, 1), key(CURVE, seed), Trust::unverified()).with_prover(Arc::new(Long(len)))
    };
    let (i, r) = run(party(1, EVIDENCE_LIMIT), party(2, EVIDENCE_LIMIT));
    assert_agreed(&i.session.unwrap(), &r.session.unwrap());
    let (i, r) = errors(party(1, 0), party(2, EVIDENCE_LIMIT + 1));
    assert_eq!(i, HandshakeError::RefusedByPeer(RefusalReason::NoEvidence));
    assert!(matches!(r, HandshakeError::EvidenceTooLong { .. }), "{r}");
}

#[test]
fn epochs_rise_above_those_of_both_parties() {
    for (i, r, expected) in [(0, 0, 0), (5, 9, 9), (9, 5, 9)] {
        let (i, r) = run(honest(1).with_lowest_epoch(i), honest(2).with_lowest_epoch(r));
        let (a, b) = (i.session.unwrap(), r.session.unwrap());
        assert_agreed(&a, &b);
        assert_eq!(a.epoch(), expected);
    }
}

/// A peer of which nothing is verified proposes the highest epoch, and an honest P4 VM comes after it.
#[test]
fn no_peer_makes_later_handshakes_impossible() {
    let anyone = |seed, epoch| without_tee(seed, Trust::unverified()).with_lowest_epoch(epoch);
    let clock = at(0).unix_s * 1_000_000_000;
    for proposal in [0, clock, clock + MAX_LEAD_NS, clock + MAX_LEAD_NS + 1, 1 << 63, u64::MAX] {
        let (i, _) = run(anyone(1, clock), anyone(2, proposal));
        let kept = i.session.map_or(clock, |session| session.epoch() + 1);
        let a_second_later = Now { unix_s: at(0).unix_s + 1, ..at(1) };
        let (i, r) = run_at(anyone(1, kept), anyone(3, clock), a_second_later);
        assert_agreed(&i.session.expect("an honest P4 VM agrees"), &r.session.unwrap());
    }
}

#[test]
fn an_epoch_far_above_the_clock_is_refused_by_name() {
    let clock = at(0).unix_s * 1_000_000_000;
    let (i, r) = errors(honest(1), honest(2).with_lowest_epoch(clock + MAX_LEAD_NS + 1));
    assert!(matches!(i, HandshakeError::EpochAhead { .. }) && i.to_string().contains("clock"), "{i}");
    assert_eq!(r, HandshakeError::RefusedByPeer(RefusalReason::Epoch));
    // A clock that was set back refuses no epoch up to one that the party has seen itself.
    let seen = clock + 2 * MAX_LEAD_NS;
    let later = Now { unix_s: 2 * at(0).unix_s, ..at(1) };
    let (i, r) = run_at(honest(1).with_lowest_epoch(seen), honest(2).with_lowest_epoch(seen), at(1));
    assert_agreed(&i.session.unwrap(), &r.session.unwrap());
    let (i, r) = run_at(honest(1).with_lowest_epoch(seen), honest(2), later);
    assert_agreed(&i.session.unwrap(), &r.session.unwrap());
}

#[test]
fn sessions_are_renewed_by_time_and_count() {
    let limits = SessionLimits { age_ms: 1000, records: 50 };
    let (i, _) = run(honest(1).with_session_limits(limits), honest(2));
    let session = i.session.unwrap();
    assert_eq!(session.rekey_due(1, 0), None);
    assert_eq!(session.rekey_due(1000, 49), None, "it began at 1");
    assert_eq!(session.rekey_due(1001, 0), Some(Renewal::Age));
    assert_eq!(session.rekey_due(1, 50), Some(Renewal::Use));
}

/// Each start has ephemeral keys of its own: an old session's static keys and messages open nothing.
#[test]
fn every_handshake_has_new_keys_and_a_new_transcript() {
    let mut seen = std::collections::HashSet::new();
    for _ in 0..20 {
        let (mut i, first) = crate::Initiator::start(honest(1), at(0)).unwrap();
        let mut r = crate::Responder::new(honest(2)).unwrap();
        let mut to_r = Some(first);
        let mut sessions = Vec::new();
        let mut take = |step| match step {
            crate::Step::Done { session, send } => {
                sessions.push(*session);
                send
            }
            crate::Step::Send(sent) => Some(sent),
            other => panic!("{other:?}"),
        };
        while let Some(sent) = to_r {
            to_r = take(r.handle(&sent, at(1))).and_then(|answer| take(i.handle(&answer, at(1))));
        }
        assert_agreed(&sessions[0], &sessions[1]);
        assert!(seen.insert(*sessions[0].transcript()));
        assert!(super::parties::keys(&sessions[0]).into_iter().all(|key| seen.insert(key)));
    }
}
