use super::super::tests::Buffer;
use super::*;

use p4shield_testbed::HugePages;
use rustix::mm::{MprotectFlags, mprotect};

const LEN: usize = 64 << 10;

fn take(buffer: &Buffer) -> Result<SharedBuffer, NotShareable> {
    // SAFETY: a buffer of this test, which the kernel does not use.
    unsafe { SharedBuffer::take(buffer.addresses()) }
}

/// Returns the line with `key` of the smaps entry of an address; the entry's first line for an empty
/// key.
fn smaps_line(address: usize, key: &str) -> String {
    let smaps = read_to_string("/proc/self/smaps").unwrap();
    let begins = |l: &&str| {
        let range = l.split_whitespace().next().and_then(|w| w.split_once('-'));
        let hex = |t| usize::from_str_radix(t, 16).ok();
        range.and_then(|(a, b)| Some((hex(a)?..hex(b)?).contains(&address))).unwrap_or_default()
    };
    let mut lines = smaps.lines().skip_while(|l| !begins(l));
    let first = lines.next().unwrap().to_owned();
    if key.is_empty() { first } else { lines.find(|l| l.starts_with(key)).unwrap().to_owned() }
}

/// Maps the shared memory as a P4 VM does.
fn other_view(shared: &SharedBuffer) -> &'static [u8] {
    let (len, fd) = (shared.addresses.len(), shared.memory());
    // SAFETY: a new mapping that is only read and never unmapped.
    unsafe {
        let at = mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, fd, 0).unwrap();
        std::slice::from_raw_parts(at.cast::<u8>(), len)
    }
}

#[test]
fn a_buffer_is_shared_in_place_and_made_private_again() {
    let mut buffer = Buffer::private(LEN);
    let at = buffer.addresses().start;
    let shared = take(&buffer).unwrap();
    assert!(smaps_line(at, "").contains("p4shield-packets"), "{}", smaps_line(at, ""));
    buffer.bytes()[5000..5003].copy_from_slice(b"abc");
    let other = other_view(&shared);
    assert_eq!(&other[5000..5003], b"abc");
    PacketMemory::check(&**shared.memory(), LEN).unwrap();
    drop(shared);
    let line = smaps_line(at, "");
    assert!(line.contains("rw-p") && !line.contains("p4shield"), "{line}");
    assert_eq!(&buffer.bytes()[5000..5003], b"abc", "contents stay");
    buffer.bytes()[5000] = b'x';
    assert_eq!(other[5000], b'a', "writes are private again");
}

#[test]
fn a_buffer_written_before_registration_is_not_shared() {
    let mut buffer = Buffer::private(LEN);
    buffer.bytes()[LEN - 1] = 1;
    assert!(matches!(take(&buffer), Err(NotShareable::Used)));
    assert_eq!(buffer.bytes()[LEN - 1], 1);
    assert!(smaps_line(buffer.addresses().start, "").contains("rw-p"));
}

#[test]
fn shared_memory_and_partial_pages_are_not_replaced() {
    let shared = Buffer::new(LEN, MapFlags::SHARED).unwrap();
    assert!(matches!(take(&shared), Err(NotShareable::NotPrivate)));
    let buffer = Buffer::private(LEN);
    let part = buffer.addresses().start..buffer.addresses().end - 100;
    // SAFETY: as in `take`.
    assert!(matches!(unsafe { SharedBuffer::take(part) }, Err(NotShareable::Pages)));
    // SAFETY: this test's own mapping.
    unsafe {
        mprotect(std::ptr::with_exposed_provenance_mut(buffer.addresses().start), LEN, MprotectFlags::READ)
            .unwrap();
    }
    assert!(matches!(take(&buffer), Err(NotShareable::NotPrivate)));
}

#[test]
fn mappings_that_the_application_made_meanwhile_stay() {
    let mut buffer = Buffer::private(LEN);
    let (start, half) = (buffer.addresses().start, LEN / 2);
    let shared = take(&buffer).unwrap();
    buffer.bytes()[half] = 7;
    // SAFETY: this test's own mapping; what was there before is not used any more.
    unsafe {
        let at = std::ptr::with_exposed_provenance_mut(start);
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        mmap_anonymous(at, half, ProtFlags::READ | ProtFlags::WRITE, flags).unwrap();
        at.cast::<u8>().write(9);
    }
    drop(shared);
    assert_eq!((buffer.bytes()[0], buffer.bytes()[half]), (9, 7));
    assert!(
        smaps_line(start, "").contains("rw-s"),
        "the application's own mapping: {}",
        smaps_line(start, "")
    );
    assert!(smaps_line(start + half, "").contains("rw-p"), "private again: {}", smaps_line(start + half, ""));
}

