//! Lives from a seed.

use super::ports::Memory;
use super::{Programs, life};
use crate::tests::compiled_with;
use crate::{DropReason, Switch};
use p4shield_bpf::Mode;
use p4shield_p4::{Options, Placement};
use p4shield_testbed::campaign::Random;
use std::sync::LazyLock;

static PROGRAMS: LazyLock<Programs> = LazyLock::new(|| {
    Programs::new(|text, trace| {
        let options = Options { trace, placement: Placement::Extern, ..Options::default() };
        compiled_with(text, &options).object
    })
});

#[test]
fn every_packet_of_any_life_is_accounted_for() {
    life(&PROGRAMS, &[]);
    let mut random = Random::new(33);
    for _ in 0..p4shield_need::extent(15, 10_000) {
        life(&PROGRAMS, &random.bytes(2_000));
    }
}

#[test]
fn a_packet_that_grows_too_long_to_start_again_is_dropped() {
    let (program, traits) = PROGRAMS.load(0, Mode::Jit);
    let mut switch = Switch::new(Memory::new(2), vec![1, 2], program, traits).unwrap();
    // Recirculates without end, and grows by 64 bytes each time.
    let sent = [&[0x50, 0, 2, 0, 0, 0, 0, 0][..], &[0xab; 9_500]].concat();
    switch.inject(1, &sent).unwrap();
    let counts = switch.counts();
    assert_eq!((counts.recirculated, counts.dropped(DropReason::TooLong)), (3, 1), "{counts:?}");
    assert!(counts.balance());
}
