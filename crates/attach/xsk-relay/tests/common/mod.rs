//! Rings in memory of our own, with both of their ends at hand, and a judge that a script drives.

use std::collections::VecDeque;
use std::sync::Arc;

use p4shield_afxdp::ring::Entry;
use p4shield_afxdp::{Consumer, Descriptor, Mapping, Producer, RingOffsets};
use p4shield_xsk_relay::frames::Shape;
use p4shield_xsk_relay::relay::{
    CompletionRings, FillRings, Frames, Judge, Judged, Parcel, ReceivePump, ReceiveRings, TransmitPump,
    TransmitRings,
};

/// Entries of every ring.
pub(crate) const ENTRIES: u32 = 8;
/// Frames: fewer than all rings together have entries, more than one has.
pub(crate) const FRAMES: u32 = 24;
/// Bytes of a frame.
pub(crate) const CHUNK: u32 = 2048;

/// The two ends of one ring.
pub(crate) fn ring<T: Entry>() -> (Producer<T>, Consumer<T>) {
    let map = Arc::new(Mapping::anonymous(4096, false).unwrap());
    let at = RingOffsets { producer: 0, consumer: 64, flags: 128, entries: 192 };
    (Producer::new(map.clone(), at, ENTRIES).unwrap(), Consumer::new(map, at, ENTRIES).unwrap())
}

/// Holds packets until the script decides about the oldest, or about any.
#[derive(Debug, Default)]
pub(crate) struct Script {
    held: VecDeque<Parcel>,
    /// What is decided about, by place in the queue, at the next poll.
    pub(crate) decide: Vec<(usize, bool)>,
    /// What becomes of a packet at once, if anything.
    pub(crate) at_once: Option<bool>,
}

/// The judge, and whoever holds the script.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scripted(pub(crate) Arc<std::sync::Mutex<Script>>);

impl Judge for Scripted {
    fn submit(&mut self, _: u64, parcel: Parcel) -> Option<Judged> {
        let mut s = self.0.lock().unwrap();
        if let Some(pass) = s.at_once {
            return Some(Judged { parcel, pass });
        }
        s.held.push_back(parcel);
        None
    }

    fn poll(&mut self, _: u64, mut sink: impl FnMut(Judged)) {
        let mut s = self.0.lock().unwrap();
        for (at, pass) in std::mem::take(&mut s.decide) {
            let at = at % s.held.len().max(1);
            if let Some(parcel) = s.held.remove(at) {
                sink(Judged { parcel, pass });
            }
        }
    }

    fn held(&self) -> usize {
        self.0.lock().unwrap().held.len()
    }

    fn drain(&mut self, mut sink: impl FnMut(Judged)) {
        let held = std::mem::take(&mut self.0.lock().unwrap().held);
        held.into_iter().for_each(|parcel| sink(Judged { parcel, pass: true }));
    }
}

/// One socket between an application and a kernel, of which the test has the other ends.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) frames: Arc<Frames>,
    pub(crate) receive: ReceivePump<Scripted>,
    pub(crate) transmit: TransmitPump<Scripted>,
    pub(crate) receive_judge: Scripted,
    pub(crate) transmit_judge: Scripted,
    pub(crate) app_fill: Producer<u64>,
    pub(crate) app_receive: Consumer<Descriptor>,
    pub(crate) app_transmit: Producer<Descriptor>,
    pub(crate) app_completion: Consumer<u64>,
    pub(crate) kernel_fill: Consumer<u64>,
    pub(crate) kernel_receive: Producer<Descriptor>,
    pub(crate) kernel_transmit: Consumer<Descriptor>,
    pub(crate) kernel_completion: Producer<u64>,
}

impl World {
    pub(crate) fn new(shape: Shape) -> Self {
        let frames = Arc::new(Frames::new(shape));
        let (receive_judge, transmit_judge) = (Scripted::default(), Scripted::default());
        let (app_fill, fill_from) = ring();
        let (fill_to, kernel_fill) = ring();
        let (kernel_receive, receive_from) = ring();
        let (receive_to, app_receive) = ring();
        let (app_transmit, transmit_from) = ring();
        let (transmit_to, kernel_transmit) = ring();
        let (kernel_completion, completion_from) = ring();
        let (completion_to, app_completion) = ring();
        let fill = FillRings { application: fill_from, kernel: fill_to };
        let mut receive = ReceivePump::new(frames.clone(), fill).unwrap();
        let rings = ReceiveRings { application: receive_to, kernel: receive_from };
        receive.add(1, rings, receive_judge.clone()).unwrap();
        let completion = CompletionRings { application: completion_to, kernel: completion_from };
        let mut transmit = TransmitPump::new(frames.clone(), completion).unwrap();
        let rings = TransmitRings { application: transmit_from, kernel: transmit_to };
        transmit.add(1, rings, transmit_judge.clone());
        Self {
            frames,
            receive,
            transmit,
            receive_judge,
            transmit_judge,
            app_fill,
            app_receive,
            app_transmit,
            app_completion,
            kernel_fill,
            kernel_receive,
            kernel_transmit,
            kernel_completion,
        }
    }

    pub(crate) fn census(&self) -> p4shield_xsk_relay::frames::Census {
        self.frames.ledger.census(&self.frames.seats.view())
    }
}
