//! Addresses of aligned and unaligned UMEMs, and transitions of the ledger.

use std::sync::Arc;

use p4shield_xsk_relay::frames::{FrameAddress, FrameFault, Ledger, RingHistory, RingRegistry, UmemGeometry};
use proptest::prelude::*;

fn geometries() -> impl Strategy<Value = UmemGeometry> {
    prop_oneof![
        (1..64_u64, prop_oneof![Just(2048_u32), Just(4096)]).prop_map(|(n, chunk)| UmemGeometry::new(
            n * u64::from(chunk),
            chunk,
            false
        )
        .unwrap()),
        (1..200_000_u64, 2048..4096_u32).prop_map(|(extra, chunk)| UmemGeometry::new(
            u64::from(chunk) + extra,
            chunk,
            true
        )
        .unwrap()),
    ]
}

proptest! {
    #[test]
    fn addresses_survive_splitting(
        geometry in geometries(),
        address in prop_oneof![0..300_000_u64, any::<u64>()],
    ) {
        if let Some(at) = geometry.locate(address) {
            prop_assert!(at.frame < geometry.frame_count());
            prop_assert_eq!(geometry.address(at), address);
            prop_assert_eq!(geometry.locate(geometry.frame_start(at)).map(|p| p.frame), Some(at.frame));
        }
    }

    #[test]
    fn packets_lie_within_the_umem_and_their_frame(
        geometry in geometries(),
        address in prop_oneof![0..300_000_u64, any::<u64>()],
        len in prop_oneof![0..5000_u32, any::<u32>()],
    ) {
        if let Some(start) = geometry.locate(address).and_then(|_| geometry.packet_start(address, len)) {
            let end = start + u64::from(len);
            prop_assert!(end <= geometry.len());
            if !geometry.unaligned() && len > 0 {
                let chunk = u64::from(geometry.chunk());
                prop_assert_eq!(start / chunk, (end - 1) / chunk);
                prop_assert!(geometry.frame_range(address).contains(&start));
            }
        }
    }

    #[test]
    fn a_moved_packet_stays_in_its_frame(geometry in geometries(), frame in 0..64_u32, by in 0..5000_u64) {
        let frame = frame % geometry.frame_count();
        let address = geometry.address(FrameAddress { frame, start: 0, offset: 0 });
        let start = geometry.frame_range(address).start + by;
        match geometry.ring_address(address, start) {
            Some(moved) => {
                prop_assert_eq!(geometry.packet_start(moved, 0), Some(start));
                let located = geometry.locate(moved).map(|p| p.frame);
                prop_assert_eq!(located, geometry.locate(address).map(|p| p.frame));
            }
            None => prop_assert!(!geometry.frame_range(address).contains(&start)),
        }
    }
}

#[test]
fn invalid_umems_are_refused() {
    for (len, chunk, unaligned) in [
        (0, 4096, false),
        (4095, 4096, false),
        (1 << 20, 3000, false),
        (1 << 49, 4096, true),
        (1 << 20, 0, true),
    ] {
        assert!(UmemGeometry::new(len, chunk, unaligned).is_err(), "{len} {chunk} {unaligned}");
    }
    assert_eq!(UmemGeometry::new(3 * 4096 + 1, 4096, false).unwrap().frame_count(), 3);
}

/// Many applications read a batch, send it on, and release its entries only then.
#[test]
fn a_frame_is_usable_before_its_entry_is_released() {
    let ledger = Ledger::new(UmemGeometry::new(4 * 4096, 4096, false).unwrap());
    let registry = RingRegistry::default();
    let rings = [(); 3].map(|()| Arc::new(RingHistory::new(8, 0, || 0)));
    let [fill, receive, completion] =
        rings.each_ref().map(|ring| registry.register(Arc::clone(ring)).unwrap());
    let view = registry.view();
    let frame = ledger.fill(0, fill, &rings[0], &view).unwrap();
    assert!(
        matches!(ledger.send(0, 60, completion, &view), Err(FrameFault::NotOwnedByApplication { .. })),
        "it is in the fill ring"
    );
    ledger.received(0, 60, fill).unwrap();
    assert!(
        matches!(ledger.send(0, 60, completion, &view), Err(FrameFault::NotOwnedByApplication { .. })),
        "it waits for a verdict"
    );
    ledger.deliver(frame, receive, &rings[1]).unwrap();
    ledger.send(0, 60, completion, &view).unwrap();
    assert!(
        matches!(ledger.send(0, 60, completion, &view), Err(FrameFault::NotOwnedByApplication { .. })),
        "it is being sent"
    );
    ledger.transmit(frame).unwrap();
    ledger.completed(0, completion, &rings[2]).unwrap();
    ledger.fill(0, fill, &rings[0], &view).unwrap();
    assert_eq!(ledger.owner_counts(&view).total(), 4);
}
