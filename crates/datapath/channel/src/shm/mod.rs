//! Shared memory, and protection against peers that truncate it.
//!
//! A process that accesses a mapping beyond the end of its file receives `SIGBUS`. A party that can
//! truncate the file could therefore kill the processes that map it, which between tenants is an
//! attack. Each kind of memory has its protection:
//!
//! * **memfd** (channels). Its creator seals it with `F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL`,
//!   which cannot be undone. A receiver checks the seals first and the size after them, so the size
//!   is final.
//! * **Device memory** (channels of a P4 VM in a virtual machine): the kernel's file for a base address
//!   register in sysfs, whose size is the device's.
//! * **Page file** (info page and log page of a P4 VM in a process; a virtual machine has an ivshmem
//!   BAR of fixed size). A file cannot be sealed, so mapping one registers it with [`sigbus`]: if the
//!   file is truncated, zeros replace the mapping, which no reader takes for a publication, and the
//!   process continues.

mod map;
mod packets;
mod sigbus;
#[cfg(target_arch = "x86_64")]
mod stream;
mod vector;

use crate::error::ShmError;
use crate::futex::{self, FutexScope, FutexWait};
use crate::memory::Memory;
use map::Mmap;
pub use packets::PacketMemory;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FallocateFlags, FileType, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use std::path::Path;
use std::sync::atomic::Ordering;

/// A mapping of memory: of a file or a device.
///
/// # Safety
/// `base` is the start of `len` bytes that stay readable and writable, are aligned to 64 bytes, and are not
/// accessed through Rust references, for as long as the value lives.
pub unsafe trait Mapping: Send + Sync {
    /// Returns the address of the first byte.
    fn base(&self) -> *mut u8;
    /// Returns its length in bytes.
    fn len(&self) -> usize;
    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A mapped region that other parties map, too.
///
/// Every access is atomic, word by word, so threads may share it.
pub struct SharedMemory {
    base: *mut u8,
    len: usize,
    fd: Option<OwnedFd>,
    /// Keeps `base` valid; dropped last.
    _mapping: Box<dyn Mapping>,
}

// SAFETY: the pointer is to memory owned by `_mapping`, which is `Send + Sync`, and is accessed
// atomically only.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl std::fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedMemory").field("len", &self.len).field("fd", &self.fd).finish_non_exhaustive()
    }
}

/// Seals that a memfd must have before it is mapped.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

fn system(call: &'static str) -> impl FnOnce(Errno) -> ShmError {
    move |source| ShmError::System { call, source }
}

