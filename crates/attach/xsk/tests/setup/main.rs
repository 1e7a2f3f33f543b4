//! How applications set up their sockets, correctly or not, with the kernel's own interface and no
//! library. The application is this test itself, started again with the library under test preloaded.

#![allow(clippy::print_stdout, reason = "the application answers by its output")]

#[path = "../common/mod.rs"]
mod common;
mod metadata;

use std::ffi::c_void;
use std::io::{self, Read};
use std::process::{Command, Stdio};

use common::daemon::{Cloud, Daemon};
use common::library;
use libc::{c_int, c_long};
use p4shield_attach::Notice;
use p4shield_testbed::{NetNs, wait_until};

/// Environment variable: the application's task.
const TASK: &str = "P4SHIELD_TEST_TASK";
const FRAMES: u64 = 64;
const CHUNK: u64 = 2048;
const RING: u32 = 16;

/// Runs the application in a namespace with the interface `s0`. Returns its output and the library's
/// log.
fn application(task: &str, fail: &str) -> Option<(String, String)> {
    run_application(task, fail, true, |_, _| {})
}

/// The same, with the library or without; the application stays until `meanwhile` returns.
fn run_application(
    task: &str,
    fail: &str,
    preloaded: bool,
    meanwhile: impl FnOnce(&Daemon, &NetNs),
) -> Option<(String, String)> {
    run_as(&[], task, fail, preloaded, meanwhile)
}

