//! Model checks of the rings, the pages and the sleep protocol: every interleaving, and every value
//! that the memory model allows a load to return. The code is the production code; only the memory is
//! loom's.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p p4shield-channel --test loom --release`.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::sync::{Arc, Condvar, Mutex, Notify};
use loom::thread;
use p4shield_abi::Verdict;
use p4shield_abi::channel::{
    Geometry, HEADER_SIZE, MEDIATOR_SLEEPS, P4VM_FUTEX, P4VM_SLEEPS, REQUEST_HEAD, Request, SENT,
    VERDICT_HEAD, VERDICT_TAIL,
};
use p4shield_abi::page::{PAGE_HEADER_SIZE, SLOT_HEADER_SIZE};
use p4shield_channel::{Memory, PageFault, PageReader, PageWriter, Requester, Responder, Response, Sleeper};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

const WORD: usize = 8;

/// Memory of a channel. Indexes and flags are loom's atomics. Everything else is cells that loom
/// checks: if the protocol let both ends access one word at once, loom would report the race.
struct Cells {
    indexes: BTreeMap<usize, AtomicU32>,
    words: Vec<UnsafeCell<[u8; WORD]>>,
}

#[derive(Clone)]
struct Ring(Arc<Cells>);

impl Ring {
    fn new(geometry: &Geometry) -> Self {
        let words =
            [REQUEST_HEAD, VERDICT_HEAD, VERDICT_TAIL, P4VM_SLEEPS, MEDIATOR_SLEEPS, P4VM_FUTEX, SENT];
        let indexes = words.map(|at| (at, AtomicU32::new(0))).into_iter().collect();
        let mut image = vec![0_u8; geometry.size()];
        let h = geometry.header();
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            image[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&h.magic.to_le_bytes());
        for field in [h.version, h.slots, h.header_bytes, h.headroom, h.frame_stride, h.reserved] {
            put(&field.to_le_bytes());
        }
        put(&h.size.to_le_bytes());
        let words =
            image.chunks(WORD).map(|w| UnsafeCell::new(w.try_into().expect("size is a multiple"))).collect();
        Self(Arc::new(Cells { indexes, words }))
    }
}

impl Memory for Ring {
    fn len(&self) -> usize {
        self.0.words.len() * WORD
    }
    fn load_u32(&self, at: usize, order: Ordering) -> u32 {
        self.0.indexes[&at].load(order)
    }
    fn store_u32(&self, at: usize, value: u32, order: Ordering) {
        self.0.indexes[&at].store(value, order);
    }
    fn load_u64(&self, at: usize, _: Ordering) -> u64 {
        // SAFETY: loom panics if another thread accesses the cell at the same time.
        self.0.words[at / WORD].with(|w| u64::from_le_bytes(unsafe { *w }))
    }
    fn store_u64(&self, at: usize, value: u64, _: Ordering) {
        // SAFETY: as above.
        self.0.words[at / WORD].with_mut(|w| unsafe { *w = value.to_le_bytes() });
    }
    fn copy_out(&self, at: usize, to: &mut [u8]) {
        for (i, byte) in to.iter_mut().enumerate() {
            // SAFETY: as above.
            *byte = self.0.words[(at + i) / WORD].with(|w| unsafe { (*w)[(at + i) % WORD] });
        }
    }
    fn copy_in(&self, at: usize, from: &[u8]) {
        for (i, byte) in from.iter().enumerate() {
            // SAFETY: as above.
            self.0.words[(at + i) / WORD].with_mut(|w| unsafe { (*w)[(at + i) % WORD] = *byte });
        }
    }
    fn fence(order: Ordering) {
        loom::sync::atomic::fence(order);
    }
}

const TINY: Geometry = Geometry { slots: 2, header_bytes: 8, headroom: 8 };

fn ends() -> (Requester<Ring>, Responder<Ring>) {
    assert!(TINY.requests() >= HEADER_SIZE);
    let ring = Ring::new(&TINY);
    (
        Requester::new(ring.clone(), TINY).expect("geometry is valid"),
        Responder::new(ring, TINY).expect("geometry is valid"),
    )
}

fn request(id: u64) -> Request {
    Request { id, packet_len: 100, ..Request::default() }
}

