//! Entry points of fuzz targets: arbitrary bytes drive a hostile peer.
//!
//! Each function interprets its input as a script of what both sides do, and panics if this side
//! breaks a promise. The fuzz targets, the seeded campaigns and the property tests share them.

use crate::error::PushRefused;
use crate::memory::Memory;
use crate::page::{PageReader, PageWriter};
use crate::ring::{RequestBatch, Requester, Responder, Response, header_words};
use crate::wait::Sleeper;
use p4shield_abi::bytes::Reader;
use p4shield_abi::channel::{
    Geometry, MEDIATOR_SLEEPS, P4VM_FUTEX, P4VM_SLEEPS, REQUEST_HEAD, Request, SENT, VERDICT_HEAD,
    VERDICT_TAIL,
};
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::Ordering;

/// Small, so that a script passes around the ring many times.
const GEOMETRY: Geometry = Geometry { slots: 8, header_bytes: 24, headroom: 8 };

/// Private memory that both sides of a script share.
#[derive(Clone)]
struct TestMemory(Rc<[Cell<u8>]>);

impl TestMemory {
    fn new(len: usize) -> Self {
        Self((0..len).map(|_| Cell::new(0)).collect())
    }

    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        self.copy_out(at, &mut bytes);
        bytes
    }
}

impl Memory for TestMemory {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn load_u32(&self, at: usize, _: Ordering) -> u32 {
        u32::from_le_bytes(self.array(at))
    }
    fn store_u32(&self, at: usize, value: u32, _: Ordering) {
        self.copy_in(at, &value.to_le_bytes());
    }
    fn load_u64(&self, at: usize, _: Ordering) -> u64 {
        u64::from_le_bytes(self.array(at))
    }
    fn store_u64(&self, at: usize, value: u64, _: Ordering) {
        self.copy_in(at, &value.to_le_bytes());
    }
    fn copy_out(&self, at: usize, to: &mut [u8]) {
        let cells = &self.0[at..][..to.len()];
        for (byte, cell) in to.iter_mut().zip(cells) {
            *byte = cell.get();
        }
    }
    fn copy_in(&self, at: usize, from: &[u8]) {
        for (byte, cell) in from.iter().zip(&self.0[at..][..from.len()]) {
            cell.set(*byte);
        }
    }
    fn fence(_: Ordering) {}
}

fn channel() -> TestMemory {
    let memory = TestMemory::new(GEOMETRY.size());
    for (i, word) in header_words(&GEOMETRY.header()).into_iter().enumerate() {
        memory.store_u64(i * size_of::<u64>(), word, Ordering::Relaxed);
    }
    memory
}

/// Returns the next byte of a script; none at its end.
fn next(script: &mut Reader<'_>) -> Option<u8> {
    let [byte] = script.array();
    script.ok().then_some(byte)
}

/// Makes a hostile write: an index or flag, near its value or arbitrary, or eight bytes anywhere.
fn write_hostile(memory: &TestMemory, script: &mut Reader<'_>, how: u8) {
    const WORDS: [usize; 7] =
        [VERDICT_HEAD, REQUEST_HEAD, VERDICT_TAIL, P4VM_SLEEPS, MEDIATOR_SLEEPS, P4VM_FUTEX, SENT];
    let word = WORDS[usize::from(how >> 2) % WORDS.len()];
    match how % 4 {
        0 => {
            let near = memory.load_u32(word, Ordering::Relaxed).wrapping_add(script.u32() % 4);
            memory.store_u32(word, near, Ordering::Relaxed);
        }
        1 => memory.store_u32(word, script.u32(), Ordering::Relaxed),
        _ => {
            let offset = (script.u32() as usize % (memory.len() - GEOMETRY.requests())) & !7;
            memory.copy_in(GEOMETRY.requests() + offset, &script.array::<8>());
        }
    }
}

/// Runs a mediator against a P4 VM that answers at any time and writes anywhere.
///
/// # Panics
/// If an answer is taken without a request, out of order, or out of bounds; or a fault does not stick.
pub fn requester(script: &[u8]) {
    let memory = channel();
    let Ok(mut requester) = Requester::new(memory.clone(), GEOMETRY) else { unreachable!("valid geometry") };
    let Ok(mut responder) = Responder::new(memory.clone(), GEOMETRY) else { unreachable!("valid geometry") };
    let mut script = Reader::new(script);
    let (mut id, mut pending, mut published) = (0_u64, VecDeque::new(), 0);
    while let Some(op) = next(&mut script) {
        match op % 8 {
            0 | 1 => {
                let header = [op; 40];
                let packet_len = u32::from(op >> 3) * 4;
                let request = Request { id, packet_len, ..Request::default() };
                let pushed = requester.push(&request, &header[..packet_len as usize % 40]);
                assert_eq!(
                    pushed == Err(PushRefused::Full),
                    requester.fault().is_none() && pending.len() == 8
                );
                if pushed.is_ok() {
                    pending.push_back((id, packet_len));
                    id = id.wrapping_mul(31).wrapping_add(7);
                }
            }
            2 => {
                let asleep = requester.is_asleep();
                if requester.publish() || asleep {
                    let _ = requester.bump_futex();
                }
                requester.notify_sent();
                published = pending.len();
            }
            3 | 4 => take(&mut requester, &mut pending, &mut published, usize::from(op >> 3)),
            5 => answer(&mut responder, &mut script),
            _ => write_hostile(&memory, &mut script, op >> 3),
        }
    }
}