/// The same, through a program that takes the application's path and arguments behind its own.
fn run_as(
    through: &[&str],
    task: &str,
    fail: &str,
    preloaded: bool,
    meanwhile: impl FnOnce(&Daemon, &NetNs),
) -> Option<(String, String)> {
    if let Err(why) = p4shield_testbed::usable() {
        p4shield_need::skip("machine", why);
        return None;
    }
    let ns = NetNs::create("xskset").unwrap();
    ns.ip("link add s0 type veth peer name s1").unwrap();
    for end in ["s0", "s1"] {
        ns.ip(&format!("link set {end} up")).unwrap();
    }
    let cloud = Cloud::new(fail, "50ms").with("[[port]]\nname = \"s0\"\ntenant = \"alice\"\nvm = \"one\"\n");
    let daemon = cloud.daemon(|_, _| true);
    let this = std::env::current_exe().unwrap();
    let mut command: Command = match through {
        [] => ns.command(this),
        [program, arguments @ ..] => {
            let mut command = ns.command(program);
            command.args(arguments).arg(this);
            command
        }
    };
    command.args(["--exact", "application_under_test", "--nocapture"]);
    command.env(TASK, task);
    if preloaded {
        command.env("LD_PRELOAD", library()).env("P4SHIELD_CONFIG", cloud.config());
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut application = command.spawn().unwrap();
    let stays = application.stdin.take();
    meanwhile(&daemon, &ns);
    drop(stays);
    let out = application.wait_with_output().unwrap();
    let [output, log] = [out.stdout, out.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(out.status.success(), "{task}: {output}\n{log}");
    Some((output, log))
}

#[track_caller]
fn expect(task: &str, fail: &str, says: &str, logs: &str) {
    let Some((output, log)) = application(task, fail) else { return };
    assert!(output.contains(says), "{task}: {output}\n{log}");
    assert!(log.contains(logs), "{task}: {output}\n{log}");
}

/// The library's log line for a closed socket.
const CLOSED: &str = "an AF_XDP socket is being closed";

#[test]
fn umems_of_the_oldest_struct_are_mediated() {
    expect("v1", "drop", "sent", CLOSED);
}

#[test]
fn a_failed_bind_may_be_repeated_in_copy_mode() {
    expect("again", "drop", "sent", CLOSED);
}

#[test]
fn sockets_of_another_process_are_mediated_if_set_up_here() {
    expect("made-elsewhere", "drop", "sent", CLOSED);
}

#[test]
fn sockets_set_up_elsewhere_are_refused_or_unmediated() {
    expect("set-up-elsewhere", "drop", "bind: 13", "is refused, since it could not be mediated");
    expect("set-up-elsewhere", "pass", "sent", "is used without mediation");
}

#[test]
fn rings_mapped_past_libc_are_refused_or_unmediated() {
    expect("mapped-past-libc", "drop", "bind: 13", "is refused, since it could not be mediated");
    expect("mapped-past-libc", "pass", "sent", "is used without mediation");
}

#[test]
fn unmediated_sockets_are_reported_to_the_daemon() {
    for task in ["set-up-elsewhere", "mapped-past-libc"] {
        let reported = |daemon: &Daemon, _: &NetNs| {
            let unmediated =
                |r: &Notice| matches!(r, Notice::Unmediated(why) if why.contains("is not mediated"));
            wait_until("the notice", 60, || daemon.remarks().iter().any(unmediated)).unwrap();
        };
        if run_application(task, "pass", true, reported).is_none() {
            return;
        }
    }
}

#[test]
fn an_interface_leaves_vlan_tags_in_received_packets() {
    let kept = |_: &Daemon, ns: &NetNs| {
        let features = || {
            let features = ns.command("ethtool").args(["-k", "s0"]).output().unwrap();
            String::from_utf8_lossy(&features.stdout).into_owned()
        };
        wait_until("tags in packets", 60, || features().contains("rx-vlan-offload: off")).unwrap();
    };
    let _ = run_application("v1", "drop", true, kept);
}

#[test]
fn an_interface_that_takes_tags_out_is_refused_by_name() {
    let powerless = ["setpriv", "--bounding-set=-net_admin"];
    for fail in ["drop", "pass"] {
        let Some((output, log)) = run_as(&powerless, "v1", fail, true, |_, _| {}) else { return };
        assert!(output.contains("bind: 13"), "{output}\n{log}");
        assert!(log.contains("ethtool -K s0 rxvlan off lro off"), "{log}");
    }
}

#[test]
fn a_forked_child_cannot_create_sockets() {
    expect("fork", "drop", "child: 13", CLOSED);
}

#[test]
fn a_sleeping_application_uses_no_cpu() {
    expect("idle", "drop", "idle", CLOSED);
}

#[test]
fn every_closing_call_frees_the_queue() {
    for how in ["close_range", "dup2"] {
        expect(how, "drop", "bound again", CLOSED);
    }
}

#[test]
fn tx_metadata_reaches_the_interface() {
    let Some((plain, _)) = run_application("metadata", "drop", false, |_, _| {}) else { return };
    let answer = |said: &str| said.lines().find(|l| l.starts_with("metadata")).map(str::to_owned);
    if answer(&plain).is_none_or(|a| a.contains("refused")) {
        p4shield_need::skip(
            "transmit-metadata",
            format_args!("this kernel takes no transmit metadata in copy mode: {plain}"),
        );
        return;
    }
    let Some((output, log)) = application("metadata", "drop") else { return };
    assert_eq!(answer(&plain).as_deref(), Some("metadata: time of sending true, right checksum true"));
    assert_eq!(answer(&output), answer(&plain), "{output}\n{log}");
    let closed = log.lines().find(|l| l.contains(CLOSED)).unwrap();
    assert!(closed.contains("refused=\"none\""), "{closed}");
}

/// The application. As a test it does nothing unless [`TASK`] is set.
#[test]
fn application_under_test() {
    let Ok(task) = std::env::var(TASK) else { return };
    let mut app = match task.as_str() {
        "made-elsewhere" => App::new(raw_socket, setsockopt, map, 32),
        "set-up-elsewhere" => App::new(raw_socket, raw_setsockopt, raw_map, 32),
        "mapped-past-libc" => App::new(socket, setsockopt, raw_map, 32),
        "v1" => App::new(socket, setsockopt, map, 24),
        "metadata" => return metadata::task(),
        _ => App::new(socket, setsockopt, map, 32),
    };
    if task == "again" {
        let error = app.bind(libc::XDP_ZEROCOPY).unwrap_err();
        println!("zero-copy: {error}");
    }
    if let Err(error) = app.bind(libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP) {
        println!("bind: {}", error.raw_os_error().unwrap());
        return;
    }
    app.send(3 * CHUNK, 60, 0);
    println!("sent");
    match task.as_str() {
        "fork" => println!("child: {}", in_child()),
        "idle" => {
            let sleeps = app.sleep();
            assert!(sleeps < MAX_SLEEPS, "it woke up {sleeps} times");
            println!("idle");
        }
        "close_range" => {
            // SAFETY: takes no pointers.
            assert_eq!(unsafe { libc::close_range(app.fd as u32, app.fd as u32, 0) }, 0);
            bind_again();
        }
        "dup2" => {
            // SAFETY: takes no pointers.
            assert!(unsafe { libc::dup2(1, app.fd) } >= 0);
            bind_again();
        }
        _ => {
            // Until the test that started the application closes its input.
            let _ = io::stdin().read_to_end(&mut Vec::new());
            assert_eq!(close(app.fd), 0);
        }
    }
}

fn close(fd: c_int) -> c_int {
    // SAFETY: takes no pointers.
    unsafe { libc::close(fd) }
}

/// The most times that the threads of an application may go to sleep within two seconds of `poll`. One
/// that checked its rings every two milliseconds would go to sleep 1,000 times.
const MAX_SLEEPS: i64 = 300;

/// Returns how often this process's threads went to sleep, which a busy machine does not change.
fn sleeps() -> i64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one struct of integers.
    unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()), 0);
        usage.assume_init().ru_nvcsw
    }
}

