//! Random scripts of hostile peers: a seeded campaign, and
//! proptest, which shrinks failing scripts.

use p4shield_channel::fuzz;
use proptest::prelude::*;

/// SplitMix64: a different script each time, the same scripts each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

fn campaign(seed: u64, target: fn(&[u8])) {
    let budget = p4shield_need::extent(1 << 20, 1 << 25);
    let mut random = Random(seed);
    let mut spent = 0;
    while spent < budget {
        let len = (random.next() % 2048) as usize + 1;
        let script: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).collect();
        target(&script[..len]);
        spent += len;
    }
}

#[test]
fn hostile_p4vm_campaign() {
    campaign(1, fuzz::requester);
}

#[test]
fn hostile_mediator_campaign() {
    campaign(2, fuzz::responder);
}

#[test]
fn hostile_page_campaign() {
    campaign(3, fuzz::page);
}

proptest! {
    #[test]
    fn hostile_p4vm(script in prop::collection::vec(any::<u8>(), 0..512)) {
        fuzz::requester(&script);
    }

    #[test]
    fn hostile_mediator(script in prop::collection::vec(any::<u8>(), 0..512)) {
        fuzz::responder(&script);
    }

    #[test]
    fn hostile_page(script in prop::collection::vec(any::<u8>(), 0..512)) {
        fuzz::page(&script);
    }
}
