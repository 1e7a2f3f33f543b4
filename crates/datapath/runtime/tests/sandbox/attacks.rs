//! Attacks that a compromised P4 VM, or a compromised P4 switch in a compartment, would try.

use p4shield_bpf::{CODE_AREA, reserve_code_area};
use std::cell::RefCell;
use std::ffi::c_void;
use std::fs::{self, File};
use std::io::{self, Error, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::null_mut;

/// Runs an attack; returns how it failed.
pub(crate) type Attempt = fn(&Prepared) -> io::Result<()>;

/// An attack, and the layers each of which must prevent it.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) attempt: Attempt,
    /// Whether it fails without a system call filter.
    pub(crate) namespaces: bool,
    /// The filters under which it fails.
    pub(crate) seccomp: &'static [&'static str],
}

const EVERY: &[&str] = &["control", "worker", "verifier", "desk", "packets"];
const NOT_VERIFIER: &[&str] = &["control", "worker", "desk", "packets"];
/// Neither a P4 VM's control thread nor a P4 switch's desk.
const NOT_CONTROL: &[&str] = &["worker", "verifier", "packets"];

const fn attack(
    name: &'static str,
    namespaces: bool,
    seccomp: &'static [&'static str],
    attempt: Attempt,
) -> Attack {
    Attack { name, attempt, namespaces, seccomp }
}

pub(crate) const ATTACKS: &[Attack] = &[
    attack("reading_a_file", true, EVERY, |_| File::open("/etc/passwd").map(drop)),
    attack("reading_its_binary", true, EVERY, |_| File::open("/proc/self/exe").map(drop)),
    attack("reading_proc", true, EVERY, |_| fs::read_to_string("/proc/self/environ").map(drop)),
    attack("climbing_out_of_the_root", true, EVERY, |_| {
        File::open("../".repeat(32) + "etc/passwd").map(drop)
    }),
    attack("listing_the_root", true, EVERY, |_| fs::read_dir("/").map(drop)),
    attack("writing_a_file", true, EVERY, write_a_file),
    attack("using_a_leaked_descriptor", true, &[], use_a_leaked_descriptor),
    attack("connecting_to_the_host", true, EVERY, |p| TcpStream::connect(("127.0.0.1", p.port)).map(drop)),
    attack("making_a_packet_socket", true, EVERY, |_| socket(libc::AF_PACKET, libc::SOCK_RAW)),
    attack("making_an_abstract_socket", false, EVERY, |_| socket(libc::AF_UNIX, libc::SOCK_STREAM)),
    attack("tracing_a_process_outside", true, EVERY, trace_outside),
    attack("reading_memory_outside", true, EVERY, read_memory_outside),
    attack("signalling_a_process_outside", true, EVERY, signal_outside),
    attack("mounting", true, EVERY, mount),
    attack("becoming_another_user", true, EVERY, become_another_user),
    attack("making_a_user_namespace", true, EVERY, |_| {
        call(libc::SYS_unshare, [libc::CLONE_NEWUSER as usize, 0, 0])
    }),
    attack("cloning_into_a_user_namespace", true, EVERY, clone_namespace),
    attack("learning_the_hosts_name", true, EVERY, learn_hosts_name),
    attack("forking", false, NOT_VERIFIER, |_| fork().map(drop)),
    attack("forking_without_end", true, NOT_VERIFIER, fork_without_end),
    attack("starting_a_program", true, EVERY, start_a_program),
    attack("mapping_writable_code", false, EVERY, |_| map(PAGE, RW | libc::PROT_EXEC).map(drop)),
    attack("making_code_writable", false, EVERY, make_code_writable),
    attack("turning_data_into_code", false, EVERY, turn_data_into_code),
    attack("executing_the_channel", false, EVERY, |p| p.channel.map(READ_EXEC, libc::MAP_SHARED).map(drop)),
    attack("making_the_channel_executable", false, EVERY, |p| protect(p.channel.base, READ_EXEC)),
    attack("executing_a_private_view_of_the_channel", false, EVERY, |p| {
        protect(p.channel.map(libc::PROT_READ, libc::MAP_PRIVATE)?, READ_EXEC)
    }),
    attack("mapping_the_channel_again", false, NOT_CONTROL, |p| {
        p.channel.map(RW, libc::MAP_SHARED | libc::MAP_POPULATE).map(drop)
    }),
    attack("mapping_over_other_memory", false, EVERY, map_over_other_memory),
    attack("moving_memory_over_other_memory", false, EVERY, move_over_other_memory),
    attack("mapping_the_channel_in_the_code_area", false, EVERY, map_in_the_code_area),
    attack("moving_the_code_area_away", false, NOT_VERIFIER, |_| {
        let flags = libc::MREMAP_MAYMOVE;
        // SAFETY: no code is in the area.
        let moved = unsafe { libc::mremap(code_area(), PAGE, 1 << 30, flags) };
        if moved == libc::MAP_FAILED { Err(Error::last_os_error()) } else { Ok(()) }
    }),
    attack("replacing_a_descriptor", false, EVERY, replace_a_descriptor),
    attack("punching_a_hole_into_the_channel", false, EVERY, |p| p.channel.advise(libc::MADV_REMOVE)),
    attack("advising_against_huge_pages", false, EVERY, |p| p.channel.advise(libc::MADV_NOHUGEPAGE)),
    attack("moving_sleepers_to_another_futex", false, EVERY, |p| p.channel.futex(libc::FUTEX_REQUEUE)),
    attack("locking_a_futex_of_the_channel", false, EVERY, |p| p.channel.futex(libc::FUTEX_LOCK_PI)),
    attack("waking_by_operation", false, EVERY, |p| p.channel.futex(libc::FUTEX_WAKE_OP)),
    attack("taking_too_much_memory", true, EVERY, |_| map(3 << 30, RW).map(drop)),
    attack("growing_a_file", true, EVERY, grow_a_file),
    attack("setting_up_io_uring", false, EVERY, set_up_io_uring),
    attack("making_a_kernel_bpf_map", true, EVERY, make_bpf_map),
    attack("raising_its_limits", true, NOT_VERIFIER, raise_its_limits),
];