impl SharedMemory {
    /// Creates a memfd of `len` zeroed bytes that can never be resized. `name` shows in
    /// `/proc/*/maps`. All pages are allocated here, not at the first packet.
    ///
    /// # Errors
    /// If `len` is zero or memory is short.
    pub fn create_memfd(name: &str, len: usize) -> Result<Self, ShmError> {
        let size = check_len(len)?;
        let fd = memfd(name).map_err(system("memfd_create"))?;
        rustix::fs::ftruncate(&fd, size).map_err(system("ftruncate"))?;
        rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, size).map_err(system("fallocate"))?;
        rustix::fs::fcntl_add_seals(&fd, SEALS).map_err(system("fcntl(F_ADD_SEALS)"))?;
        Self::from_fd(fd, len)
    }

    /// Maps a memfd or device memory that the other party sent.
    ///
    /// # Errors
    /// If it is not sealed against changes of its size, or its size is not `len`.
    pub fn from_fd(fd: OwnedFd, len: usize) -> Result<Self, ShmError> {
        let expected = check_len(len)?;
        match rustix::fs::fcntl_get_seals(&fd) {
            Ok(seals) if seals.contains(SEALS) => {}
            Err(Errno::INVAL) if is_device(&fd)? => {}
            Ok(seals) => return Err(ShmError::NotSealed { seals: seals.bits() }),
            Err(source) => return Err(system("fcntl(F_GET_SEALS)")(source)),
        }
        let actual = rustix::fs::fstat(&fd).map_err(system("fstat"))?.st_size as u64;
        if actual != expected {
            return Err(ShmError::Size { expected, actual });
        }
        let mapping = Mmap::new(&fd, len).map_err(system("mmap"))?;
        Ok(Self::with_mapping(Box::new(mapping), Some(fd)))
    }

    /// Creates a page file of `len` zeroed bytes with permissions `mode` (for example `0o600`).
    ///
    /// # Errors
    /// If the path exists (remove the old file first: another process may still map it), or the file
    /// cannot be created.
    pub fn create_file(path: &Path, len: usize, mode: u32) -> Result<Self, ShmError> {
        let size = check_len(len)?;
        let fail = |call| move |source| ShmError::File { path: path.to_owned(), call, source };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::from_raw_mode(mode)).map_err(fail("open"))?;
        // `open` applies the umask, but another user may have to open the page.
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode)).map_err(fail("fchmod"))?;
        rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, size).map_err(fail("fallocate"))?;
        Self::map_file(fd, path, len)
    }

    /// Maps a page file that another process created.
    ///
    /// # Errors
    /// If it is a symbolic link or not a regular file, or its size is not `len`.
    pub fn open_file(path: &Path, len: usize) -> Result<Self, ShmError> {
        check_len(len)?;
        // NONBLOCK: if the path is a FIFO, opening must not wait for its other end.
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|source| ShmError::File {
            path: path.to_owned(),
            call: "open",
            source,
        })?;
        Self::map_file(fd, path, len)
    }

    /// Maps a page file that another process opened and sent: like [`Self::open_file`] for a process
    /// without a file system.
    ///
    /// # Errors
    /// If it is not a regular file, or its size is not `len`.
    pub fn from_page_fd(fd: OwnedFd, len: usize) -> Result<Self, ShmError> {
        check_len(len)?;
        Self::map_file(fd, Path::new("(received)"), len)
    }

    fn map_file(fd: OwnedFd, path: &Path, len: usize) -> Result<Self, ShmError> {
        let fail = |call| move |source| ShmError::File { path: path.to_owned(), call, source };
        let stat = rustix::fs::fstat(&fd).map_err(fail("fstat"))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(ShmError::NotAFile { path: path.to_owned() });
        }
        if stat.st_size as u64 != len as u64 {
            return Err(ShmError::Size { expected: len as u64, actual: stat.st_size as u64 });
        }
        let mapping = Mmap::new(&fd, len).map_err(fail("mmap"))?;
        let guarded = sigbus::Guarded::new(mapping).map_err(fail("sigaction(SIGBUS)"))?;
        Ok(Self::with_mapping(Box::new(guarded), Some(fd)))
    }

    /// Maps the same memory a second time, as the other party does.
    ///
    /// # Errors
    /// If it has no file, or the process is out of file descriptors or mappings.
    pub fn map_again(&self) -> Result<Self, ShmError> {
        let fd = self.fd.as_ref().ok_or(ShmError::NoFile)?;
        let fd = rustix::io::fcntl_dupfd_cloexec(fd, 0).map_err(system("fcntl(F_DUPFD_CLOEXEC)"))?;
        match rustix::fs::fcntl_get_seals(&fd) {
            Ok(seals) if seals.contains(SEALS) => Self::from_fd(fd, self.len),
            _ => Self::from_page_fd(fd, self.len),
        }
    }

    /// Takes memory that was mapped elsewhere, such as the BAR of an ivshmem device.
    #[must_use]
    pub fn from_mapping(mapping: Box<dyn Mapping>) -> Self {
        Self::with_mapping(mapping, None)
    }

    fn with_mapping(mapping: Box<dyn Mapping>, fd: Option<OwnedFd>) -> Self {
        Self { base: mapping.base(), len: mapping.len(), fd, _mapping: mapping }
    }

    /// Returns the file, to send it to the other side; none for memory from [`Self::from_mapping`].
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    /// Returns the `u32` at `at` as a futex, to sleep at until it differs from `seen`.
    pub(crate) fn futex(&self, at: usize, seen: u32) -> FutexWait<'_> {
        FutexWait::shared(self.word32(at), seen.to_le())
    }

    /// Wakes a sleeper at the `u32` at `at`. Returns false if there is none.
    pub(crate) fn wake_at(&self, at: usize) -> bool {
        futex::wake(self.word32(at), FutexScope::Processes)
    }

    /// Returns the length of the region in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes, which never happens.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Creates an empty memfd that cannot be executed. Some systems require that flag, and kernels before
/// 6.3 reject it.
fn memfd(name: &str) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        other => other,
    }
}

/// Type of the file system sysfs (`SYSFS_MAGIC` in `linux/magic.h`), whose files only the kernel creates and
/// resizes.
const SYSFS: u64 = 0x6265_6572;

/// Returns whether a file is the kernel's for a device.
fn is_device(fd: &OwnedFd) -> Result<bool, ShmError> {
    let found = rustix::fs::fstatfs(fd).map_err(system("fstatfs"))?;
    Ok(found.f_type as u64 == SYSFS)
}

fn check_len(len: usize) -> Result<u64, ShmError> {
    if len == 0 || len > isize::MAX as usize { Err(ShmError::Length(len)) } else { Ok(len as u64) }
}

impl Memory for SharedMemory {
    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn load_u32(&self, at: usize, order: Ordering) -> u32 {
        u32::from_le(self.word32(at).load(order))
    }

    #[inline]
    fn store_u32(&self, at: usize, value: u32, order: Ordering) {
        self.word32(at).store(value.to_le(), order);
    }

    #[inline]
    fn load_u64(&self, at: usize, order: Ordering) -> u64 {
        u64::from_le(self.word64(at).load(order))
    }

    #[inline]
    fn store_u64(&self, at: usize, value: u64, order: Ordering) {
        self.word64(at).store(value.to_le(), order);
    }

    #[inline]
    fn load_words<const N: usize>(&self, at: usize) -> [u64; N] {
        self.words_out(at)
    }

    #[inline]
    fn store_words<const N: usize>(&self, at: usize, words: [u64; N]) {
        self.words_in(at, words);
    }

    #[inline]
    fn copy_out(&self, at: usize, to: &mut [u8]) {
        self.copy_bytes_out(at, to);
    }

    #[inline]
    fn copy_in(&self, at: usize, from: &[u8]) {
        self.copy_bytes_in(at, from);
    }

    #[inline]
    fn fence(order: Ordering) {
        std::sync::atomic::fence(order);
    }

    #[inline]
    fn prefetch(&self, at: usize) {
        self.prefetch_line(at);
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    fn stream_in(&self, at: usize, from: &[u8]) {
        self.stream_bytes_in(at, from);
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    fn stream_words<const N: usize>(&self, at: usize, words: [u64; N]) {
        self.stream_words_in(at, words);
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    fn stream_fence() {
        stream::fence();
    }
}
