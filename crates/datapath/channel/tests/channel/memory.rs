//! Memory, doorbells and pages against hostile senders, truncation and congestion.

use p4shield_abi::info_page::{INFO_MAGIC, INFO_PAGE_SIZE, INFO_SLOT_STRIDE, INFO_SLOTS};
use p4shield_channel::{
    Doorbell, IdleResult, Memory, PageFault, PageReader, PageWriter, SharedMemory, ShmError, Sleeper,
    WaitPolicy, Waiter,
};
use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{MemfdFlags, SealFlags};
use std::fs::File;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A path that no other test uses, removed at the end.
struct Path(PathBuf);

impl Path {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("p4shield-chan-{}-{name}", std::process::id())))
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn unsealed(len: u64, seals: SealFlags) -> rustix::fd::OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("hostile", flags).expect("memfd");
    rustix::fs::ftruncate(&fd, len).expect("ftruncate");
    rustix::fs::fcntl_add_seals(&fd, seals).expect("seals");
    fd
}

#[test]
fn memory_that_could_shrink_is_refused() {
    for seals in [SealFlags::empty(), SealFlags::GROW | SealFlags::SEAL, SealFlags::SHRINK | SealFlags::GROW]
    {
        let refused = SharedMemory::from_fd(unsealed(4096, seals), 4096);
        assert!(matches!(refused, Err(ShmError::NotSealed { .. })), "{seals:?}");
    }
}

#[test]
fn memory_of_another_size_is_refused() {
    let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    for len in [0, 4095, 4097, 1 << 30] {
        let refused = SharedMemory::from_fd(unsealed(len, all), 4096);
        assert!(matches!(refused, Err(ShmError::Size { expected: 4096, .. })), "{len}");
    }
    assert!(SharedMemory::from_fd(unsealed(4096, all), 4096).is_ok());
    assert!(matches!(SharedMemory::create_memfd("none", 0), Err(ShmError::Length(0))));
}

#[test]
fn created_memory_cannot_be_resized() {
    let memory = SharedMemory::create_memfd("test", 8192).expect("memory");
    for len in [0, 4096, 16384] {
        rustix::fs::ftruncate(memory.fd().expect("a memfd"), len).expect_err("it is sealed");
    }
    rustix::fs::fcntl_add_seals(memory.fd().expect("a memfd"), SealFlags::WRITE)
        .expect_err("seals are sealed");
}

#[test]
fn other_files_than_memfds_are_refused() {
    let file = Path::new("no-memfd");
    std::fs::write(&file.0, [0; 4096]).expect("a file");
    let fd = File::options().read(true).write(true).open(&file.0).expect("a file").into();
    assert!(SharedMemory::from_fd(fd, 4096).is_err());
    let (a, _b) = rustix::pipe::pipe().expect("a pipe");
    assert!(SharedMemory::from_fd(a, 4096).is_err());
}

#[test]
fn page_files_are_opened_safely() {
    let (file, link) = (Path::new("page"), Path::new("link"));
    let memory = SharedMemory::create_file(&file.0, 4096, 0o640).expect("a new file");
    let mode = std::fs::metadata(&file.0).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o640, "whatever the umask");
    memory.store_u64(8, 7, Ordering::Relaxed);
    let other = SharedMemory::open_file(&file.0, 4096).expect("it is there");
    assert_eq!(other.load_u64(8, Ordering::Relaxed), 7);
    assert!(SharedMemory::create_file(&file.0, 4096, 0o640).is_err(), "it exists");
    assert!(matches!(SharedMemory::open_file(&file.0, 8192), Err(ShmError::Size { .. })));
    symlink(&file.0, &link.0).expect("a link");
    assert!(SharedMemory::open_file(&link.0, 4096).is_err(), "links are not followed");
    let directory = std::env::temp_dir();
    assert!(SharedMemory::open_file(&directory, 4096).is_err());
    let fifo = Path::new("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo.0, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .expect("a FIFO");
    let refused = SharedMemory::open_file(&fifo.0, 4096);
    assert!(matches!(refused, Err(ShmError::NotAFile { .. })), "without waiting for a writer: {refused:?}");
}

