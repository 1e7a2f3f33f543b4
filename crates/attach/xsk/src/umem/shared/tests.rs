use super::super::tests::Buffer;
use super::*;

use rustix::mm::{MprotectFlags, mprotect};

const LEN: usize = 64 << 10;

fn take(buffer: &Buffer) -> Result<Shared, Unfit> {
    // SAFETY: a buffer of this test's, of which the kernel knows nothing.
    unsafe { Shared::take(buffer.addresses()) }
}

/// What is said of the mapping at an address.
fn said_of(address: usize, key: &str) -> String {
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

/// The other side's view of shared memory.
fn other_view(shared: &Shared) -> &'static [u8] {
    let (len, fd) = (shared.addresses.len(), shared.memory());
    // SAFETY: a new mapping, never unmapped, which is only read.
    unsafe {
        let at = mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, fd, 0).unwrap();
        std::slice::from_raw_parts(at.cast::<u8>(), len)
    }
}

#[test]
fn a_buffer_is_shared_where_it_is_and_private_again_with_its_contents() {
    let mut buffer = Buffer::private(LEN);
    let at = buffer.addresses().start;
    let shared = take(&buffer).unwrap();
    assert!(said_of(at, "").contains("p4shield-packets"), "{}", said_of(at, ""));
    buffer.bytes()[5000..5003].copy_from_slice(b"abc");
    let theirs = other_view(&shared);
    assert_eq!(&theirs[5000..5003], b"abc");
    PacketMemory::check(&**shared.memory(), LEN).unwrap();
    drop(shared);
    let line = said_of(at, "");
    assert!(line.contains("rw-p") && !line.contains("p4shield"), "{line}");
    assert_eq!(&buffer.bytes()[5000..5003], b"abc", "contents stay");
    buffer.bytes()[5000] = b'x';
    assert_eq!(theirs[5000], b'a', "what is written now is the application's own");
}

#[test]
fn what_was_written_before_is_shown_to_nobody() {
    let mut buffer = Buffer::private(LEN);
    buffer.bytes()[LEN - 1] = 1;
    assert!(matches!(take(&buffer), Err(Unfit::Used)));
    assert_eq!(buffer.bytes()[LEN - 1], 1);
    assert!(said_of(buffer.addresses().start, "").contains("rw-p"));
}

#[test]
fn memory_that_is_shared_already_or_cut_off_within_a_page_is_left_alone() {
    let shared = Buffer::new(LEN, MapFlags::SHARED).unwrap();
    assert!(matches!(take(&shared), Err(Unfit::NotPrivate)));
    let buffer = Buffer::private(LEN);
    let part = buffer.addresses().start..buffer.addresses().end - 100;
    // SAFETY: as in `take`.
    assert!(matches!(unsafe { Shared::take(part) }, Err(Unfit::Pages)));
    // SAFETY: this test's own mapping.
    unsafe {
        mprotect(std::ptr::with_exposed_provenance_mut(buffer.addresses().start), LEN, MprotectFlags::READ)
            .unwrap();
    }
    assert!(matches!(take(&buffer), Err(Unfit::NotPrivate)));
}

#[test]
fn what_the_application_mapped_anew_meanwhile_stays_as_it_is() {
    let mut buffer = Buffer::private(LEN);
    let (start, half) = (buffer.addresses().start, LEN / 2);
    let shared = take(&buffer).unwrap();
    buffer.bytes()[half] = 7;
    // SAFETY: this test's own mapping; nobody uses what was there before.
    unsafe {
        let at = std::ptr::with_exposed_provenance_mut(start);
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        mmap_anonymous(at, half, ProtFlags::READ | ProtFlags::WRITE, flags).unwrap();
        at.cast::<u8>().write(9);
    }
    drop(shared);
    assert_eq!((buffer.bytes()[0], buffer.bytes()[half]), (9, 7));
    assert!(said_of(start, "").contains("rw-s"), "the application's own: {}", said_of(start, ""));
    assert!(said_of(start + half, "").contains("rw-p"), "given back: {}", said_of(start + half, ""));
}

/// Replaces a buffer by memory that is made like this.
fn replace(
    buffer: &Buffer,
    make: impl FnOnce(u64, usize) -> Result<OwnedFd, Errno>,
) -> Result<Shared, Unfit> {
    // SAFETY: a new buffer of this test's, of ordinary pages, of which the kernel knows nothing.
    unsafe { Shared::replace(buffer.addresses(), PAGE, make) }
}

/// The buffer is as the application made it, and can be written and shared.
#[track_caller]
fn assert_left_alone(buffer: &mut Buffer) {
    let line = said_of(buffer.addresses().start, "");
    assert!(line.contains("rw-p") && !line.contains("p4shield"), "{line}");
    assert!(buffer.bytes().iter().all(|b| *b == 0), "contents stay");
    let start = buffer.addresses().start;
    let remembered = |p: &Place| p.len.load(Acquire) > CHANGING && p.start.load(Relaxed) == start;
    assert!(!PLACES.iter().any(remembered), "a forked child has nothing to give back");
    take(buffer).expect("it was not the buffer's fault");
}

#[test]
fn without_memory_for_a_second_buffer_the_first_stays() {
    for errno in [Errno::NOMEM, Errno::NOSPC, Errno::MFILE] {
        let mut buffer = Buffer::private(LEN);
        let why = replace(&buffer, |_, _| Err(errno)).unwrap_err();
        assert_eq!(why.to_string(), format!("cannot make shared memory: {}", std::io::Error::from(errno)));
        assert_left_alone(&mut buffer);
    }
}

#[test]
fn memory_that_cannot_be_sealed_is_taken_away_again() {
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
#[allow(clippy::print_stdout, reason = "skipped tests say so")]
fn huge_pages_stay_huge_pages() {
    let flags = MapFlags::PRIVATE | MapFlags::HUGETLB;
    let Ok(mut buffer) = Buffer::new(4 << 20, flags) else {
        println!("skipped: no huge pages are reserved (/proc/sys/vm/nr_hugepages)");
        return;
    };
    let at = buffer.addresses().start;
    let shared = match take(&buffer) {
        Ok(shared) => shared,
        Err(why @ Unfit::System { .. }) => {
            println!("skipped: {why}: not enough huge pages for both");
            return;
        }
        Err(why) => panic!("{why}"),
    };
    assert!(said_of(at, "KernelPageSize").contains("2048 kB"), "{}", said_of(at, "KernelPageSize"));
    buffer.bytes()[3 << 20] = 5;
    drop(shared);
    assert!(said_of(at, "KernelPageSize").contains("2048 kB"), "{}", said_of(at, "KernelPageSize"));
    assert_eq!(buffer.bytes()[3 << 20], 5);
}

#[test]
fn buffers_of_the_heap_are_shared_too_and_can_be_freed_afterwards() {
    let layout = std::alloc::Layout::from_size_align(LEN, PAGE).unwrap();
    // SAFETY: a layout with bytes; all uses are within it and end before it is freed.
    unsafe {
        let at = std::alloc::alloc_zeroed(layout);
        let start = at.expose_provenance();
        let shared = Shared::take(start..start + LEN).unwrap();
        at.add(100).write(3);
        drop(shared);
        assert_eq!(at.add(100).read(), 3);
        std::alloc::dealloc(at, layout);
    }
}
