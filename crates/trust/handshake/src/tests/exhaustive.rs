//! Every message of a handshake, changed in every way that the host has. Real primitives.

use super::parties::{Party, assert_agreed, at, attested, binding};
use crate::binding::{Binding, Role, Subject};
use crate::config::Limits;
use crate::crypto::Curve;
use crate::error::{Awaited, HandshakeError, Ignored};
use crate::message::number;

const VM: Binding = binding(1, 1);
const MESSAGES: [u8; 6] = [1, 2, 3, 4, 5, 6];

fn pair(initiator: Binding, responder: Binding, seed: u64) -> (Party, Party, Vec<u8>) {
    let curve = Curve::X25519;
    let config = attested(curve, initiator, seed).with_lowest_epoch(70);
    let (i, first) = Party::new(Role::Initiator, config, seed, at(0));
    let config = attested(curve, responder, seed + 1).with_lowest_epoch(7);
    let (r, _) = Party::new(Role::Responder, config, seed + 1, at(0));
    (i, r, first.unwrap())
}

/// Runs a handshake to its end. `host` gets each message with its number and how often it came before, and
/// returns what arrives.
fn run(
    (i, r, first): &mut (Party, Party, Vec<u8>),
    mut host: impl FnMut(u8, u32, &[u8]) -> Vec<Vec<u8>>,
) -> Vec<Vec<u8>> {
    let limits = Limits::default();
    let mut log = Vec::new();
    let mut seen = [0; 256];
    let mut flying = vec![(Role::Responder, first.clone())];
    let mut now = 0;
    while now <= limits.total_ms + limits.resend_ms {
        while let Some((to, sent)) = flying.pop() {
            log.push(sent.clone());
            let n = sent[4];
            for arriving in host(n, seen[usize::from(n)], &sent) {
                let party = if to == Role::Responder { &mut *r } else { &mut *i };
                let answer = party.handle(&arriving, at(now));
                flying.extend(answer.map(|answer| (to.peer(), answer)));
            }
            seen[usize::from(n)] += 1;
        }
        if i.session.is_some() {
            r.machine.used();
        }
        now += 50;
        flying.extend(i.poll(at(now)).map(|sent| (Role::Responder, sent)));
        flying.extend(r.poll(at(now)).map(|sent| (Role::Initiator, sent)));
    }
    assert_eq!(i.machine.awaits(), Awaited::Nothing, "the initiator hangs");
    assert!(matches!(r.machine.awaits(), Awaited::Nothing | Awaited::Beginning), "the responder hangs");
    log
}

/// Checks the end of a handshake of which the host has changed message `n`. Returns whether both agreed.
fn check((i, r, _): &(Party, Party, Vec<u8>), n: u8, what: &str) -> bool {
    match (&i.session, &r.session) {
        (Some(a), Some(b)) => {
            assert_agreed(a, b);
            assert!(i.error.is_none() && r.error.is_none(), "{what}: a session and an error");
            true
        }
        (None, Some(_)) => {
            let lost =
                matches!(i.error, Some(HandshakeError::TimedOut { waiting_for: Awaited::Confirmation, .. }));
            assert!(lost && n == number::CONFIRMATION, "{what}: {:?}", i.error);
            let unused = HandshakeError::TimedOut { waiting_for: Awaited::Use, ignored: 0, last: None };
            assert_eq!(r.error, Some(unused), "{what}");
            false
        }
        (Some(_), None) => panic!("{what}: the initiator has a session alone"),
        (None, None) => {
            assert!(i.error.is_some(), "{what}: no error of the initiator");
            let idle = r.machine.awaits() == Awaited::Beginning;
            assert!(r.error.is_some() || idle, "{what}: no error of the responder");
            false
        }
    }
}

/// Returns the messages of a handshake without a host.
fn recorded(initiator: Binding, responder: Binding, seed: u64) -> Vec<Vec<u8>> {
    run(&mut pair(initiator, responder, seed), |_, _, sent| vec![sent.to_vec()])
}

