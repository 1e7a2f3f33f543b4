//! Genuine inputs with random changes: none panics, and none is accepted that breaks a promise.

use rsa::rand_core::RngCore;

use super::genuine::{data, milan_report};
use super::hierarchy::Repeatable;
use crate::fuzz;

/// A fuzz target with a genuine input of it.
type Seed = (fn(&[u8]), Vec<u8>);

/// Changes of each input. The fuzz targets do more of it.
const ROUNDS: usize = 300;

fn change(input: &[u8], random: &mut Repeatable) -> Vec<u8> {
    let mut bytes = input.to_vec();
    let mut number = |below: usize| usize::try_from(random.next_u64()).unwrap_or(0) % below.max(1);
    for _ in 0..=number(3) {
        let place = number(bytes.len());
        match number(5) {
            0 => bytes.truncate(place),
            1 => drop(bytes.drain(place..(place + number(9)).min(bytes.len()))),
            2 => bytes.splice(place..place, vec![0xff; number(9)]).for_each(drop),
            3 => bytes.iter_mut().skip(place).take(4).for_each(|b| *b = 0xff),
            _ => bytes.iter_mut().skip(place).take(1).for_each(|b| *b ^= 1 << number(8)),
        }
    }
    bytes
}

#[test]
fn no_changed_input_panics_or_breaks_a_promise() {
    let mut random = Repeatable(3);
    let snp = [milan_report(), data("vcek_milan.der")].concat();
    let policy =
        b"sample = true\n[sev-snp]\nany_measurement = true\ncrl = [\"a\"]\nminimum_firmware = \"1.2.3\""
            .to_vec();
    let evidence = super::genuine::milan().encode().unwrap();
    let inputs: [Seed; 6] = [
        (fuzz::snp, snp),
        (fuzz::snp, data("vcek_milan.der")),
        (fuzz::tdx, data("tdx_quote")),
        (fuzz::tdx, data("tdx_quote_collateral.json")),
        (fuzz::evidence, evidence),
        (fuzz::policy_file, policy),
    ];
    for (target, input) in inputs {
        target(&input);
        for _ in 0..ROUNDS {
            target(&change(&input, &mut random));
        }
    }
}
