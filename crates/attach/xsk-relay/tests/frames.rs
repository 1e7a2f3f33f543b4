//! Addresses of aligned and unaligned packet memory.

use std::sync::Arc;

use p4shield_xsk_relay::frames::{Fault, Ledger, Place, Seats, Shape, Track};
use proptest::prelude::*;

fn shapes() -> impl Strategy<Value = Shape> {
    prop_oneof![
        (1..64_u64, prop_oneof![Just(2048_u32), Just(4096)]).prop_map(|(n, chunk)| Shape::new(
            n * u64::from(chunk),
            chunk,
            false
        )
        .unwrap()),
        (1..200_000_u64, 2048..4096_u32).prop_map(|(extra, chunk)| Shape::new(
            u64::from(chunk) + extra,
            chunk,
            true
        )
        .unwrap()),
    ]
}

proptest! {
    #[test]
    fn a_place_has_one_address(shape in shapes(), address in prop_oneof![0..300_000_u64, any::<u64>()]) {
        if let Some(place) = shape.locate(address) {
            prop_assert!(place.cell < shape.cells());
            prop_assert_eq!(shape.address(place), address);
            prop_assert_eq!(shape.locate(shape.base(place)).map(|p| p.cell), Some(place.cell));
        }
    }

    #[test]
    fn packets_lie_within_memory_and_aligned_ones_within_a_frame(
        shape in shapes(), address in prop_oneof![0..300_000_u64, any::<u64>()], len in prop_oneof![0..5000_u32, any::<u32>()],
    ) {
        if let Some(start) = shape.locate(address).and_then(|_| shape.bytes(address, len)) {
            let end = start + u64::from(len);
            prop_assert!(end <= shape.len());
            if !shape.unaligned() && len > 0 {
                let chunk = u64::from(shape.chunk());
                prop_assert_eq!(start / chunk, (end - 1) / chunk);
                prop_assert!(shape.room(address).contains(&start));
            }
        }
    }

    #[test]
    fn a_moved_packet_stays_in_its_frame(shape in shapes(), cell in 0..64_u32, by in 0..5000_u64) {
        let address = shape.address(Place { cell: cell % shape.cells(), start: 0, offset: 0 });
        let start = shape.room(address).start + by;
        match shape.readdress(address, start) {
            Some(moved) => {
                prop_assert_eq!(shape.bytes(moved, 0), Some(start));
                prop_assert_eq!(shape.locate(moved).map(|p| p.cell), shape.locate(address).map(|p| p.cell));
            }
            None => prop_assert!(!shape.room(address).contains(&start)),
        }
    }
}

#[test]
fn memory_that_the_kernel_refuses_has_no_shape() {
    for (len, chunk, unaligned) in [
        (0, 4096, false),
        (4095, 4096, false),
        (1 << 20, 3000, false),
        (1 << 49, 4096, true),
        (1 << 20, 0, true),
    ] {
        assert!(Shape::new(len, chunk, unaligned).is_err(), "{len} {chunk} {unaligned}");
    }
    assert_eq!(Shape::new(3 * 4096 + 1, 4096, false).unwrap().cells(), 3);
}

/// Many applications read a batch, send it on, and only then give its entries back.
#[test]
fn a_frame_may_be_used_before_its_entry_is_given_back_and_once() {
    let ledger = Ledger::new(Shape::new(4 * 4096, 4096, false).unwrap());
    let seats = Seats::default();
    let rings = [(); 3].map(|()| Arc::new(Track::new(8, 0, || 0)));
    let [fill, receive, completion] = rings.each_ref().map(|ring| seats.take(Arc::clone(ring)).unwrap());
    let view = seats.view();
    let frame = ledger.fill(0, fill, &rings[0], &view).unwrap();
    assert!(
        matches!(ledger.sent(0, 60, completion, &view), Err(Fault::NotApplications { .. })),
        "it is to be filled"
    );
    ledger.received(0, 60, fill).unwrap();
    assert!(
        matches!(ledger.sent(0, 60, completion, &view), Err(Fault::NotApplications { .. })),
        "it is not judged"
    );
    ledger.announce(frame, receive, &rings[1]).unwrap();
    ledger.sent(0, 60, completion, &view).unwrap();
    assert!(
        matches!(ledger.sent(0, 60, completion, &view), Err(Fault::NotApplications { .. })),
        "it was sent"
    );
    ledger.transmit(frame).unwrap();
    ledger.completed(0, completion, &rings[2]).unwrap();
    ledger.fill(0, fill, &rings[0], &view).unwrap();
    assert_eq!(ledger.census(&view).total(), 4);
}
