//! The start of an audit ends in time: what follows is compared, or is a share.

use p4shield_abi::Direction;

use super::super::finding::{Finding, exit_code, exit_code_of};
use super::cloud::{Cloud, Treatment};

/// Equal packets, so many milliseconds apart, from the start on, and another packet that bypasses the program
/// every two seconds. Returns the cloud and the number of bypassed packets.
fn trickle(every_ms: u64, ms: u64, bypass: bool) -> (Cloud, u64) {
    let mut c = Cloud::new(Direction::Ingress, true);
    let mut bypassed = 0;
    for n in 1..=ms {
        if n % every_ms == 0 {
            c.packet(77, Treatment::Honest);
        }
        let is_bypass = bypass && n > 1_500 && n % 2_000 == 1_700;
        bypassed += u64::from(is_bypass);
        c.step(u64::from(is_bypass), Treatment::Bypass);
    }
    (c, bypassed)
}

#[test]
fn a_trickle_of_equal_packets_hides_no_bypass() {
    for every_ms in [300, 30, 5, 1] {
        let (mut c, bypassed) = trickle(every_ms, 30_000, true);
        let found = c.conclude();
        let all: u64 =
            found.iter().map(|f| if let Finding::Bypassed { packets, .. } = f { *packets } else { 0 }).sum();
        assert!(
            all + 1 >= bypassed && all <= bypassed,
            "every {every_ms} ms, {bypassed} bypassed: {found:?}"
        );
        assert_eq!(exit_code_of(&found), exit_code::BYPASSED);
    }
}

#[test]
fn a_trickle_of_equal_packets_is_proven() {
    for every_ms in [300, 30, 5, 1] {
        for ms in [2_000, 7_777, 30_000] {
            let (mut c, _) = trickle(every_ms, ms, false);
            c.run(1_000, 0).run(1_500, 2).run(1_500, 0);
            let found = c.conclude();
            let s = c.status();
            assert_eq!(found, [], "every {every_ms} ms for {ms} ms");
            assert_eq!((s.lost, s.uncompared), (0, 0), "every {every_ms} ms for {ms} ms: {s:?}");
        }
    }
}

/// Until a place is found, numbers are compared: packets that flow all the time show none.
#[test]
fn a_flood_from_the_start_is_a_finding() {
    for begin in [1, 300] {
        let mut c = Cloud::new(Direction::Ingress, true);
        c.run(begin, 0);
        for _ in 0..6_000 {
            c.step(20, Treatment::Bypass);
            c.packet(77, Treatment::Honest);
        }
        let found = c.conclude();
        assert!(
            matches!(found.first(), Some(Finding::Bypassed { packets: 50_000.., .. })),
            "{found:?} {:?}",
            c.status()
        );
    }
}

/// One packet around the first record, and hardly any other.
#[test]
fn a_lone_packet_of_the_start_is_no_finding() {
    for direction in Direction::ALL {
        for (at, packets) in (0..900).step_by(10).flat_map(|at| [(at, 1), (at, 2)]) {
            let mut c = Cloud::new(direction, true);
            c.run(at, 0).run(packets, 1).run(3_000, 0);
            let found = c.conclude();
            let s = c.status();
            assert_eq!((found, s.uncompared, s.lost), (vec![], 0, 0), "{direction:?} at {at} ms: {s:?}");
            assert_eq!(s.verified + s.unaudited, packets, "{direction:?} at {at} ms: {s:?}");
        }
    }
}

#[test]
fn packets_of_the_start_are_stated() {
    let mut c = Cloud::new(Direction::Ingress, true);
    c.run(10_000, 3);
    assert_eq!(c.conclude(), []);
    let s = c.status();
    assert!((500..4_000).contains(&s.unaudited), "{s:?}");
    assert!(s.verified + s.unaudited + 1_000 > s.interface.packets, "{s:?}");
}