/// Answers all published requests: odd packets are dropped, even ones changed. Returns how many.
fn answer_all(responder: &mut Responder<Ring>) -> usize {
    let mut fetched = Vec::new();
    let count = responder
        .fetch_with(32, |request, frame| {
            let mut header = [0; 8];
            let len = frame.copy_to(&mut header);
            assert_eq!(&header[..len], &[request.id as u8; 4], "the frame is the one of its request");
            fetched.push(request.id);
        })
        .expect("the mediator is honest");
    for id in fetched {
        let new = [id as u8 + 100; 6];
        let response =
            if id % 2 == 1 { Response::Drop } else { Response::Rewritten { header: &new, packet_len: 102 } };
        responder.respond(response).expect("it fits");
    }
    count
}

fn take_all(requester: &mut Requester<Ring>, next: &mut u64) -> usize {
    requester
        .take(32, |answer| {
            assert_eq!(answer.id, *next, "answers come in order, each once");
            *next += 1;
            if answer.id % 2 == 1 {
                assert_eq!(answer.verdict, Verdict::Drop);
            } else {
                let rewrite = answer.rewrite.expect("even packets are rewritten");
                assert_eq!(rewrite.header, [answer.id as u8 + 100; 6]);
            }
        })
        .expect("the P4 VM is honest")
}

/// Submits `packets` packets, each published by itself; calls `wake` if the P4 VM sleeps.
fn submit(requester: &mut Requester<Ring>, packets: u64, wake: impl Fn(&mut Requester<Ring>)) {
    for id in 0..packets {
        requester.push(&request(id), &[id as u8; 4]).expect("there is a slot");
        if requester.publish() {
            wake(requester);
        }
    }
}

/// Three packets through two slots: both rings wrap, and slots are reused while the P4 VM works.
#[test]
fn slots_change_owner_without_a_race() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        const PACKETS: u64 = 3;
        let (mut requester, mut responder) = ends();
        let responding = thread::spawn(move || {
            let mut judged = 0;
            while judged < PACKETS as usize {
                let n = answer_all(&mut responder);
                let _ = responder.publish();
                judged += n;
                if n == 0 {
                    thread::yield_now();
                }
            }
        });
        let (mut pushed, mut taken) = (0, 0);
        while taken < PACKETS {
            while pushed < PACKETS && requester.push(&request(pushed), &[pushed as u8; 4]).is_ok() {
                pushed += 1;
            }
            let _ = requester.publish();
            if take_all(&mut requester, &mut taken) == 0 {
                thread::yield_now();
            }
        }
        responding.join().expect("the P4 VM thread does not panic");
    });
}

/// Both ends sleep whenever they have no work. A lost wake-up is a deadlock, which loom reports.
#[test]
fn no_wake_up_is_lost() {
    let mut model = loom::model::Builder::new();
    // With three preemptions, the repeated polls take an hour.
    model.preemption_bound = Some(2);
    model.check(|| {
        const PACKETS: u64 = 2;
        let (mut requester, mut responder) = ends();
        let (to_p4vm, to_mediator) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (bell, answer_bell) = (to_p4vm.clone(), to_mediator.clone());
        let responding = thread::spawn(move || {
            let mut judged = 0;
            while judged < PACKETS as usize {
                let n = answer_all(&mut responder);
                if responder.publish() {
                    answer_bell.notify();
                }
                judged += n;
                if n == 0 && responder.announce() {
                    bell.wait();
                    responder.retract();
                }
            }
        });
        let mut taken = 0;
        submit(&mut requester, PACKETS, |_| to_p4vm.notify());
        while taken < PACKETS {
            if take_all(&mut requester, &mut taken) != 0 {
                continue;
            }
            if requester.must_wake() {
                to_p4vm.notify();
            } else if requester.announce() {
                to_mediator.wait();
                requester.retract();
            }
        }
        responding.join().expect("the P4 VM thread does not panic");
    });
}

/// The kernel's futex: the sleeper reads the word once more behind a lock, which the waking thread
/// takes, too.
#[derive(Default)]
struct Futex {
    lock: Mutex<()>,
    woken: Condvar,
}

impl Futex {
    fn wait(&self, ring: &Ring, seen: u32) {
        let mut lock = self.lock.lock().expect("no thread panics");
        // There is one wake-up, and the word never changes back, so one check is enough.
        if ring.load_u32(P4VM_FUTEX, Ordering::SeqCst) == seen {
            lock = self.woken.wait(lock).expect("no thread panics");
        }
        drop(lock);
    }