#[test]
fn a_truncated_page_file_kills_no_process() {
    let file = Path::new("cut");
    let memory = SharedMemory::create_file(&file.0, INFO_PAGE_SIZE, 0o600).expect("a new file");
    let again = memory.map_again().expect("it is a file");
    let mut writer = PageWriter::new(memory, INFO_MAGIC, INFO_SLOTS, INFO_SLOT_STRIDE).expect("it fits");
    let reader = PageReader::new(again, INFO_MAGIC, INFO_SLOTS, INFO_SLOT_STRIDE).expect("it fits");
    let mut buffer = vec![0; reader.room()];
    writer.publish(1, 2, b"sealed").expect("it fits");
    assert!(matches!(reader.newest(&mut buffer), Ok(Some(p)) if p.len == 6));
    File::options().write(true).open(&file.0).expect("it is there").set_len(0).expect("it is truncated");
    assert_eq!(reader.newest(&mut buffer), Err(PageFault::NotAPage));
    assert_eq!(reader.published(), 0);
    assert_eq!(writer.publish(1, 3, b"sealed"), Err(PageFault::NotAPage));
}

#[test]
fn copies_at_every_alignment_and_length_are_exact() {
    let memory = SharedMemory::create_memfd("test", 4096).expect("memory");
    for at in 64..80 {
        for len in 0..40 {
            memory.copy_in(0, &[0xee; 256]);
            let from: Vec<u8> = (1..=len as u8).collect();
            memory.copy_in(at, &from);
            let mut all = [0; 256];
            memory.copy_out(0, &mut all);
            assert!(all[..at].iter().chain(&all[at + len..]).all(|b| *b == 0xee), "{len} bytes at {at}");
            assert_eq!(all[at..at + len], from);
            let mut to = vec![0; len];
            memory.copy_out(at, &mut to);
            assert_eq!(to, from);
        }
    }
}

proptest! {
    #[test]
    fn accesses_outside_the_region_panic(at in 0_usize..10_000, len in 0_usize..10_000) {
        let memory = SharedMemory::create_memfd("test", 4096).expect("memory");
        let inside = at + len <= 4096;
        let run = |f: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).is_ok();
        prop_assert_eq!(run(&|| memory.copy_in(at, &vec![1; len])), inside);
        prop_assert_eq!(run(&|| memory.copy_out(at, &mut vec![1; len])), inside);
        let fits = |size: usize| at + size <= 4096 && at.is_multiple_of(size);
        prop_assert_eq!(run(&|| { memory.load_u32(at, Ordering::Relaxed); }), fits(4));
        prop_assert_eq!(run(&|| memory.store_u64(at, 1, Ordering::Relaxed)), fits(8));
        let fits_in_lines = at.is_multiple_of(64) && at + len.next_multiple_of(64) <= 4096;
        prop_assert_eq!(run(&|| memory.stream_in(at, &vec![1; len])), fits_in_lines || !STREAMS && inside);
        let fits_a_line = at.is_multiple_of(64) && at + 64 <= 4096;
        let fits_words = fits_a_line || !STREAMS && fits(8) && at + 64 <= 4096;
        prop_assert_eq!(run(&|| memory.stream_words(at, [1; 8])), fits_words);
    }

    #[test]
    fn streamed_bytes_fill_their_cache_lines_only(
        line in 0_usize..4,
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let memory = SharedMemory::create_memfd("test", 4096).expect("memory");
        memory.copy_in(0, &[0xee; 4096]);
        memory.stream_in(line * 64, &bytes);
        SharedMemory::stream_fence();
        let mut all = [0; 4096];
        memory.copy_out(0, &mut all);
        let (before, rest) = all.split_at(line * 64);
        let (lines, after) = rest.split_at(bytes.len().next_multiple_of(64));
        prop_assert!(before.iter().chain(after).all(|b| *b == 0xee));
        prop_assert_eq!(&lines[..bytes.len()], &bytes[..]);
        prop_assert!(!STREAMS || lines[bytes.len()..].iter().all(|b| *b == 0), "no leftovers");
    }

    #[test]
    fn streamed_words_are_little_endian(words in any::<[u64; 8]>()) {
        let memory = SharedMemory::create_memfd("test", 4096).expect("memory");
        memory.stream_words(64, words);
        SharedMemory::stream_fence();
        prop_assert_eq!(memory.load_words::<8>(64), words);
    }
}

/// Whether the crate uses streaming stores on this processor.
const STREAMS: bool = cfg!(target_arch = "x86_64");

