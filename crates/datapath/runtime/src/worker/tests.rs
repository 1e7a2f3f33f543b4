//! A packet's way allocates nothing and makes no system call: a counting allocator and a seccomp filter check
//! it.

use super::*;
use crate::program::LoadedProgram;
use p4shield_abi::Direction;
use p4shield_abi::Verdict;
use p4shield_abi::channel::{BATCH, Geometry, Request};
use p4shield_abi::info_page::INFO_PAGE_SIZE;
use p4shield_abi::log_page::{LOG_MAGIC, LOG_PAGE_SIZE, LOG_SLOT_STRIDE, LOG_SLOTS, LogRecord, Settings};
use p4shield_bpf::maps::MapCopy;
use p4shield_bpf::{EngineOptions, Program, Verified, asm};
use p4shield_channel::{PageReader, Requester, Responder, SharedMemory, create_channel};
use p4shield_control::ProgramSlot;
use p4shield_seal::{AgeLimit, Epoch, Identity, KeyRing, LogOpener, PacketDigest, TenantKey};
use p4shield_testbed::allocations::{Counting, allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Writes into each packet, reads information, and passes it.
const PROGRAM: &str = "
    mov r6, r1
    mov r2, 128
    call 1000
    mov r1, r6
    call 1001
    ldxdw r2, [r6+0]
    stb [r2+5], 9
    mov r0, 1
    exit";

const KEY: [u8; 32] = [3; 32];
const TERMS: DecidingTerms = DecidingTerms {
    limit: AgeLimit { max_age: Duration::from_secs(86_400), skew: Duration::ZERO },
    budget: 77_777,
    configuration: [9; 32],
};
const IDENTITY: Identity<'_> = Identity { tenant: "a", vm: "b" };

struct Setup {
    worker: Worker,
    requester: Requester,
    log: SharedMemory,
    _bell: Doorbell,
    _control: WorkerHandle,
}

fn setup() -> Setup {
    setup_with(PROGRAM, Geometry { slots: 64, ..Geometry::default() })
}

/// Sets up a worker with a VM with this program, both pages and one channel.
fn setup_with(program: &str, geometry: Geometry) -> Setup {
    let (control, mailbox) = mailbox().unwrap();
    let mut worker = Worker::new(mailbox, Verdict::Drop, Duration::from_millis(1));
    let page = |len| {
        let fd = rustix::fs::memfd_create("page", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&fd, len as u64).unwrap();
        SharedMemory::from_page_fd(fd, len).unwrap()
    };
    let keys = KeyRing::new(TenantKey::from_bytes(KEY));
    let (info, log) = (page(INFO_PAGE_SIZE), page(LOG_PAGE_SIZE));
    let pages = (Some(info), Some(log.map_again().unwrap()));
    let epoch = Epoch::from_clock().unwrap();
    let pages = VmPages::open(&IDENTITY, &keys, TERMS, pages, epoch).unwrap();
    let mut vm = Vm::new(0, pages);
    // SAFETY: the packets below are longer than what the programs touch.
    let verified = unsafe { Verified::assume(asm::assemble(program).unwrap()) };
    let program = Program::load(&verified, &EngineOptions::default()).unwrap();
    assert!(vm.set_program(Direction::Ingress, Some(Box::new(LoadedProgram::of(program)))).is_none());
    assert!(matches!(worker.programs.set_vm(Box::new(vm)), Ok(())));
    let memory = create_channel("test", geometry).unwrap();
    let fd = memory.fd().unwrap().try_clone_to_owned().unwrap();
    let theirs = SharedMemory::from_fd(fd, geometry.size()).unwrap();
    let (bell, other) = Doorbell::pair().unwrap();
    let served = ServedChannel::new(1, Responder::new(theirs, geometry).unwrap(), &geometry);
    assert!(matches!(worker.attach(Box::new(served), other), WorkerAnswer::Done));
    let requester = Requester::new(memory, geometry).unwrap();
    Setup { worker, requester, log, _bell: bell, _control: control }
}

/// Judges some thousand packets. Returns how many were passed with the program's rewrite.
fn judge(setup: &mut Setup) -> u64 {
    judge_while(setup, |_| ())
}

/// Judges as [`judge`], and calls `before_round` before each round.
fn judge_while(setup: &mut Setup, mut before_round: impl FnMut(&WorkerHandle)) -> u64 {
    let mut changed = 0;
    for _ in 0..200 {
        before_round(&setup._control);
        for id in 0..BATCH as u64 {
            let request = Request { id, packet_len: 60, ..Request::default() };
            setup.requester.push(&request, &[0; 60]).unwrap();
        }
        assert!(!setup.requester.publish(), "the worker is awake");
        assert!(setup.worker.round());
        let take = |a: p4shield_channel::CheckedAnswer<'_>| {
            changed += u64::from(a.rewrite.is_some_and(|r| r.header[5] == 9));
        };
        assert_eq!(setup.requester.take(BATCH, take), Ok(BATCH));
    }
    changed
}