    fn wake(&self) {
        let _lock = self.lock.lock().expect("no thread panics");
        self.woken.notify_one();
    }
}

/// The P4 VM sleeps at its futex, the mediator polls.
#[test]
fn no_wake_up_at_a_futex_is_lost() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        const PACKETS: u64 = 2;
        let ring = Ring::new(&TINY);
        let mut requester = Requester::new(ring.clone(), TINY).expect("geometry is valid");
        let mut responder = Responder::new(ring.clone(), TINY).expect("geometry is valid");
        let futex = Arc::new(Futex::default());
        let p4vm_futex = futex.clone();
        let responding = thread::spawn(move || {
            let mut judged = 0;
            while judged < PACKETS as usize {
                let n = answer_all(&mut responder);
                let _ = responder.publish();
                judged += n;
                if n == 0 && responder.announce_at_futex() {
                    p4vm_futex.wait(&ring, responder.futex_value());
                    responder.retract();
                }
            }
        });
        let mut taken = 0;
        let wake = |requester: &mut Requester<Ring>| {
            assert!(requester.bump_futex(), "it sleeps at the futex");
            futex.wake();
        };
        submit(&mut requester, PACKETS, wake);
        while taken < PACKETS {
            if take_all(&mut requester, &mut taken) == 0 {
                if requester.must_wake() {
                    wake(&mut requester);
                }
                thread::yield_now();
            }
        }
        responding.join().expect("the P4 VM thread does not panic");
    });
}

/// A page. All words are atomics, because a seqlock's reader reads words that are being written and
/// discards them.
#[derive(Clone)]
struct Page(Arc<Vec<AtomicU64>>);

impl Memory for Page {
    fn len(&self) -> usize {
        self.0.len() * WORD
    }
    fn load_u32(&self, _: usize, _: Ordering) -> u32 {
        unreachable!("pages are made of u64s")
    }
    fn store_u32(&self, _: usize, _: u32, _: Ordering) {
        unreachable!("pages are made of u64s")
    }
    fn load_u64(&self, at: usize, order: Ordering) -> u64 {
        self.0[at / WORD].load(order)
    }
    fn store_u64(&self, at: usize, value: u64, order: Ordering) {
        self.0[at / WORD].store(value, order);
    }
    fn copy_out(&self, at: usize, to: &mut [u8]) {
        for (i, word) in to.chunks_mut(WORD).enumerate() {
            word.copy_from_slice(&self.load_u64(at + i * WORD, Ordering::Relaxed).to_le_bytes());
        }
    }
    fn copy_in(&self, at: usize, from: &[u8]) {
        for (i, word) in from.chunks(WORD).enumerate() {
            let value = u64::from_le_bytes(word.try_into().expect("whole words"));
            self.store_u64(at + i * WORD, value, Ordering::Relaxed);
        }
    }
    fn fence(order: Ordering) {
        loom::sync::atomic::fence(order);
    }
}

/// One slot, which the second publication overwrites during the read.
#[test]
fn a_publication_is_read_whole_or_not_at_all() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        const STRIDE: usize = SLOT_HEADER_SIZE + WORD;
        let words = (0..(PAGE_HEADER_SIZE + STRIDE) / WORD).map(|_| AtomicU64::new(0)).collect();
        let page = Page(Arc::new(words));
        let mut writer = PageWriter::new(page.clone(), 7, 1, STRIDE).expect("it fits");
        writer.publish(1, 1, &[1; WORD]).expect("it fits");
        let writing = thread::spawn(move || {
            writer.publish(2, 2, &[2; WORD]).expect("it fits");
        });
        let reader = PageReader::new(page, 7, 1, STRIDE).expect("it fits");
        let mut buffer = [0; WORD];
        match reader.read(0, &mut buffer) {
            Ok(p) => assert_eq!((p.epoch, p.counter, buffer), (1, 1, [1; WORD])),
            Err(e) => assert_eq!(e, PageFault::Torn(0)),
        }
        match reader.read(1, &mut buffer) {
            Ok(p) => assert_eq!((p.epoch, p.counter, buffer), (2, 2, [2; WORD])),
            Err(e) => assert_eq!(e, PageFault::Torn(1)),
        }
        writing.join().expect("the writer does not panic");
    });
}
