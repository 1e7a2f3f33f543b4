use std::sync::Mutex;

use p4shield_afxdp::ring::Entry;
use p4shield_afxdp::{Consumer, Descriptor, MmapRegion, Producer, RingOffsets};
use p4shield_xsk_relay::relay::{CompletionRings, JudgedPacket, TransmitPump, TransmitRings, VerdictSource};

use super::*;
use crate::umem::tests::Buffer;

const CHUNK: usize = 2048;
/// Offset of a packet in its frame; its `struct xsk_tx_metadata` ends there.
const START: usize = 256;
const METADATA_BYTES: [u8; 24] = [0xab; 24];
/// Descriptor options `XDP_PKT_CONTD` and `XDP_TX_METADATA`.
const CONTINUES: u32 = 1;
const METADATA: u32 = 2;

fn ring<T: Entry>() -> (Producer<T>, Consumer<T>) {
    let map = Arc::new(MmapRegion::anonymous(4096, false).unwrap());
    let at = RingOffsets { producer: 0, consumer: 64, flags: 128, entries: 192 };
    (Producer::new(map.clone(), at, 8).unwrap(), Consumer::new(map, at, 8).unwrap())
}

/// A program that replaces the first `old` bytes of each packet by `new` and keeps `total` bytes.
struct Rewrites {
    memory: Arc<ApplicationMemory>,
    old: usize,
    new: Vec<u8>,
    total: usize,
    done: Arc<Mutex<Vec<bool>>>,
}

impl VerdictSource for Rewrites {
    fn submit(&mut self, _: u64, packet: RelayedPacket) -> Option<JudgedPacket> {
        // SAFETY: the memory is kept beside it, and the packet comes from its pump.
        let mut packet = unsafe { UmemPacket::new(packet, &self.memory) };
        let result = packet.replace_head(self.old, &self.new, self.total);
        self.done.lock().unwrap().push(result.is_ok());
        Some(JudgedPacket { packet: packet.into_relayed(), pass: true })
    }

    fn poll(&mut self, _: u64, _: impl FnMut(JudgedPacket)) {}

    fn held(&self) -> usize {
        0
    }

    fn drain(&mut self, _: impl FnMut(JudgedPacket)) {}
}

/// The result of sending one packet of buffers with 100 bytes of value 7, of which the program replaced
/// the first bytes.
struct Sent {
    rewritten: bool,
    /// The descriptors that the kernel gets.
    descriptors: Vec<Descriptor>,
    memory: Vec<u8>,
}

fn send(options: &[u32], (old, new, total): (usize, Vec<u8>, usize)) -> Sent {
    let mut buffer = Buffer::private(8 * CHUNK);
    for n in 0..options.len() {
        let at = n * CHUNK + START;
        buffer.bytes()[at - METADATA_BYTES.len()..at].copy_from_slice(&METADATA_BYTES);
        buffer.bytes()[at..at + 100].fill(7);
    }
    let addresses = buffer.addresses();
    let base = std::ptr::with_exposed_provenance_mut(addresses.start);
    // SAFETY: it is not shared, so it stays as it is.
    let umem = unsafe { RegisteredUmem::registering(addresses, false, false) }.unwrap();
    let geometry = UmemGeometry::new(8 * CHUNK as u64, CHUNK as u32, false).unwrap();
    // SAFETY: the buffer outlives the pump.
    let memory = Arc::new(unsafe { ApplicationMemory::new(base, geometry, umem) });
    let ((mut app, from), (to, mut kernel)) = (ring(), ring());
    let ((_completed, completion_from), (completion_to, _completion)) = (ring(), ring());
    let completion = CompletionRings { application: completion_to, kernel: completion_from };
    let mut pump = TransmitPump::new(Arc::clone(&memory.frames), completion).unwrap();
    let done = Arc::default();
    let verdicts = Rewrites { memory, old, new, total, done: Arc::clone(&done) };
    pump.add(1, TransmitRings { application: from, kernel: to }, verdicts);
    for (n, &options) in options.iter().enumerate() {
        assert!(app.push(Descriptor { address: (n * CHUNK + START) as u64, len: 100, options }));
    }
    app.publish();
    pump.process(|| 1);
    drop(pump);
    let done = done.lock().unwrap();
    assert_eq!(done.len(), 1, "one packet");
    let descriptors = std::iter::from_fn(|| kernel.pop()).collect();
    Sent { rewritten: done[0], descriptors, memory: buffer.bytes().to_vec() }
}

#[test]
fn rewrites_keep_tx_metadata_in_front_of_the_packet() {
    let as_it_was = Descriptor { address: START as u64, len: 100, options: METADATA };
    for (old, new, rewritten) in [(34, 34, true), (34, 38, false), (34, 30, false), (0, 14, false)] {
        let sent = send(&[METADATA], (old, vec![9; new], 100 - old + new));
        assert_eq!((sent.rewritten, &sent.descriptors[..]), (rewritten, &[as_it_was][..]), "{old} by {new}");
        assert_eq!(sent.memory[START - METADATA_BYTES.len()..START], METADATA_BYTES, "{old} by {new}");
        let front = if rewritten { 9 } else { 7 };
        assert!(sent.memory[START..START + 34].iter().all(|b| *b == front), "{old} by {new}");
        assert!(sent.memory[START + 34..START + 100].iter().all(|b| *b == 7), "{old} by {new}");
    }
    let cut = send(&[METADATA], (34, vec![9; 34], 60));
    assert_eq!((cut.rewritten, cut.descriptors[0].address, cut.descriptors[0].len), (true, START as u64, 60));
}

#[test]
fn packets_without_tx_metadata_grow_into_headroom() {
    let sent = send(&[0], (34, vec![9; 38], 104));
    let grown = Descriptor { address: START as u64 - 4, len: 104, options: 0 };
    assert_eq!((sent.rewritten, sent.descriptors), (true, vec![grown]));
}

#[test]
fn multi_buffer_packets_get_new_headers_and_keep_their_length() {
    let two = [CONTINUES, 0];
    let sent = send(&two, (14, vec![9; 18], 204));
    let first = Descriptor { address: START as u64 - 4, len: 104, options: CONTINUES };
    let second = Descriptor { address: (CHUNK + START) as u64, len: 100, options: 0 };
    assert_eq!((sent.rewritten, sent.descriptors), (true, vec![first, second]));
    // A packet is not rewritten if that would shorten it or reach into its second buffer.
    for (old, new, total) in [(14, 14, 150), (14, 14, 60), (120, 120, 200)] {
        let sent = send(&two, (old, vec![9; new], total));
        assert!(!sent.rewritten, "{old} by {new}, {total} in all");
        assert!(sent.descriptors.iter().all(|d| d.len == 100) && sent.descriptors.len() == 2);
        assert!([0, CHUNK].iter().all(|at| sent.memory[at + START..][..100].iter().all(|b| *b == 7)));
    }
}