const ALL: u64 = 200 * BATCH as u64;

#[test]
fn nothing_is_allocated() {
    let mut setup = setup();
    let before = allocations();
    assert!(before > 0, "the setup allocates, so the counter works");
    assert_eq!(judge(&mut setup), ALL);
    assert_eq!(allocations(), before);
    assert!(
        setup.worker.programs.vms[0].as_ref().unwrap().status().log_records > 0,
        "log records were published meanwhile"
    );
}

/// Also while the key rotates: the control thread derives and frees.
#[test]
fn a_rotation_allocates_nothing_in_the_worker() {
    let mut setup = setup();
    let mut changes = [7, 8].map(|key| {
        // The window is over: the log follows with its next record.
        KeyChange::rotation(0, &TenantKey::from_bytes([key; 32]), &IDENTITY, 0)
    });
    let before = allocations();
    for change in &mut changes {
        setup.worker.programs.change_keys(change).unwrap();
        assert_eq!(judge(&mut setup), ALL);
    }
    assert_eq!(allocations(), before);
    let keys = setup.worker.programs.vms[0].as_ref().unwrap().status().keys.unwrap();
    assert_eq!(keys.current, TenantKey::from_bytes([8; 32]).id().0);
    assert!(keys.log_follows && keys.previous_ms.is_none(), "{keys:?}");
}

#[test]
fn a_delayed_worker_judges_the_same_but_slower() {
    const DELAY: Duration = Duration::from_micros(20);
    let mut setup = setup();
    setup.worker = setup.worker.delayed(DELAY);
    let start = std::time::Instant::now();
    assert_eq!(judge(&mut setup), ALL);
    assert!(start.elapsed() >= DELAY * ALL as u32);
}

/// Grows each packet by 16 bytes at its front, and passes it.
const GROW: &str = "
    mov r2, -16
    call 44
    mov r0, 1
    exit";

/// The auditor sees the agreed number of header bytes of a packet, not the bytes that a program pushed behind
/// them.
#[test]
fn a_grown_packet_is_digested_up_to_header_bytes() {
    let mut setup = setup_with(GROW, Geometry { slots: 64, header_bytes: 64, headroom: 32 });
    setup.requester.push(&Request { packet_len: 100, ..Request::default() }, &[7; 100]).unwrap();
    let _ = setup.requester.publish();
    assert!(setup.worker.round());
    let mut left = Vec::new();
    setup.requester.take(1, |a| left.extend_from_slice(a.rewrite.unwrap().header)).unwrap();
    assert_eq!(left.len(), 80);
    let tally = next_record(setup).totals[Direction::Ingress as usize];
    assert_eq!((tally.passed, tally.passed_bytes), (1, 116));
    let digest = PacketDigest::for_vm(&TenantKey::from_bytes(KEY), &IDENTITY);
    assert_eq!(tally.passed_digest, digest.digest(&left[..64], 116));
}

/// Publishes a log record and opens it.
fn next_record(mut setup: Setup) -> LogRecord {
    setup.worker.publish_logs(Now::read());
    let reader = PageReader::new(setup.log, LOG_MAGIC, LOG_SLOTS, LOG_SLOT_STRIDE).unwrap();
    let mut sealed = vec![0; reader.room()];
    let at = reader.newest(&mut sealed).unwrap().unwrap();
    let mut opener = LogOpener::new(&TenantKey::from_bytes(KEY), &IDENTITY);
    opener.open(at.epoch, at.counter, &sealed[..at.len]).unwrap().record
}

