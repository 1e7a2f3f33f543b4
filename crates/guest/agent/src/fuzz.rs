//! Entry points for fuzzers: every parser of foreign input in this crate. No parser may panic, hang, or
//! accept data that was not sealed.

use std::sync::atomic::Ordering::Relaxed;

use p4shield_abi::info::Snapshot;
use p4shield_abi::info_page::{INFO_MAGIC, INFO_PAGE_SIZE, INFO_SLOT_STRIDE, INFO_SLOTS};
use p4shield_abi::log_page::LogRecord;
use p4shield_abi::log_page::{LOG_MAGIC, LOG_PAGE_SIZE, LOG_SLOT_STRIDE, LOG_SLOTS};
use p4shield_abi::page::{PAGE_HEADER_SIZE, PAGE_VERSION};
use p4shield_channel::{Memory, PageReader, PageWriter, SharedMemory};
use p4shield_seal::{
    AgeLimit, Epoch, Identity, InfoOpener, InfoRefusal, InfoSealer, LogSealer, Now, TenantKey,
};

pub use crate::collect::parse::fuzz as proc_files;
pub use crate::control::fuzz as control_line;

const KEY: TenantKey = TenantKey::from_bytes([1; 32]);
const IDENTITY: Identity<'_> = Identity { tenant: "t", vm: "v" };
/// A value that marks genuine records.
const MARK: u64 = 0x600d;

/// Maps the same memory again.
fn map_again(memory: &SharedMemory) -> SharedMemory {
    let fd = memory.fd().and_then(|fd| fd.try_clone_to_owned().ok()).expect("a memfd has a descriptor");
    SharedMemory::from_fd(fd, memory.len()).expect("the memory was mapped before")
}

/// Overwrites a page of three genuine publications with `bytes`. The first two bytes are the offset from
/// the end of the header in units of four bytes, the next eight the number of publications that the page
/// claims.
fn overwrite(memory: &SharedMemory, bytes: &[u8]) {
    let Some((head, scribble)) = bytes.split_first_chunk::<10>() else { return };
    let room = memory.len() - PAGE_HEADER_SIZE;
    let at = usize::from(u16::from_le_bytes([head[0], head[1]])) * 4 % room;
    memory.copy_in(PAGE_HEADER_SIZE + at, &scribble[..scribble.len().min(room - at)]);
    let claimed = u64::from_le_bytes(*head[2..].first_chunk().expect("eight of ten bytes"));
    // Half of the claims are small, because the genuine publications have small numbers.
    let claimed = if claimed.is_multiple_of(2) { claimed % 8 } else { claimed };
    memory.store_u64(24, claimed, Relaxed);
}

/// Fuzzes the reader and the opener of an info page.
///
/// # Panics
///
/// If the opener accepts data that was not sealed, or the machine has no shared memory.
pub fn info_page(bytes: &[u8]) {
    let memory = SharedMemory::create_memfd("fuzz-info", INFO_PAGE_SIZE).expect("some memory");
    let mut writer = PageWriter::new(map_again(&memory), INFO_MAGIC, INFO_SLOTS, INFO_SLOT_STRIDE)
        .expect("the layout is right");
    let now = Now::read();
    let mut sealer = InfoSealer::new(&KEY, &IDENTITY, Epoch::from_clock().expect("randomness"));
    for _ in 0..3 {
        let mut snapshot = Snapshot::default();
        snapshot.taken_ns = now.real_ns;
        snapshot.set(0, MARK);
        let s = sealer.seal(&snapshot);
        writer.publish(s.epoch, s.counter, s.bytes).expect("it fits");
    }
    overwrite(&memory, bytes);
    let reader = PageReader::new(map_again(&memory), INFO_MAGIC, INFO_SLOTS, INFO_SLOT_STRIDE)
        .expect("the layout is right");
    let mut opener = InfoOpener::new(&KEY, &IDENTITY, AgeLimit::default());
    let mut buffer = vec![0; reader.room()];
    let mut open = |publication: Option<p4shield_channel::Publication>, buffer: &[u8]| {
        let Some(p) = publication else { return };
        match opener.open(p.epoch, p.counter, &buffer[..p.len], now) {
            Ok(s) => assert_eq!(s.get(0), Some(MARK), "accepted data that was not sealed"),
            Err(InfoRefusal::Stale { .. } | InfoRefusal::Future { .. }) => {
                panic!("opened data that was not sealed")
            }
            Err(_) => {}
        }
    };
    for index in 0..4 {
        let publication = reader.read(index, &mut buffer).ok();
        open(publication, &buffer);
    }
    let newest = reader.newest(&mut buffer).ok().flatten();
    open(newest, &buffer);
}

/// Fuzzes the reader and the opener of a log page.
///
/// # Panics
///
/// If the opener accepts data that was not sealed, or the machine has no shared memory.
pub fn log_page(bytes: &[u8]) {
    let memory = SharedMemory::create_memfd("fuzz-log", LOG_PAGE_SIZE).expect("some memory");
    let mut writer = PageWriter::new(map_again(&memory), LOG_MAGIC, LOG_SLOTS, LOG_SLOT_STRIDE).expect(
        "the layout is \
                                                                                           right",
    );
    let mut sealer = LogSealer::new(&KEY, &IDENTITY, Epoch::from_clock().expect("randomness"));
    for _ in 0..3 {
        let s = sealer.seal(&LogRecord { published_ns: MARK, ..LogRecord::default() });
        writer.publish(s.epoch, s.counter, s.bytes).expect("it fits");
    }
    overwrite(&memory, bytes);
    crate::auditor::fuzz_log_page(memory, &KEY, &IDENTITY, &mut |opened| {
        assert_eq!(opened.record.published_ns, MARK, "accepted data that was not sealed");
    });
    const { assert!(PAGE_VERSION == 1, "the offsets above are those of version 1") };
}