const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;
const READ_EXEC: i32 = libc::PROT_READ | libc::PROT_EXEC;
const PAGE: usize = 4096;

/// Acts of an honest P4 VM, which every layer must allow.
pub(crate) const DEEDS: &[(&str, Attempt)] = &[
    // Checks that the sandbox can be entered and left.
    ("nothing", |_| Ok(())),
    // glibc's allocator gives memory of a second arena back, and would read a file before.
    ("freeing_memory_of_another_thread", |p| {
        p.blocks.take();
        Ok(())
    }),
    // With a backtrace, which the environment asks for, it would read files.
    ("panicking", |_| {
        let caught = std::panic::catch_unwind(|| panic!("on purpose"));
        if caught.is_err() { Ok(()) } else { Err(Error::other("it went on")) }
    }),
];

/// Returns some megabytes, in blocks that the allocator does not map one by one.
fn blocks() -> Vec<Vec<u8>> {
    (0..64).map(|_| vec![1; 100 << 10]).collect()
}

/// The targets outside the sandbox.
pub(crate) struct Victims {
    listener: TcpListener,
}

impl Victims {
    pub(crate) fn new() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").unwrap() }
    }

    /// Returns environment variables that describe the targets; `leaked` is inherited across exec.
    pub(crate) fn env(&self, leaked: &OwnedFd) -> [(&'static str, String); 4] {
        rustix::io::fcntl_setfd(leaked, rustix::io::FdFlags::empty()).unwrap();
        let port = self.listener.local_addr().unwrap().port();
        let secret = Box::leak(Box::new(0x5ec2_e7aa_u64));
        [
            ("ATTACK_FD", leaked.as_raw_fd().to_string()),
            ("ATTACK_PORT", port.to_string()),
            ("ATTACK_PID", std::process::id().to_string()),
            ("ATTACK_ADDRESS", (std::ptr::from_mut(secret) as usize).to_string()),
        ]
    }
}

/// Shared memory as the host sends it to a P4 VM: sealed, and mapped by both.
pub(crate) struct Channel {
    pub(crate) fd: RawFd,
    base: *mut c_void,
}

impl Channel {
    fn new() -> io::Result<Self> {
        // SAFETY: the name is a constant string; the descriptor stays open until the process ends.
        let fd = unsafe { libc::memfd_create(c"channel".as_ptr(), libc::MFD_ALLOW_SEALING) };
        check(fd.into())?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: takes integers.
        check(unsafe { libc::ftruncate(fd, PAGE as libc::off_t) }.into())?;
        // SAFETY: as above.
        check(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) }.into())?;
        let mut this = Self { fd, base: null_mut() };
        this.base = this.map(RW, libc::MAP_SHARED)?;
        Ok(this)
    }

    fn map(&self, prot: i32, flags: i32) -> io::Result<*mut c_void> {
        self.map_at(null_mut(), prot, flags)
    }

    fn map_at(&self, at: *mut c_void, prot: i32, flags: i32) -> io::Result<*mut c_void> {
        // SAFETY: a new mapping at an address of the kernel's choice, or over a page that its caller owns.
        let at = unsafe { libc::mmap(at, PAGE, prot, flags, self.fd, 0) };
        if at == libc::MAP_FAILED { Err(Error::last_os_error()) } else { Ok(at) }
    }

    fn advise(&self, advice: i32) -> io::Result<()> {
        // SAFETY: the mapping belongs to this value, and nothing refers to its bytes.
        check(unsafe { libc::madvise(self.base, PAGE, advice) }.into())
    }

    /// Makes a futex operation on the first word, and on the second one if it takes two.
    fn futex(&self, operation: i32) -> io::Result<()> {
        let (first, second) = (self.base as usize, self.base as usize + 4);
        // SAFETY: both words are in the mapping, which lives as long as the process.
        check(unsafe { libc::syscall(libc::SYS_futex, first, operation, 0_usize, 0_usize, second, 0_usize) })
    }
}