/// A host that says so keeps old information fresh, stops programs early or lets packets pass without one.
#[test]
fn records_state_what_the_host_said() {
    let stated = next_record(setup()).settings;
    let DecidingTerms { budget, configuration, .. } = TERMS;
    let expected =
        Settings { age_limit_ms: 86_400_000, passes_without_program: [false; 2], budget, configuration };
    assert_eq!(stated, expected);
    let mut setup = setup();
    let egress = ProgramSlot::new(0, Direction::Egress);
    setup.worker.programs.expect_program(egress, Verdict::Pass).unwrap();
    let passes_without_program = [false, true];
    assert_eq!(next_record(setup).settings, Settings { passes_without_program, ..expected });
}

/// Writes its time into each packet, and passes it.
const STAMP: &str = "
    ldxdw r3, [r1+40]
    ldxdw r2, [r1+0]
    stxdw [r2+0], r3
    mov r0, 1
    exit";

/// Otherwise the cloud moves meters and rate limits.
#[test]
fn programs_read_the_p4_vms_clock_whatever_the_host_says() {
    let mut setup = setup_with(STAMP, Geometry { slots: 64, ..Geometry::default() });
    for timestamp_ns in [0, 1, u64::MAX] {
        let before = steady_ns();
        setup
            .requester
            .push(&Request { timestamp_ns, packet_len: 60, ..Request::default() }, &[0; 60])
            .unwrap();
        let _ = setup.requester.publish();
        assert!(setup.worker.round());
        let mut stamp = 0;
        let read = |a: p4shield_channel::CheckedAnswer<'_>| {
            stamp = u64::from_le_bytes(*a.rewrite.unwrap().header.first_chunk().unwrap());
        };
        setup.requester.take(1, read).unwrap();
        assert!((before..=steady_ns()).contains(&stamp), "{timestamp_ns} gave {stamp}");
    }
}

/// Adds a small channel to a worker.
fn add_channel(worker: &mut Worker, number: u32) -> (Requester, Doorbell) {
    add_channel_with(worker, number, 64)
}

fn add_channel_with(worker: &mut Worker, number: u32, header_bytes: u32) -> (Requester, Doorbell) {
    let geometry = Geometry { slots: 4, header_bytes, headroom: 0 };
    let memory = create_channel("test", geometry).unwrap();
    let judge = Responder::new(memory.map_again().unwrap(), geometry).unwrap();
    let (ours, theirs) = Doorbell::pair().unwrap();
    let served = ServedChannel::new(number, judge, &geometry);
    assert!(matches!(worker.attach(Box::new(served), theirs), WorkerAnswer::Done));
    (Requester::new(memory, geometry).unwrap(), ours)
}

/// Returns the rounds until a request over `quiet` is answered while `busy` has a packet in each round.
fn rounds_until_answered(worker: &mut Worker, busy: &mut Requester, quiet: &mut Requester) -> usize {
    quiet.push(&Request { packet_len: 60, ..Request::default() }, &[0; 60]).unwrap();
    let _ = quiet.publish();
    for round in 1..=1000 {
        busy.push(&Request { packet_len: 60, ..Request::default() }, &[0; 60]).unwrap();
        let _ = busy.publish();
        assert!(worker.round());
        assert_eq!(busy.take(4, |_| ()), Ok(1), "a busy channel is served in each round");
        if quiet.take(4, |_| ()) == Ok(1) {
            return round;
        }
    }
    panic!("a channel is not served");
}

#[test]
fn quiet_channels_are_served_while_others_are_busy() {
    let (_control, mailbox) = mailbox().unwrap();
    let mut worker = Worker::new(mailbox, Verdict::Drop, Duration::from_secs(1)).waiting(WaitPolicy::BUSY);
    let mut channels: Vec<_> = (0..100).map(|n| add_channel(&mut worker, n)).collect();
    for _ in 0..100 {
        assert!(worker.round(), "without packets it does not sleep");
    }
    let (busy, quiet) = channels.split_first_mut().unwrap();
    for (requester, _) in quiet.iter_mut() {
        let rounds = rounds_until_answered(&mut worker, &mut busy.0, requester);
        assert!(rounds <= 32, "{rounds} rounds");
    }
    // The removal of a channel does not affect others.
    assert!(matches!(worker.detach(50), WorkerAnswer::Detached(..)));
    for (requester, _) in quiet.iter_mut().enumerate().filter(|(i, _)| *i != 49).map(|(_, c)| c) {
        rounds_until_answered(&mut worker, &mut busy.0, requester);
    }
}