/// Replaces a buffer by memory that `make` creates.
fn replace(
    buffer: &Buffer,
    make: impl FnOnce(u64, usize) -> Result<OwnedFd, Errno>,
) -> Result<SharedBuffer, NotShareable> {
    // SAFETY: a new buffer of this test in base pages, which the kernel does not use.
    unsafe { SharedBuffer::replace(buffer.addresses(), PAGE, make) }
}

/// Asserts that the buffer is private, holds zeros, and can still be shared.
#[track_caller]
fn assert_left_alone(buffer: &mut Buffer) {
    let line = smaps_line(buffer.addresses().start, "");
    assert!(line.contains("rw-p") && !line.contains("p4shield"), "{line}");
    assert!(buffer.bytes().iter().all(|b| *b == 0), "contents stay");
    let start = buffer.addresses().start;
    let remembered = |p: &ForkRecord| p.len.load(Acquire) > CHANGING && p.start.load(Relaxed) == start;
    assert!(!FORK_RECORDS.iter().any(remembered), "a forked child has nothing to restore");
    take(buffer).expect("the buffer itself is shareable");
}

#[test]
fn without_memory_for_a_copy_the_buffer_stays() {
    for errno in [Errno::NOMEM, Errno::NOSPC, Errno::MFILE] {
        let mut buffer = Buffer::private(LEN);
        let why = replace(&buffer, |_, _| Err(errno)).unwrap_err();
        assert_eq!(why.to_string(), format!("cannot make shared memory: {}", std::io::Error::from(errno)));
        assert_left_alone(&mut buffer);
    }
}

#[test]
fn unsealable_memory_is_not_shared() {
    let mut buffer = Buffer::private(LEN);
    let why = replace(&buffer, |len, _| {
        // Without ALLOW_SEALING the kernel refuses every seal.
        let memory = memfd_create("p4shield-packets", MemfdFlags::CLOEXEC)?;
        ftruncate(&memory, len)?;
        Ok(memory)
    });
    let why = why.unwrap_err().to_string();
    assert!(why.starts_with("cannot seal shared memory: "), "{why}");
    assert_left_alone(&mut buffer);
}

#[test]
fn huge_pages_stay_huge_pages() {
    let reserved = HugePages::reserve(8);
    let flags = MapFlags::PRIVATE | MapFlags::HUGETLB;
    let Ok(mut buffer) = Buffer::new(4 << 20, flags) else {
        p4shield_need::skip("huge-pages", format_args!("the kernel reserves none: {reserved:?}"));
        return;
    };
    let at = buffer.addresses().start;
    let shared = match take(&buffer) {
        Ok(shared) => shared,
        Err(why @ NotShareable::System { .. }) => {
            p4shield_need::skip("huge-pages", format_args!("{why}: not enough huge pages for both"));
            return;
        }
        Err(why) => panic!("{why}"),
    };
    assert!(smaps_line(at, "KernelPageSize").contains("2048 kB"), "{}", smaps_line(at, "KernelPageSize"));
    buffer.bytes()[3 << 20] = 5;
    drop(shared);
    assert!(smaps_line(at, "KernelPageSize").contains("2048 kB"), "{}", smaps_line(at, "KernelPageSize"));
    assert_eq!(buffer.bytes()[3 << 20], 5);
}

#[test]
fn heap_buffers_are_shared_and_can_be_freed() {
    let layout = std::alloc::Layout::from_size_align(LEN, PAGE).unwrap();
    // SAFETY: a layout with bytes; all uses are within it and end before it is freed.
    unsafe {
        let at = std::alloc::alloc_zeroed(layout);
        let start = at.expose_provenance();
        let shared = SharedBuffer::take(start..start + LEN).unwrap();
        at.add(100).write(3);
        drop(shared);
        assert_eq!(at.add(100).read(), 3);
        std::alloc::dealloc(at, layout);
    }
}
