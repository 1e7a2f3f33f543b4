//! Both ends of a socket's rings in memory of the test, and a scripted verdict source.

use std::collections::VecDeque;
use std::sync::Arc;

use p4shield_afxdp::ring::Entry;
use p4shield_afxdp::{Consumer, Descriptor, MmapRegion, Producer, RingOffsets};
use p4shield_xsk_relay::frames::UmemGeometry;
use p4shield_xsk_relay::relay::{
    CompletionRings, FillRings, FrameTable, JudgedPacket, ReceivePump, ReceiveRings, RelayedPacket,
    TransmitPump, TransmitRings, VerdictSource,
};

/// Entries of every ring.
pub(crate) const ENTRIES: u32 = 8;
/// Frames: fewer than all rings together have entries, and more than one ring has.
pub(crate) const FRAMES: u32 = 24;
/// Bytes of a frame.
pub(crate) const CHUNK: u32 = 2048;

/// Creates a ring and returns its two ends.
pub(crate) fn ring<T: Entry>() -> (Producer<T>, Consumer<T>) {
    let map = Arc::new(MmapRegion::anonymous(4096, false).unwrap());
    let at = RingOffsets { producer: 0, consumer: 64, flags: 128, entries: 192 };
    (Producer::new(map.clone(), at, ENTRIES).unwrap(), Consumer::new(map, at, ENTRIES).unwrap())
}

/// Holds packets until the test decides about them.
#[derive(Debug, Default)]
pub(crate) struct Script {
    held: VecDeque<RelayedPacket>,
    /// The decisions of the next poll, by index in the queue.
    pub(crate) decide: Vec<(usize, bool)>,
    /// The verdict for every packet on submission, if any.
    pub(crate) at_once: Option<bool>,
}

/// A verdict source that the test keeps a handle of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scripted(pub(crate) Arc<std::sync::Mutex<Script>>);

impl VerdictSource for Scripted {
    fn submit(&mut self, _: u64, packet: RelayedPacket) -> Option<JudgedPacket> {
        let mut s = self.0.lock().unwrap();
        if let Some(pass) = s.at_once {
            return Some(JudgedPacket { packet, pass });
        }
        s.held.push_back(packet);
        None
    }

    fn poll(&mut self, _: u64, mut sink: impl FnMut(JudgedPacket)) {
        let mut s = self.0.lock().unwrap();
        for (at, pass) in std::mem::take(&mut s.decide) {
            let at = at % s.held.len().max(1);
            if let Some(packet) = s.held.remove(at) {
                sink(JudgedPacket { packet, pass });
            }
        }
    }

    fn held(&self) -> usize {
        self.0.lock().unwrap().held.len()
    }

    fn drain(&mut self, mut sink: impl FnMut(JudgedPacket)) {
        let held = std::mem::take(&mut self.0.lock().unwrap().held);
        held.into_iter().for_each(|packet| sink(JudgedPacket { packet, pass: true }));
    }
}

/// One socket between an application and a kernel, both played by the test.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) frames: Arc<FrameTable>,
    pub(crate) receive: ReceivePump<Scripted>,
    pub(crate) transmit: TransmitPump<Scripted>,
    pub(crate) receive_verdicts: Scripted,
    pub(crate) transmit_verdicts: Scripted,
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
    pub(crate) fn new(geometry: UmemGeometry) -> Self {
        let frames = Arc::new(FrameTable::new(geometry));
        let (receive_verdicts, transmit_verdicts) = (Scripted::default(), Scripted::default());
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
        receive.add(1, rings, receive_verdicts.clone()).unwrap();
        let completion = CompletionRings { application: completion_to, kernel: completion_from };
        let mut transmit = TransmitPump::new(frames.clone(), completion).unwrap();
        let rings = TransmitRings { application: transmit_from, kernel: transmit_to };
        transmit.add(1, rings, transmit_verdicts.clone());
        Self {
            frames,
            receive,
            transmit,
            receive_verdicts,
            transmit_verdicts,
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

    pub(crate) fn owner_counts(&self) -> p4shield_xsk_relay::frames::OwnerCounts {
        self.frames.ledger.owner_counts(&self.frames.registry.view())
    }
}