/// A host attaches a channel between two log records.
#[test]
fn the_next_record_states_the_shortest_header_copies() {
    let (_control, mailbox) = mailbox().unwrap();
    let mut worker = Worker::new(mailbox, Verdict::Drop, Duration::from_secs(1)).waiting(WaitPolicy::BUSY);
    assert_eq!(worker.channels.header_bytes(), 0, "without a channel");
    for header_bytes in [128, 64, 128] {
        let _channel = add_channel_with(&mut worker, 0, header_bytes);
        assert!(matches!(worker.detach(0), WorkerAnswer::Detached(..)));
    }
    let _channel = add_channel_with(&mut worker, 0, 128);
    assert_eq!(worker.channels.header_bytes(), 64);
    worker.publish_logs(Now::read());
    assert_eq!(worker.channels.header_bytes(), 128, "the record stated it");
}

#[test]
fn a_worker_notices_once_that_judged_packets_were_sent() {
    let (_control, mailbox) = mailbox().unwrap();
    let mut worker = Worker::new(mailbox, Verdict::Drop, Duration::from_secs(1)).waiting(WaitPolicy::BUSY);
    let [(mut other, _bell), (mut requester, _)] = [0, 1].map(|n| add_channel(&mut worker, n));
    for _ in 0..3 {
        requester.push(&Request { packet_len: 60, ..Request::default() }, &[0; 60]).unwrap();
        let _ = requester.publish();
        assert!(worker.round());
        assert_eq!(requester.take(1, |_| ()), Ok(1));
        other.notify_sent();
        assert!(!worker.channels.take_sent(), "packets of another channel");
        requester.notify_sent();
        assert!(worker.channels.take_sent() && !worker.channels.take_sent());
    }
}

/// Lets a worker that sleeps at once judge packets over each of its channels; then closes its mailbox.
fn sleeps_and_is_woken(channels: u32, can_wait: bool) {
    let (control, mailbox) = mailbox().unwrap();
    let sleepy = WaitPolicy { min_spins: 0, max_spins: 0, yields: 0 };
    let mut worker = Worker::new(mailbox, Verdict::Drop, Duration::from_secs(3600)).waiting(sleepy);
    worker.can_wait &= can_wait;
    let mut channels: Vec<_> = (0..channels).map(|n| add_channel(&mut worker, n)).collect();
    let ended = std::thread::spawn(move || worker.run());
    for _ in 0..3 {
        for (requester, bell) in &mut channels {
            requester.push(&Request { packet_len: 60, ..Request::default() }, &[0; 60]).unwrap();
            let mut due = requester.publish();
            while requester.take(1, |_| ()) != Ok(1) {
                assert!(!due || requester.wake(bell), "the worker runs");
                due = requester.must_wake();
                std::thread::yield_now();
            }
        }
    }
    assert!(
        matches!(control.send(WorkerCommand::Status), Some(WorkerAnswer::Status(_))),
        "commands wake it, too"
    );
    drop(control);
    ended.join().unwrap();
    let (requester, bell) = &mut channels[0];
    assert!(!requester.wake(bell), "the end of the worker is noticed");
}

#[test]
fn a_worker_sleeps_at_futexes_or_doorbells_and_is_woken() {
    sleeps_and_is_woken(3, true);
    sleeps_and_is_woken(3, false);
    sleeps_and_is_woken(MAX_FUTEXES as u32, true);
}

/// As [`PROGRAM`], with a map, whose first element counts packets.
const COUNT: &str = "
    .map counts array 4 16 5000
    mov r6, r1
    stw [r10-4], 0
    lddw r1, map counts
    mov r2, r10
    add r2, -4
    call 1
    jeq r0, 0, end
    ldxdw r1, [r0+0]
    add r1, 1
    stxdw [r0+0], r1
    stxdw [r0+8], r1
    ldxdw r2, [r6+0]
    stb [r2+5], 9
end:
    mov r0, 1
    exit";