/// What the attacker prepares before it enters the sandbox.
pub(crate) struct Prepared {
    pub(crate) channel: Channel,
    /// Memory that another thread allocated.
    blocks: RefCell<Vec<Vec<u8>>>,
    leaked: RawFd,
    port: u16,
    pid: i32,
    address: usize,
}

impl Prepared {
    pub(crate) fn from_env() -> Self {
        reserve_code_area().unwrap();
        let get = |name| std::env::var(name).unwrap();
        Self {
            channel: Channel::new().unwrap(),
            blocks: RefCell::default(),
            leaked: get("ATTACK_FD").parse().unwrap(),
            port: get("ATTACK_PORT").parse().unwrap(),
            pid: get("ATTACK_PID").parse().unwrap(),
            address: get("ATTACK_ADDRESS").parse().unwrap(),
        }
    }

    /// Lets another thread allocate, which needs a process that has entered the sandbox.
    pub(crate) fn allocate_elsewhere(&self) {
        self.blocks.replace(std::thread::spawn(blocks).join().unwrap());
    }
}

fn call(number: libc::c_long, args: [usize; 3]) -> io::Result<()> {
    // SAFETY: attacks pass integers, or pointers to live values of the size that the call expects.
    check(unsafe { libc::syscall(number, args[0], args[1], args[2], 0_usize, 0_usize, 0_usize) })
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

fn write_a_file(_: &Prepared) -> io::Result<()> {
    let path = format!("/tmp/p4shield-rt-{}", std::process::id());
    fs::write(&path, "x").or_else(|_| fs::write("/x", "x"))?;
    fs::remove_file(&path)
}

fn use_a_leaked_descriptor(p: &Prepared) -> io::Result<()> {
    // SAFETY: no value in this process owns the number; the process ends after this.
    let mut file = unsafe { File::from_raw_fd(p.leaked) };
    let result = file.read(&mut [0; 8]).map(drop);
    std::mem::forget(file);
    result
}

/// Replaces a descriptor other than standard error, such as a channel's.
fn replace_a_descriptor(_: &Prepared) -> io::Result<()> {
    #[cfg(target_arch = "x86_64")]
    return call(libc::SYS_dup2, [2, 100, 0]);
    #[cfg(not(target_arch = "x86_64"))]
    call(libc::SYS_dup3, [2, 100, 0])
}

fn socket(family: i32, kind: i32) -> io::Result<()> {
    call(libc::SYS_socket, [family as usize, kind as usize, 0])
}

fn trace_outside(p: &Prepared) -> io::Result<()> {
    call(libc::SYS_ptrace, [libc::PTRACE_SEIZE as usize, p.pid as usize, 0])
}

fn read_memory_outside(p: &Prepared) -> io::Result<()> {
    let mut word = 0_u64;
    let local = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: 8 };
    let remote = libc::iovec { iov_base: p.address as *mut c_void, iov_len: 8 };
    // SAFETY: both descriptions are alive and name eight bytes; the kernel checks the other process's
    // address.
    let n = unsafe { libc::process_vm_readv(p.pid, &raw const local, 1, &raw const remote, 1, 0) };
    check(n as libc::c_long)?;
    assert_eq!(word, 0x5ec2_e7aa);
    Ok(())
}

fn signal_outside(p: &Prepared) -> io::Result<()> {
    call(libc::SYS_kill, [p.pid as usize, 0, 0])
}

fn mount(_: &Prepared) -> io::Result<()> {
    // The attack outside the sandbox must not leave the mount behind.
    // SAFETY: NEWNS takes no descriptors away.
    let _ = unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) };
    rustix::mount::mount("x", "/", "tmpfs", rustix::mount::MountFlags::empty(), c"size=4k")
        .map_err(Into::into)
}

fn become_another_user(_: &Prepared) -> io::Result<()> {
    call(libc::SYS_setuid, [1, 0, 0])
}

