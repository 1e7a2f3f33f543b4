//! Both ends of a ring, against a model queue and a hostile peer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use p4shield_afxdp::{Consumer, Descriptor, Error, MmapRegion, Producer, RingOffsets};
use proptest::prelude::*;

const AT: RingOffsets = RingOffsets { producer: 0, consumer: 128, flags: 196, entries: 320 };

fn memory() -> Arc<MmapRegion> {
    Arc::new(MmapRegion::anonymous(4096, false).unwrap())
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Push(u64),
    Publish,
    Pop,
    Release,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => any::<u64>().prop_map(Step::Push),
        2 => Just(Step::Publish),
        4 => Just(Step::Pop),
        2 => Just(Step::Release),
    ];
    prop::collection::vec(step, 0..400)
}

proptest! {
    #[test]
    fn a_ring_is_a_bounded_queue(bits in 0..5u32, start: u32, steps in steps()) {
        let (map, size) = (memory(), 1 << bits);
        // Indexes are free-running and wrap, so a ring may start anywhere.
        map.u32(0).store(start, Relaxed);
        map.u32(128).store(start, Relaxed);
        let mut producer = Producer::<u64>::new(Arc::clone(&map), AT, size).unwrap();
        let mut consumer = Consumer::<u64>::new(map, AT, size).unwrap();
        let (mut hidden, mut shown, mut popped) = (VecDeque::new(), VecDeque::new(), 0);
        for step in steps {
            match step {
                Step::Push(v) => {
                    let room = hidden.len() + shown.len() + popped < size as usize;
                    prop_assert_eq!(producer.push(v), room);
                    if room {
                        hidden.push_back(v);
                    }
                }
                Step::Publish => {
                    producer.publish();
                    shown.append(&mut hidden);
                }
                Step::Pop => {
                    let v = consumer.pop();
                    prop_assert_eq!(v, shown.pop_front());
                    popped += usize::from(v.is_some());
                }
                Step::Release => {
                    consumer.release();
                    popped = 0;
                }
            }
            prop_assert_eq!(consumer.pending() as usize, shown.len());
            let ahead = (0..=size).map_while(|n| consumer.ahead(n)).collect::<VecDeque<_>>();
            prop_assert_eq!(&ahead, &shown, "what is read in advance is what is popped next");
        }
        prop_assert!(!producer.broken() && !consumer.broken());
    }

    #[test]
    fn an_impossible_index_stops_its_ring_only(index: u32, entries: [u64; 32]) {
        let map = memory();
        let mut producer = Producer::<Descriptor>::new(Arc::clone(&map), AT, 16).unwrap();
        let mut consumer = Consumer::<Descriptor>::new(Arc::clone(&map), AT, 16).unwrap();
        for (i, e) in entries.into_iter().enumerate() {
            map.u64(320 + 8 * i).store(e, Relaxed);
        }
        map.u32(0).store(index, Relaxed);
        map.u32(128).store(index, Relaxed);
        let mut read = 0;
        while consumer.pop().is_some() {
            read += 1;
            prop_assert!(read <= 16);
        }
        prop_assert_eq!(read, if index <= 16 { index } else { 0 });
        prop_assert_eq!(consumer.broken(), index > 16);
        let free = producer.room(u32::MAX);
        let possible = 0u32.wrapping_sub(index) <= 16;
        prop_assert_eq!(free, if possible { 16 - 0u32.wrapping_sub(index) } else { 0 });
        prop_assert_eq!(producer.broken(), !possible);
        map.u32(0).store(1, Relaxed);
        prop_assert_eq!(consumer.pop().is_some(), index == 0, "a broken ring stays broken");
    }
}

#[test]
fn offsets_outside_the_mapping_are_refused() {
    for at in [
        RingOffsets { producer: 4093, ..AT },
        RingOffsets { producer: 2, ..AT },
        RingOffsets { consumer: 4096, ..AT },
        RingOffsets { flags: u64::MAX, ..AT },
        RingOffsets { entries: 4096 - 16 * 8 + 8, ..AT },
        RingOffsets { entries: 324, ..AT },
    ] {
        let refused = Producer::<u64>::new(memory(), at, 16);
        assert!(matches!(refused, Err(Error::RingBounds { .. })), "{at:?}");
        assert!(Consumer::<u64>::new(memory(), at, 16).is_err(), "{at:?}");
    }
    for count in [0, 3, 1 << 31] {
        assert!(Producer::<u64>::new(memory(), AT, count).is_err(), "{count} entries");
    }
}

#[test]
fn two_threads_pass_everything_in_order() {
    let map = memory();
    let mut producer = Producer::<u64>::new(Arc::clone(&map), AT, 64).unwrap();
    let mut consumer = Consumer::<u64>::new(map, AT, 64).unwrap();
    const COUNT: u64 = 200_000;
    std::thread::scope(|s| {
        s.spawn(move || {
            let mut next = 0;
            while next < COUNT {
                while next < COUNT && producer.push(next) {
                    next += 1;
                }
                producer.publish();
                std::thread::yield_now();
            }
        });
        let mut next = 0;
        while next < COUNT {
            while let Some(v) = consumer.pop() {
                assert_eq!(v, next);
                next += 1;
            }
            consumer.release();
            std::thread::yield_now();
        }
    });
}