/// Sets up a worker whose program counts, and a reading of its map.
fn counting() -> (Setup, Box<MapReading>) {
    let setup = setup_with(COUNT, Geometry { slots: 64, ..Geometry::default() });
    let linked = asm::assemble(COUNT).unwrap();
    let copy = MapCopy::new(&linked.maps[0].definition, 0);
    (setup, Box::new(MapReading { program: linked.digest(), map: 0, copy }))
}

/// Judges packets while a part of the map is read in each round. Returns how many packets were judged, and
/// the rounds in which an element was not of one moment.
fn judge_and_read(setup: &mut Setup, reading: Box<MapReading>) -> (u64, usize) {
    let slot = ProgramSlot::new(0, Direction::Ingress);
    let (mut held, mut rounds, mut wrong) = (Some(reading), 0, 0);
    let judged = judge_while(setup, |control| {
        if let Some(WorkerAnswer::Copied(reading, result)) = control.answer() {
            let first =
                reading.copy.entries().next().map(|(_, v)| v.first_chunk::<8>() == v.last_chunk::<8>());
            wrong += usize::from(result != Ok(()) || first != Some(true));
            held = Some(reading);
        }
        if let Some(mut reading) = held.take() {
            if reading.copy.next().is_none() {
                reading.copy.restart();
            }
            assert!(control.post(WorkerCommand::CopyMap(slot, reading)));
            rounds += 1;
        }
    });
    assert_eq!(rounds, 200, "a part is read in each round");
    (judged, wrong)
}

#[test]
fn reading_a_map_allocates_nothing_in_the_worker() {
    let (mut setup, reading) = counting();
    let slot = ProgramSlot::new(0, Direction::Ingress);
    assert!(setup._control.post(WorkerCommand::CopyMap(slot, reading)));
    let before = allocations();
    assert!(setup.worker.round());
    assert_eq!(allocations(), before);
    let Some(WorkerAnswer::Copied(reading, Ok(()))) = setup._control.answer() else { panic!() };
    assert_eq!(reading.copy.entries().count(), 204);
    // So does a reading that is refused.
    let other = Box::new(MapReading { program: [0; 32], ..*reading });
    assert!(setup._control.post(WorkerCommand::CopyMap(slot, other)));
    let before = allocations();
    assert!(setup.worker.round());
    assert_eq!(allocations(), before);
    assert!(matches!(setup._control.answer(), Some(WorkerAnswer::Copied(_, Err(NotRead::Replaced)))));
}

#[test]
fn packets_are_judged_while_a_map_is_read_in_each_round() {
    let (mut setup, reading) = counting();
    assert_eq!(judge_and_read(&mut setup, reading), (ALL, 0));
}

/// Returns a filter that allows `exit` only. Seccomp's strict mode would also forbid reading the time stamp
/// counter.
fn exit_only() -> seccompiler::BpfProgram {
    use seccompiler::{SeccompAction, SeccompFilter};
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let rules = [(libc::SYS_exit, vec![])].into();
    let filter = SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, arch);
    filter.unwrap().try_into().unwrap()
}

#[test]
fn no_system_call_is_made() {
    let mut setup = setup();
    makes_no_system_call(|| judge(&mut setup) == ALL);
}

#[test]
fn no_system_call_is_made_while_a_map_is_read() {
    let (mut setup, reading) = counting();
    // The other end of the mailbox, which allocates, finds memory without a system call.
    drop(vec![1_u8; 100 << 10]);
    let mut reading = Some(reading);
    makes_no_system_call(|| reading.take().is_some_and(|r| judge_and_read(&mut setup, r) == (ALL, 0)));
}

fn makes_no_system_call(mut work: impl FnMut() -> bool) {
    let filter = exit_only();
    // The first read of a clock looks up the vDSO.
    let _ = Now::read();
    // SAFETY: the child touches only memory that was allocated before, and ends by the bare `exit` call.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    if child == 0 {
        let filtered = seccompiler::apply_filter(&filter).is_ok();
        let judged = filtered && work();
        // SAFETY: takes an integer and does not return.
        unsafe { libc::syscall(libc::SYS_exit, i32::from(!judged)) };
    }
    let mut status = 0;
    // SAFETY: `status` is valid and the process is a child of this one.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(!libc::WIFSIGNALED(status), "killed by signal {}: a system call", libc::WTERMSIG(status));
    assert_eq!(libc::WEXITSTATUS(status), 0, "every packet was judged");
}