/// Takes answers and compares them with the pending requests.
fn take(
    requester: &mut Requester<TestMemory>,
    pending: &mut VecDeque<(u64, u32)>,
    published: &mut usize,
    max: usize,
) {
    let mut taken = 0;
    let before = requester.fault();
    let result = requester.take(max, |answer| {
        let (id, packet_len) = pending.pop_front().unwrap_or_else(|| unreachable!("no request is pending"));
        taken += 1;
        assert_eq!(answer.id, id, "answers come in order, each once");
        if let Some(rewrite) = answer.rewrite {
            assert!(rewrite.header.len() <= 32 && rewrite.replaced <= 24);
            assert!(rewrite.packet_len as usize >= rewrite.header.len());
            let rest = (packet_len as usize).saturating_sub(rewrite.replaced);
            assert!(rewrite.packet_len as usize <= rewrite.header.len() + rest);
        }
    });
    assert!(taken <= max && taken <= *published, "no more answers than requests");
    *published -= taken;
    match (before, result) {
        (None, Ok(n)) => assert_eq!(n, taken),
        (None, Err(fault)) => assert_eq!(requester.fault(), Some(fault), "a fault sticks"),
        (Some(fault), result) => {
            assert_eq!((result, taken), (Err(fault), 0), "no further answer is taken")
        }
    }
}

/// Answers honestly from time to time, so that scripts get far.
fn answer(responder: &mut Responder<TestMemory>, script: &mut Reader<'_>) {
    let Ok(count) = responder.fetch_with(32, |_, _| ()) else { return };
    for _ in 0..count {
        let how = script.array::<3>();
        let header = [how[0]; 40];
        let header = &header[..usize::from(how[1]) % 40];
        let response = Response::Rewritten { header, packet_len: u32::from(how[2]) };
        if how[0].is_multiple_of(2) || responder.respond(response).is_err() {
            assert_eq!(responder.respond(Response::Pass), Ok(()));
        }
    }
    let _ = responder.publish();
}

/// Runs a P4 VM against a mediator that submits at any time and writes anywhere.
///
/// # Panics
/// If more requests are fetched than there are slots, a header is longer than the geometry allows, or
/// a fault does not stick.
pub fn responder(script: &[u8]) {
    let memory = channel();
    let Ok(mut requester) = Requester::new(memory.clone(), GEOMETRY) else { unreachable!("valid geometry") };
    let Ok(mut responder) = Responder::new(memory.clone(), GEOMETRY) else { unreachable!("valid geometry") };
    let mut batch = RequestBatch::new(&GEOMETRY);
    let mut script = Reader::new(script);
    while let Some(op) = next(&mut script) {
        match op % 8 {
            0..=2 => {
                let request = Request { packet_len: u32::from(op), vm: u16::from(op), ..Request::default() };
                let _ = requester.push(&request, &[op; 24]);
                let _ = requester.publish();
                let _ = requester.take(8, |_| ());
            }
            3 | 4 => fetch(&mut responder, &mut batch),
            5 => {
                while responder.unanswered() > usize::from(op >> 6) {
                    assert_eq!(responder.respond(Response::Drop), Ok(()));
                }
                let _ = responder.publish();
                // The P4 VM sleeps at the futex's current value, whatever it is.
                if responder.announce_at_futex() && responder.fault().is_none() {
                    assert_eq!(responder.futex_value(), memory.load_u32(P4VM_FUTEX, Ordering::Relaxed));
                }
                responder.retract();
            }
            _ => write_hostile(&memory, &mut script, op >> 3),
        }
    }
}

fn fetch(responder: &mut Responder<TestMemory>, batch: &mut RequestBatch) {
    let (before, unanswered) = (responder.fault(), responder.unanswered());
    match responder.fetch(batch) {
        Ok(count) => {
            assert_eq!((count, unanswered + count), (batch.len(), responder.unanswered()));
            assert!(responder.unanswered() <= 8, "no more than the slots");
        }
        Err(fault) => assert_eq!(responder.fault(), Some(fault)),
    }
    assert!(before.is_none() || responder.fault() == before, "a fault sticks");
    for entry in batch.iter_mut() {
        assert!(entry.len <= 24 && entry.len <= entry.request.packet_len as usize);
        assert_eq!((entry.start, entry.frame.len()), (8, 32));
    }
}

/// Reads a page with arbitrary contents.
///
/// # Panics
/// If a publication is longer than a slot.
pub fn page(script: &[u8]) {
    const SLOTS: u32 = 4;
    const STRIDE: usize = 96;
    let memory = TestMemory::new(64 + SLOTS as usize * STRIDE);
    let Ok(mut writer) = PageWriter::new(memory.clone(), 7, SLOTS, STRIDE) else { unreachable!("it fits") };
    let Ok(reader) = PageReader::new(memory.clone(), 7, SLOTS, STRIDE) else { unreachable!("it fits") };
    let mut script = Reader::new(script);
    let mut buffer = [0; STRIDE];
    while let Some(op) = next(&mut script) {
        let found = match op % 4 {
            0 => {
                let _ = writer.publish(u64::from(op), script.u64(), &buffer[..usize::from(op) % STRIDE]);
                continue;
            }
            1 => {
                let offset = script.u32() as usize % (memory.len() - 8);
                memory.copy_in(offset, &script.array::<8>());
                continue;
            }
            2 => reader.newest(&mut buffer[..usize::from(op >> 1) % STRIDE]),
            _ => reader.read(script.u64() % 16, &mut buffer).map(Some),
        };
        if let Ok(Some(publication)) = found {
            assert!(publication.len <= STRIDE - 32);
        }
    }
}