fn bind_again() {
    let app = App::new(socket, setsockopt, map, 32);
    // The kernel frees a queue a moment after its socket was closed.
    let bound = || app.bind(libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP).is_ok();
    wait_until("the queue to be free", 30, bound).unwrap();
    println!("bound again");
}

/// Returns the error of creating a socket in a forked child; 0 if it succeeds.
fn in_child() -> i32 {
    // SAFETY: the child makes system calls and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let error = if socket() < 0 { io::Error::last_os_error().raw_os_error().unwrap_or(1) } else { 0 };
        // SAFETY: ends the child.
        unsafe { libc::_exit(error) };
    }
    let mut status = 0;
    // SAFETY: writes one integer.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    libc::WEXITSTATUS(status)
}

fn socket() -> c_int {
    // SAFETY: takes no pointers.
    unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW, 0) }
}

/// Past libc, as if another process had created it.
fn raw_socket() -> c_int {
    let (family, kind): (c_long, c_long) = (libc::AF_XDP.into(), libc::SOCK_RAW.into());
    // SAFETY: takes no pointers.
    unsafe { libc::syscall(libc::SYS_socket, family, kind, 0) as c_int }
}

type SetOption = fn(c_int, c_int, &[u8]) -> c_int;

fn setsockopt(fd: c_int, option: c_int, value: &[u8]) -> c_int {
    // SAFETY: a slice.
    unsafe { libc::setsockopt(fd, libc::SOL_XDP, option, value.as_ptr().cast(), value.len() as u32) }
}

fn raw_setsockopt(fd: c_int, option: c_int, value: &[u8]) -> c_int {
    // SAFETY: a slice.
    let result = unsafe {
        libc::syscall(libc::SYS_setsockopt, fd, libc::SOL_XDP, option, value.as_ptr(), value.len())
    };
    result as c_int
}

type Map = fn(c_int, usize, i64) -> *mut u8;

const PROTECTION: c_int = libc::PROT_READ | libc::PROT_WRITE;

fn map(fd: c_int, len: usize, offset: i64) -> *mut u8 {
    let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
    // SAFETY: a new mapping.
    unsafe { libc::mmap(std::ptr::null_mut(), len, PROTECTION, flags, fd, offset).cast() }
}

fn raw_map(fd: c_int, len: usize, offset: i64) -> *mut u8 {
    let none: *mut c_void = std::ptr::null_mut();
    // SAFETY: a new mapping.
    unsafe { libc::syscall(libc::SYS_mmap, none, len, PROTECTION, libc::MAP_SHARED, fd, offset) as *mut u8 }
}

/// A socket that can send.
struct App {
    fd: c_int,
    memory: *mut u8,
    /// Frames that were sent and completed.
    sent: u32,
    transmit: *mut u8,
    completion: *mut u8,
    at: libc::xdp_mmap_offsets,
}

impl App {
    /// Sets up everything but the bind; the kernel gets the first `bytes` bytes of `struct
    /// xdp_umem_reg`.
    fn new(socket: fn() -> c_int, set: SetOption, map: Map, bytes: usize) -> Self {
        Self::with(socket, set, map, (bytes, 0)).unwrap_or_else(|e| panic!("{e}"))
    }