#[test]
fn a_doorbell_never_waits_for_a_hostile_peer() {
    let (ours, theirs) = Doorbell::pair().expect("sockets");
    // The peer makes its end block and never reads: this end is another description, and only its
    // buffer fills.
    rustix::fs::fcntl_setfl(theirs.fd(), rustix::fs::OFlags::empty()).expect("fcntl");
    rustix::fs::fcntl_setfl(ours.fd(), rustix::fs::OFlags::empty()).expect("even if ours would block");
    for _ in 0..100_000 {
        assert!(ours.ring());
    }
    assert!(ours.drain(), "no ring came");
    drop(theirs);
    assert!(!ours.ring(), "the other end is closed");
    assert!(!ours.drain());
}

#[test]
fn a_doorbell_rings_until_it_is_drained() {
    let (ours, theirs) = Doorbell::pair().expect("sockets");
    let rings = |bell: &Doorbell| {
        let mut fds = [PollFd::new(bell, PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).expect("poll")
            == 1
    };
    assert!(!rings(&theirs));
    assert!(ours.ring() && ours.ring());
    assert!(rings(&theirs) && !rings(&ours));
    assert!(theirs.drain());
    assert!(!rings(&theirs));
}

/// A counter that one thread awaits and another one advances, with the protocol of [`Sleeper`].
#[derive(Default)]
struct Mailbox {
    value: AtomicU64,
    sleeps: AtomicU64,
}

struct Receiver {
    mailbox: Arc<Mailbox>,
    seen: u64,
}

impl Sleeper for Receiver {
    fn announce(&mut self) -> bool {
        self.mailbox.sleeps.store(1, Ordering::SeqCst);
        let nothing = self.mailbox.value.load(Ordering::SeqCst) == self.seen;
        if !nothing {
            self.retract();
        }
        nothing
    }
    fn retract(&mut self) {
        self.mailbox.sleeps.store(0, Ordering::SeqCst);
    }
}

/// There is no limit on sleep: a lost wake-up would hang the test.
#[test]
fn a_waiter_sleeps_and_is_woken_every_time() {
    let (bell, far_bell) = Doorbell::pair().expect("sockets");
    let mailbox = Arc::new(Mailbox::default());
    let theirs = Arc::clone(&mailbox);
    const LETTERS: u64 = 2000;
    let sender = std::thread::spawn(move || {
        for n in 1..=LETTERS {
            theirs.value.store(n, Ordering::SeqCst);
            if theirs.sleeps.load(Ordering::SeqCst) == 1 {
                far_bell.ring();
            }
            if n % 16 == 0 {
                std::thread::yield_now();
            }
        }
    });
    let mut waiter = Waiter::new(WaitPolicy { min_spins: 0, max_spins: 0, yields: 0 });
    let mut receiver = Receiver { mailbox, seen: 0 };
    while receiver.seen < LETTERS {
        let value = receiver.mailbox.value.load(Ordering::SeqCst);
        if value != receiver.seen {
            receiver.seen = value;
            waiter.found_work();
            continue;
        }
        let slept = waiter.idle(&mut receiver, &mut [PollFd::new(&bell, PollFlags::IN)], None).expect("poll");
        if matches!(slept, IdleResult::Slept(_)) {
            bell.drain();
        }
    }
    sender.join().expect("the sender does not panic");
}

/// Counts the polls before each of `times` sleeps; `ringing` makes each sleep short.
fn polls_before_sleep(waiter: &mut Waiter, ringing: bool, times: usize) -> Vec<i32> {
    let (bell, far_bell) = Doorbell::pair().expect("sockets");
    assert!(!ringing || far_bell.ring());
    let mut receiver = Receiver { mailbox: Arc::default(), seen: 0 };
    let mut polls = |_| {
        let fds = &mut [PollFd::new(&bell, PollFlags::IN)];
        let mut polls = 0;
        while waiter.idle(&mut receiver, fds, Some(Duration::ZERO)).expect("poll") == IdleResult::Awake {
            polls += 1;
        }
        polls
    };
    (0..times).map(&mut polls).collect()
}

const SPINNING: WaitPolicy = WaitPolicy { min_spins: 4, max_spins: 64, yields: 0 };

#[test]
fn a_waiter_spins_less_without_work() {
    let mut waiter = Waiter::new(SPINNING);
    assert_eq!(polls_before_sleep(&mut waiter, false, 6), [64, 32, 16, 8, 4, 4]);
}

#[test]
fn trials_of_spinning_become_rarer() {
    let mut waiter = Waiter::new(SPINNING).short_sleep(Duration::from_secs(3600));
    assert_eq!(polls_before_sleep(&mut waiter, false, 5), [64, 32, 16, 8, 4]);
    let polls = polls_before_sleep(&mut waiter, true, 5000);
    let trials: Vec<usize> = (0..polls.len()).filter(|i| polls[*i] == 64).collect();
    assert_eq!(trials[..5], [1, 4, 9, 18, 35], "each after twice as many short sleeps");
    assert!(trials[9..].windows(2).all(|w| w[1] - w[0] == 1025), "and never given up: {trials:?}");
}

fn page() -> (PageWriter, PageReader, SharedMemory) {
    let memory = SharedMemory::create_memfd("page", INFO_PAGE_SIZE).expect("memory");
    let hostile = memory.map_again().expect("memory");
    let reader =
        PageReader::new(memory.map_again().expect("memory"), INFO_MAGIC, INFO_SLOTS, INFO_SLOT_STRIDE);
    let writer = PageWriter::new(memory, INFO_MAGIC, INFO_SLOTS, INFO_SLOT_STRIDE);
    (writer.expect("it fits"), reader.expect("it fits"), hostile)
}

#[test]
fn pages_return_their_publications() {
    let (mut writer, reader, _) = page();
    let mut buffer = vec![0; reader.room()];
    assert_eq!(reader.newest(&mut buffer), Ok(None));
    for n in 0..10_u64 {
        let sealed = vec![n as u8; 100 + n as usize];
        assert_eq!(writer.publish(3, n * 2, &sealed), Ok(n));
        let newest = reader.newest(&mut buffer).expect("it is whole").expect("it is there");
        assert_eq!((newest.index, newest.epoch, newest.counter, newest.len), (n, 3, n * 2, sealed.len()));
        assert_eq!(buffer[..newest.len], sealed);
        assert_eq!(reader.published(), n + 1);
    }
    assert!(reader.read(8, &mut buffer).is_ok());
    assert_eq!(reader.read(7, &mut buffer), Err(PageFault::Torn(7)), "overwritten");
    assert_eq!(reader.read(10, &mut buffer), Err(PageFault::Torn(10)), "not published yet");
    let room = reader.room();
    assert_eq!(writer.publish(1, 1, &vec![0; room + 1]), Err(PageFault::TooLong { len: room + 1, room }));
}

#[test]
fn a_restarted_writer_continues_the_count() {
    let (mut writer, reader, memory) = page();
    writer.publish(1, 0, b"old").expect("it fits");
    drop(writer);
    let mut writer = PageWriter::new(memory, INFO_MAGIC, INFO_SLOTS, INFO_SLOT_STRIDE).expect("it fits");
    assert_eq!(writer.publish(2, 0, b"newer"), Ok(1));
    let mut buffer = vec![0; reader.room()];
    assert!(matches!(reader.read(0, &mut buffer), Ok(p) if p.epoch == 1));
    assert!(matches!(reader.newest(&mut buffer), Ok(Some(p)) if p.epoch == 2));
}

#[test]
fn false_page_contents_are_faults() {
    let mut buffer = vec![0; 4096];
    let (mut writer, reader, hostile) = page();
    writer.publish(1, 1, b"sealed").expect("it fits");
    hostile.store_u64(64 + 24, u64::from(u32::MAX), Ordering::Relaxed);
    let room = reader.room() as u32;
    assert_eq!(reader.newest(&mut buffer), Err(PageFault::Length { len: u32::MAX, room }));
    hostile.store_u64(64, 1, Ordering::Relaxed);
    assert_eq!(reader.newest(&mut buffer), Err(PageFault::Torn(0)), "being written for ever");
    hostile.store_u64(24, u64::MAX, Ordering::Relaxed);
    assert!(matches!(reader.newest(&mut buffer), Err(PageFault::Torn(_))), "publications that do not exist");
    hostile.store_u64(0, 0, Ordering::Relaxed);
    assert_eq!(reader.newest(&mut buffer), Err(PageFault::NotAPage));
    let (mut writer, reader, _) = page();
    writer.publish(1, 1, &[7; 100]).expect("it fits");
    assert_eq!(reader.newest(&mut buffer[..99]), Err(PageFault::TooLong { len: 100, room: 99 }));
}
