//! Random scripts of hostile peers: a seeded campaign, and
//! proptest, which shrinks failing scripts.

use p4shield_channel::fuzz;
use proptest::prelude::*;

fn campaign(seed: u64, target: fn(&[u8])) {
    p4shield_need::campaign(seed, 2048, p4shield_need::extent(1 << 20, 1 << 25), target);
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