fn clone_namespace(_: &Prepared) -> io::Result<()> {
    let flags = (libc::CLONE_NEWUSER | libc::SIGCHLD) as usize;
    // SAFETY: fork without shared memory; the child ends at once.
    match unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, 0_usize, 0_usize) } {
        // SAFETY: ends the child.
        0 => unsafe { libc::_exit(0) },
        n => check(n),
    }
}

fn learn_hosts_name(_: &Prepared) -> io::Result<()> {
    if rustix::system::uname().nodename().to_bytes() == b"p4vm" {
        Err(Error::other("hidden"))
    } else {
        Ok(())
    }
}

fn fork() -> io::Result<i32> {
    // SAFETY: this process has one thread; the child ends at once.
    match unsafe { libc::fork() } {
        // SAFETY: ends the child.
        0 => unsafe { libc::_exit(0) },
        n if n < 0 => Err(Error::last_os_error()),
        n => Ok(n),
    }
}

fn fork_without_end(_: &Prepared) -> io::Result<()> {
    // Children stay (as zombies, which count) until this process ends.
    (0..64).try_for_each(|_| fork().map(drop))
}

fn start_a_program(_: &Prepared) -> io::Result<()> {
    use std::os::unix::process::CommandExt;
    let mut command = std::process::Command::new("/bin/sh");
    Err(command.args(["-c", "echo SUCCEEDED >&2"]).exec())
}

fn map(len: usize, prot: i32) -> io::Result<*mut c_void> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe { libc::mmap(null_mut(), len, prot, flags, -1, 0) };
    if at == libc::MAP_FAILED { Err(Error::last_os_error()) } else { Ok(at) }
}

/// Makes a fresh page writable and executable by `mprotect`.
fn make_code_writable(_: &Prepared) -> io::Result<()> {
    let page = map(PAGE, RW)?;
    protect(page, RW | libc::PROT_EXEC)
}

/// Writes code into a page, then makes the page executable, which the thread with the JIT may do elsewhere.
fn turn_data_into_code(_: &Prepared) -> io::Result<()> {
    let page = map(PAGE, RW)?;
    // SAFETY: the page was mapped writable by this function.
    unsafe { page.cast::<u8>().write(0xc3) };
    protect(page, READ_EXEC)
}

fn protect(at: *mut c_void, prot: i32) -> io::Result<()> {
    // SAFETY: the page was mapped by its caller, and nothing refers to its bytes.
    check(unsafe { libc::mprotect(at, PAGE, prot) }.into())
}

fn code_area() -> *mut c_void {
    CODE_AREA.start as *mut c_void
}

/// Puts the channel where code may be, and makes it executable there.
fn map_in_the_code_area(p: &Prepared) -> io::Result<()> {
    // SAFETY: no code is in the area.
    check(unsafe { libc::munmap(code_area(), CODE_AREA.len()) }.into())?;
    let at = p.channel.map_at(code_area(), RW, libc::MAP_SHARED | libc::MAP_POPULATE)?;
    assert_eq!(at, code_area());
    protect(at, READ_EXEC)
}

fn map_over_other_memory(p: &Prepared) -> io::Result<()> {
    let page = map(PAGE, RW)?;
    p.channel.map_at(page, RW, libc::MAP_SHARED | libc::MAP_FIXED).map(drop)
}

fn move_over_other_memory(p: &Prepared) -> io::Result<()> {
    let page = map(PAGE, RW)?;
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: both pages were mapped by this process, and nothing refers to their bytes.
    let moved = unsafe { libc::mremap(p.channel.base, PAGE, PAGE, flags, page) };
    if moved == libc::MAP_FAILED { Err(Error::last_os_error()) } else { Ok(()) }
}

fn grow_a_file(_: &Prepared) -> io::Result<()> {
    // SAFETY: the name is a constant string; the descriptor stays open until the process ends.
    let fd = unsafe { libc::memfd_create(c"x".as_ptr(), 0) };
    check(fd.into())?;
    // SAFETY: takes integers.
    check(unsafe { libc::ftruncate(fd, 4096) }.into())
}

fn set_up_io_uring(_: &Prepared) -> io::Result<()> {
    let params = [0_u64; 32];
    call(libc::SYS_io_uring_setup, [1, params.as_ptr() as usize, 0])
}

fn make_bpf_map(_: &Prepared) -> io::Result<()> {
    // struct bpf_attr of BPF_MAP_CREATE: an array of one element of eight bytes.
    let attr = [2_u32, 4, 8, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    call(libc::SYS_bpf, [0, attr.as_ptr() as usize, size_of_val(&attr)])
}

fn raise_its_limits(_: &Prepared) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: 256, rlim_max: 256 };
    // SAFETY: the limit is alive and of the right type.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit) }.into())
}
