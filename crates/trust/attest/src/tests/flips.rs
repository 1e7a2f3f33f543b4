//! Evidence of which one bit is another.

use super::genuine::{MILAN, NOW, TDX, at, milan, policy, tdx};
use crate::evidence::Evidence;
use crate::verifier::{Verifier, claimed_report_data};

/// Returns the places of bytes at which altered evidence is accepted, with the mask. Each byte is tried with
/// its masks.
fn accepted(
    policy_text: &str,
    evidence: &Evidence,
    now: &str,
    masks: fn(usize) -> Vec<u8>,
) -> Vec<(usize, u8)> {
    let bytes = evidence.encode().unwrap();
    let expected = claimed_report_data(&bytes).unwrap();
    let verifier = Verifier::new(&policy(policy_text)).unwrap();
    assert!(verifier.verify(&bytes, &expected, at(now)).is_ok());
    let try_all = |first: usize| {
        let mut accepted = Vec::new();
        for place in (first..bytes.len()).step_by(2) {
            for mask in masks(place) {
                let mut altered = bytes.clone();
                altered[place] ^= mask;
                if verifier.verify(&altered, &expected, at(now)).is_ok() {
                    accepted.push((place, mask));
                }
            }
        }
        accepted
    };
    std::thread::scope(|scope| {
        let handles = [0, 1].map(|first| {
            scope.spawn({
                let try_all = &try_all;
                move || try_all(first)
            })
        });
        handles.into_iter().flat_map(|handle| handle.join().unwrap()).collect()
    })
}

fn one_bit(place: usize) -> Vec<u8> {
    vec![1 << (place % 8)]
}

/// One bit of each third byte, or of all with `P4SHIELD_EFFORT=full`.
fn some_bits(place: usize) -> Vec<u8> {
    if place.is_multiple_of(p4shield_need::extent(3, 1)) { one_bit(place) } else { Vec::new() }
}

/// All bits, too: of each eighth byte, or of all with `P4SHIELD_EFFORT=full`.
fn one_bit_and_all(place: usize) -> Vec<u8> {
    let all = place.is_multiple_of(p4shield_need::extent(8, 1)).then_some(u8::MAX);
    one_bit(place).into_iter().chain(all).collect()
}

#[test]
fn any_altered_byte_of_a_report_or_its_certificate_is_refused() {
    assert_eq!(accepted(MILAN, &milan(), NOW, one_bit_and_all), []);
}

#[test]
fn any_altered_byte_of_a_quote_is_refused() {
    assert_eq!(accepted(TDX, &tdx("tdx_quote"), NOW, one_bit_and_all), []);
    let ex = TDX.replace("tdx_quote_collateral", "tdx_quote_td15ex_collateral");
    assert_eq!(accepted(&ex, &tdx("tdx_quote_td15ex"), "2026-10-20T00:00:00Z", some_bits), []);
}

#[test]
fn cut_and_extended_evidence_is_refused() {
    for (policy_text, evidence) in [(MILAN, milan()), (TDX, tdx("tdx_quote"))] {
        let bytes = evidence.encode().unwrap();
        let expected = claimed_report_data(&bytes).unwrap();
        let verifier = Verifier::new(&policy(policy_text)).unwrap();
        for length in (0..bytes.len()).step_by(7) {
            assert!(verifier.verify(&bytes[..length], &expected, at(NOW)).is_err(), "{length} bytes");
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert!(verifier.verify(&longer, &expected, at(NOW)).is_err());
        let huge = vec![0; 1 << 20];
        assert_eq!(verifier.verify(&huge, &expected, at(NOW)).unwrap_err().reason(), "malformed");
    }
}