    /// The same with these UMEM flags; fails if the kernel does not know them.
    fn with(
        socket: fn() -> c_int,
        set: SetOption,
        map: Map,
        (bytes, flags): (usize, u64),
    ) -> io::Result<Self> {
        let fd = socket();
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        let len = FRAMES * CHUNK;
        // SAFETY: new private memory.
        let memory = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), len as usize, PROTECTION, flags, -1, 0)
        };
        let words = [memory as u64, len, CHUNK, flags];
        let registration: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).take(bytes).collect();
        if set(fd, libc::XDP_UMEM_REG, &registration) != 0 {
            return Err(io::Error::last_os_error());
        }
        let rings = [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_TX_RING];
        for ring in rings {
            assert_eq!(set(fd, ring, &RING.to_ne_bytes()), 0, "{}", io::Error::last_os_error());
        }
        let mut at = std::mem::MaybeUninit::<libc::xdp_mmap_offsets>::zeroed();
        let mut size = size_of_val(&at) as u32;
        // SAFETY: the kernel writes at most `size` bytes of integers.
        let at = unsafe {
            let value = at.as_mut_ptr().cast();
            assert_eq!(libc::getsockopt(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, value, &mut size), 0);
            at.assume_init()
        };
        let ring = |desc: u64, entry: u64, offset: u64| {
            let ring = map(fd, (desc + entry * u64::from(RING)) as usize, offset as i64);
            assert!(!ring.is_null() && ring.cast() != libc::MAP_FAILED, "{}", io::Error::last_os_error());
            ring
        };
        ring(at.fr.desc, 8, libc::XDP_UMEM_PGOFF_FILL_RING);
        let completion = ring(at.cr.desc, 8, libc::XDP_UMEM_PGOFF_COMPLETION_RING);
        let transmit = ring(at.tx.desc, 16, libc::XDP_PGOFF_TX_RING as u64);
        Ok(Self { fd, memory: memory.cast(), sent: 0, transmit, completion, at })
    }

    fn bind(&self, flags: u16) -> io::Result<()> {
        // SAFETY: all integers.
        let mut address: libc::sockaddr_xdp = unsafe { std::mem::zeroed() };
        (address.sxdp_family, address.sxdp_flags) = (libc::AF_XDP as u16, flags);
        // SAFETY: a string that ends in a zero.
        address.sxdp_ifindex = unsafe { libc::if_nametoindex(c"s0".as_ptr()) };
        let len = size_of_val(&address) as u32;
        // SAFETY: an address of that length.
        let result = unsafe { libc::bind(self.fd, (&raw const address).cast(), len) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Sleeps for about two seconds. Returns how often the process's threads went to sleep.
    fn sleep(&self) -> i64 {
        let mut fds = [libc::pollfd { fd: self.fd, events: libc::POLLIN, revents: 0 }];
        let before = sleeps();
        for _ in 0..4 {
            // SAFETY: one entry.
            assert_eq!(unsafe { libc::poll(fds.as_mut_ptr(), 1, 500) }, 0);
        }
        sleeps() - before
    }

    /// Returns bytes of the UMEM from an address on.
    fn bytes(&mut self, address: u64, len: usize) -> &mut [u8] {
        assert!(address as usize + len <= (FRAMES * CHUNK) as usize);
        // SAFETY: within the memory, which is not used otherwise while no frame of it is sent.
        unsafe { std::slice::from_raw_parts_mut(self.memory.add(address as usize), len) }
    }

    /// Sends a frame and waits until it is completed.
    fn send(&mut self, address: u64, len: u32, options: u32) {
        let (slot, sent) = ((self.sent % RING) as usize, self.sent + 1);
        // SAFETY: within the ring; the kernel reads the entry after the index has moved.
        unsafe {
            let entry = self.transmit.add(self.at.tx.desc as usize + 16 * slot);
            entry.cast::<u64>().write_volatile(address);
            entry.add(8).cast::<u32>().write_volatile(len);
            entry.add(12).cast::<u32>().write_volatile(options);
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
            self.transmit.add(self.at.tx.producer as usize).cast::<u32>().write_volatile(sent);
        }
        let completed = || {
            // SAFETY: sends nothing; the index is within the ring.
            unsafe {
                libc::sendto(self.fd, std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0);
                self.completion.add(self.at.cr.producer as usize).cast::<u32>().read_volatile() == sent
            }
        };
        wait_until("a completion", 30, completed).unwrap();
        // SAFETY: within the ring.
        let completed = unsafe {
            let entry = self.completion.add(self.at.cr.desc as usize + 8 * slot).cast::<u64>();
            let address = entry.read_volatile();
            self.completion.add(self.at.cr.consumer as usize).cast::<u32>().write_volatile(sent);
            address
        };
        assert_eq!(completed, address);
        self.sent = sent;
    }
}