#[test]
fn both_ends_agree_and_know_each_other() {
    let mut pair = pair(VM, VM, 1);
    let log = run(&mut pair, |_, _, sent| vec![sent.to_vec()]);
    assert_eq!(log.iter().map(|m| m[4]).collect::<Vec<_>>(), MESSAGES, "six messages, none repeated");
    let (i, r, _) = &pair;
    let (a, b) = (i.session.as_ref().unwrap(), r.session.as_ref().unwrap());
    assert_agreed(a, b);
    assert!(a.standing().is_attested() && b.standing().is_attested());
    assert_eq!(a.standing().claims(), Some("honest image"));
    assert_eq!(a.epoch(), 70, "the higher proposal");
    let all = super::parties::keys(a);
    assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2], "each key has one purpose");
    assert!(!log.iter().any(|m| all.iter().any(|key| m.windows(32).any(|w| w == key))), "keys stay private");
}

#[test]
fn a_message_cut_at_any_byte_agrees_on_nothing() {
    let lengths: Vec<usize> = recorded(VM, VM, 1).iter().map(Vec::len).collect();
    for n in MESSAGES {
        for len in 0..lengths[usize::from(n) - 1] {
            let mut pair = pair(VM, VM, 1);
            run(&mut pair, |m, _, sent| vec![if m == n { sent[..len].to_vec() } else { sent.to_vec() }]);
            assert!(!check(&pair, n, &format!("message {n} cut at {len}")));
        }
    }
}

#[test]
fn a_change_of_any_byte_agrees_on_nothing() {
    let lengths: Vec<usize> = recorded(VM, VM, 1).iter().map(Vec::len).collect();
    for n in MESSAGES {
        for byte in 0..lengths[usize::from(n) - 1] {
            for mask in [1 << (byte % 8), 0x80, 0xff] {
                let mut pair = pair(VM, VM, 1);
                run(&mut pair, |m, _, sent| {
                    let mut sent = sent.to_vec();
                    if m == n {
                        sent[byte] ^= mask;
                    }
                    vec![sent]
                });
                // Curve25519 ignores the last bit of a point; the hash of the handshake does not.
                assert!(!check(&pair, n, &format!("message {n}, byte {byte}, mask {mask:#x}")));
            }
        }
    }
}

/// From message 2 on, the handshake survives whatever arrives beside the genuine messages.
#[test]
fn a_changed_copy_leaves_the_handshake_intact() {
    let lengths: Vec<usize> = recorded(VM, VM, 1).iter().map(Vec::len).collect();
    for n in 2..=6 {
        for byte in 0..lengths[usize::from(n) - 1] {
            let mut pair = pair(VM, VM, 1);
            run(&mut pair, |m, before, sent| {
                let mut arriving = vec![sent.to_vec()];
                if m == n && before == 0 {
                    arriving.insert(0, sent.to_vec());
                    arriving[0][byte] ^= 1 << (byte % 8);
                }
                arriving
            });
            assert!(check(&pair, n, ""), "message {n}, byte {byte}: {:?} {:?}", pair.0.error, pair.1.error);
        }
    }
}

#[test]
fn lost_messages_are_repeated_a_bounded_number_of_times() {
    for n in MESSAGES {
        for lost in [1, 3, u32::MAX] {
            let mut pair = pair(VM, VM, 1);
            let log = run(
                &mut pair,
                |m, before, sent| {
                    if m == n && before < lost { vec![] } else { vec![sent.to_vec()] }
                },
            );
            assert_eq!(check(&pair, n, "lost"), lost < 4, "message {n} lost {lost} times");
            assert!(log.len() < 100, "{} messages", log.len());
        }
    }
}

#[test]
fn a_repeated_message_gets_a_bounded_number_of_answers() {
    for n in [1, 3, 5] {
        let mut pair = pair(VM, VM, 1);
        let log = run(&mut pair, |m, before, sent| {
            vec![sent.to_vec(); if m == n && before == 0 { 1000 } else { 1 }]
        });
        assert!(check(&pair, n, "repeated"));
        let answers = log.iter().filter(|m| m[4] == n + 1).count();
        assert!(answers <= 1 + Limits::default().resends as usize, "{answers} answers to message {n}");
    }
}

