//! Entries for fuzz targets: what a hostile peer may write, driven by arbitrary bytes.
//!
//! Each function takes its input for a script of what both sides do and panics if this side breaks a promise. The
//! fuzz targets, the campaigns in the tests and the property tests share them.

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

/// Small enough that a script gets around the ring many times.
const GEOMETRY: Geometry = Geometry { slots: 8, header_bytes: 24, headroom: 8 };

/// Private memory that both sides of a script hold.
#[derive(Clone)]
struct Plain(Rc<[Cell<u8>]>);

impl Plain {
    fn new(len: usize) -> Self {
        Self((0..len).map(|_| Cell::new(0)).collect())
    }

    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        self.copy_out(at, &mut bytes);
        bytes
    }
}

impl Memory for Plain {
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

fn channel() -> Plain {
    let memory = Plain::new(GEOMETRY.size());
    for (i, word) in header_words(&GEOMETRY.header()).into_iter().enumerate() {
        memory.store_u64(i * size_of::<u64>(), word, Ordering::Relaxed);
    }
    memory
}

/// The next byte of a script; none at its end.
fn next(script: &mut Reader<'_>) -> Option<u8> {
    let [byte] = script.array();
    script.ok().then_some(byte)
}

/// A hostile write: an index or flag near where it is or anywhere, or eight bytes anywhere.
fn scribble(memory: &Plain, script: &mut Reader<'_>, how: u8) {
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
            let place = (script.u32() as usize % (memory.len() - GEOMETRY.requests())) & !7;
            memory.copy_in(GEOMETRY.requests() + place, &script.array::<8>());
        }
    }
}

/// A mediator against a P4 VM that answers when it likes and writes where it likes.
///
/// # Panics
/// If an answer is taken that was not asked for, out of order, or out of bounds; or a fault does not stick.
pub fn requester(script: &[u8]) {
    let memory = channel();
    let Ok(mut requester) = Requester::new(memory.clone(), GEOMETRY) else { unreachable!("valid geometry") };
    let Ok(mut judge) = Responder::new(memory.clone(), GEOMETRY) else { unreachable!("valid geometry") };
    let mut script = Reader::new(script);
    let (mut id, mut asked, mut published) = (0_u64, VecDeque::new(), 0);
    while let Some(op) = next(&mut script) {
        match op % 8 {
            0 | 1 => {
                let header = [op; 40];
                let packet_len = u32::from(op >> 3) * 4;
                let request = Request { id, packet_len, ..Request::default() };
                let pushed = requester.push(&request, &header[..packet_len as usize % 40]);
                assert_eq!(pushed == Err(PushRefused::Full), requester.fault().is_none() && asked.len() == 8);
                if pushed.is_ok() {
                    asked.push_back((id, packet_len));
                    id = id.wrapping_mul(31).wrapping_add(7);
                }
            }
            2 => {
                let asleep = requester.is_asleep();
                if requester.publish() || asleep {
                    let _ = requester.bump_futex();
                }
                requester.notify_sent();
                published = asked.len();
            }
            3 | 4 => take(&mut requester, &mut asked, &mut published, usize::from(op >> 3)),
            5 => answer(&mut judge, &mut script),
            _ => scribble(&memory, &mut script, op >> 3),
        }
    }
}

/// Takes answers and holds them against what was asked.
fn take(
    requester: &mut Requester<Plain>,
    asked: &mut VecDeque<(u64, u32)>,
    published: &mut usize,
    max: usize,
) {
    let mut taken = 0;
    let before = requester.fault();
    let result = requester.take(max, |answered| {
        let (id, packet_len) = asked.pop_front().unwrap_or_else(|| unreachable!("nothing was asked"));
        taken += 1;
        assert_eq!(answered.id, id, "answers come in order, each once");
        if let Some(rewrite) = answered.rewrite {
            assert!(rewrite.header.len() <= 32 && rewrite.replaced <= 24);
            assert!(rewrite.packet_len as usize >= rewrite.header.len());
            let rest = (packet_len as usize).saturating_sub(rewrite.replaced);
            assert!(rewrite.packet_len as usize <= rewrite.header.len() + rest);
        }
    });
    assert!(taken <= max && taken <= *published, "no more than was asked for");
    *published -= taken;
    match (before, result) {
        (None, Ok(n)) => assert_eq!(n, taken),
        (None, Err(fault)) => assert_eq!(requester.fault(), Some(fault), "a fault sticks"),
        (Some(fault), result) => {
            assert_eq!((result, taken), (Err(fault), 0), "and nothing is taken any more")
        }
    }
}

/// An honest judge, now and then, so that scripts get far.
fn answer(judge: &mut Responder<Plain>, script: &mut Reader<'_>) {
    let Ok(count) = judge.fetch_with(32, |_, _| ()) else { return };
    for _ in 0..count {
        let how = script.array::<3>();
        let header = [how[0]; 40];
        let header = &header[..usize::from(how[1]) % 40];
        let reply = Response::Rewritten { header, packet_len: u32::from(how[2]) };
        if how[0].is_multiple_of(2) || judge.respond(reply).is_err() {
            assert_eq!(judge.respond(Response::Pass), Ok(()));
        }
    }
    let _ = judge.publish();
}

/// A P4 VM against a mediator that asks when it likes and writes where it likes.
///
/// # Panics
/// If more is fetched than is there, a header is longer than agreed on, or a fault does not stick.
pub fn judge(script: &[u8]) {
    let memory = channel();
    let Ok(mut requester) = Requester::new(memory.clone(), GEOMETRY) else { unreachable!("valid geometry") };
    let Ok(mut judge) = Responder::new(memory.clone(), GEOMETRY) else { unreachable!("valid geometry") };
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
            3 | 4 => fetch(&mut judge, &mut batch),
            5 => {
                while judge.unanswered() > usize::from(op >> 6) {
                    assert_eq!(judge.respond(Response::Drop), Ok(()));
                }
                let _ = judge.publish();
                // Whatever stands in the word, it is what is slept at.
                if judge.announce_at_futex() && judge.fault().is_none() {
                    assert_eq!(judge.futex_value(), memory.load_u32(P4VM_FUTEX, Ordering::Relaxed));
                }
                judge.retract();
            }
            _ => scribble(&memory, &mut script, op >> 3),
        }
    }
}

fn fetch(judge: &mut Responder<Plain>, batch: &mut RequestBatch) {
    let (before, unanswered) = (judge.fault(), judge.unanswered());
    match judge.fetch(batch) {
        Ok(count) => {
            assert_eq!((count, unanswered + count), (batch.len(), judge.unanswered()));
            assert!(judge.unanswered() <= 8, "no more than there are slots");
        }
        Err(fault) => assert_eq!(judge.fault(), Some(fault)),
    }
    assert!(before.is_none() || judge.fault() == before, "a fault sticks");
    for entry in batch.iter_mut() {
        assert!(entry.len <= 24 && entry.len <= entry.request.packet_len as usize);
        assert_eq!((entry.start, entry.frame.len()), (8, 32));
    }
}

/// A reader of a page on which anything may stand.
///
/// # Panics
/// If a publication is longer than a slot.
pub fn page(script: &[u8]) {
    const SLOTS: u32 = 4;
    const STRIDE: usize = 96;
    let memory = Plain::new(64 + SLOTS as usize * STRIDE);
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
                let place = script.u32() as usize % (memory.len() - 8);
                memory.copy_in(place, &script.array::<8>());
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