#[test]
fn repeated_reflected_and_early_messages_are_ignored() {
    // Before each message arrives: everything that was sent before, to both, again.
    let mut pair = pair(VM, VM, 1);
    let mut before: Vec<Vec<u8>> = Vec::new();
    run(&mut pair, |_, _, sent| {
        let mut arriving = before.clone();
        before.push(sent.to_vec());
        arriving.push(sent.to_vec());
        arriving.extend(before.clone());
        if before.len() > 40 { vec![sent.to_vec()] } else { arriving }
    });
    assert!(check(&pair, 0, "repeated"));
}

#[test]
fn messages_of_other_handshakes_are_ignored() {
    let others = [
        recorded(VM, VM, 100),
        recorded(binding(1, 2), binding(1, 2), 200),
        recorded(binding(2, 1), binding(2, 1), 300),
        recorded(Binding { configuration: [8; 32], ..VM }, Binding { configuration: [8; 32], ..VM }, 400),
    ];
    for other in &others {
        for n in 2..=6_u8 {
            for with_our_attempt in [false, true] {
                let mut pair = pair(VM, VM, 1);
                run(&mut pair, |m, _, sent| {
                    let mut arriving = Vec::new();
                    if m == n {
                        // Each message of the other handshake, also under this attempt's number.
                        for mut foreign in other.clone() {
                            if with_our_attempt {
                                foreign[5..21].copy_from_slice(&sent[5..21]);
                            }
                            arriving.push(foreign);
                        }
                    }
                    arriving.push(sent.to_vec());
                    arriving
                });
                assert!(check(&pair, n, "interleaved"), "{:?} {:?}", pair.0.error, pair.1.error);
            }
        }
    }
}

/// A host that exchanges message `n` for that of another handshake.
#[test]
fn exchanged_messages_agree_on_nothing() {
    for (seed, other) in [(100, VM), (200, binding(1, 2)), (300, binding(2, 1))] {
        let log = recorded(other, other, seed);
        for n in MESSAGES {
            for with_our_attempt in [false, true] {
                let mut pair = pair(VM, VM, 1);
                run(&mut pair, |m, _, sent| {
                    let mut foreign = log[usize::from(n) - 1].clone();
                    if with_our_attempt {
                        foreign[5..21].copy_from_slice(&sent[5..21]);
                    }
                    vec![if m == n { foreign } else { sent.to_vec() }]
                });
                assert!(!check(&pair, n, "exchanged"));
            }
        }
    }
}

#[test]
fn parties_of_different_bindings_never_agree() {
    let workstation = Binding { subject: Subject::Workstation, ..VM };
    let others = [binding(1, 2), binding(2, 1), Binding { configuration: [8; 32], ..VM }, workstation];
    for other in others {
        let mut pair = pair(VM, other, 1);
        run(&mut pair, |_, _, sent| vec![sent.to_vec()]);
        assert!(!check(&pair, 0, "other binding"));
        let error = pair.0.error.as_ref().unwrap();
        let HandshakeError::TimedOut { waiting_for: Awaited::Answer, last, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(*last, Some(Ignored::Forged));
        assert!(error.to_string().contains("another tenant, VM or configuration"), "{error}");
        let error = pair.1.error.as_ref().unwrap();
        assert!(matches!(error, HandshakeError::TimedOut { waiting_for: Awaited::Identity, .. }), "{error}");
    }
}

/// After as many forgeries as the limits allow, a party examines no more, and ends at its time limit.
#[test]
fn a_flood_costs_bounded_work_and_ends_in_time() {
    let mut pair = pair(VM, VM, 1);
    let mut forged = 0_u32;
    run(&mut pair, |m, _, sent| {
        if m != 3 || forged > 0 {
            return vec![sent.to_vec()];
        }
        let mut copies = Vec::new();
        for byte in 0..2000 {
            let mut copy = sent.to_vec();
            copy[21 + byte % 60] ^= 1 + (byte / 60) as u8;
            copies.push(copy);
            forged += 1;
        }
        copies
    });
    assert!(!check(&pair, 3, "flood"));
    match pair.1.error.as_ref().unwrap() {
        HandshakeError::TimedOut { ignored, last: Some(Ignored::Flood), .. } => assert!(*ignored >= 2000),
        other => panic!("{other}"),
    }
}
