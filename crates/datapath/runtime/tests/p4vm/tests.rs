//! The guarantees of a P4 VM.

use crate::programs;
use crate::rig::{
    EGRESS, FIRST, INGRESS, KEY, Mediator, Pages, Rig, SECOND, THIRD, hello, memory, set_vm, set_vm_with_log,
    wait_for,
};
use p4shield_abi::info::{InfoStatus, Snapshot, field};
use p4shield_abi::info_page::{INFO_MAGIC, INFO_PAGE_SIZE, INFO_SLOT_STRIDE, INFO_SLOTS};
use p4shield_abi::log_page::{LOG_MAGIC, LOG_PAGE_SIZE, LOG_SLOT_STRIDE, LOG_SLOTS};
use p4shield_abi::sketch::Sketch;
use p4shield_abi::{Direction, Verdict};
use p4shield_channel::{Memory, PageReader, PageWriter};
use p4shield_control::{ClientError, Hello, MapPart, MapQuery, Reply, Request, VmKeys};
use p4shield_seal::{Epoch, Identity, InfoSealer, LogOpener, OpenedRecord, PacketDigest, TenantKey};
use rustix::process::{WaitOptions, WaitStatus, waitpid};
use std::sync::atomic::Ordering::Relaxed;

pub(crate) type Test = (&'static str, fn());

pub(crate) const TESTS: &[Test] = &[
    ("programs_judge_packets", programs_judge_packets),
    ("packets_that_meet_a_limit_are_counted_by_reason", packets_at_limits_are_counted),
    ("a_direction_without_a_program_drops_and_counts", a_direction_without_a_program_drops_and_counts),
    ("a_direction_without_a_program_passes_if_configured", no_program_passes_if_configured),
    ("an_unsafe_program_is_refused_and_the_old_one_stays", an_unsafe_program_is_refused),
    ("programs_cannot_reach_each_others_maps", programs_cannot_reach_each_others_maps),
    ("replacing_programs_under_traffic_loses_nothing", replacing_programs_under_traffic_loses_nothing),
    ("programs_read_sealed_information_only", programs_read_sealed_information_only),
    ("the_log_records_verdicts", the_log_records_verdicts),
    ("a_floor_raises_the_logs_epoch_and_lowers_none", a_floor_raises_the_logs_epoch),
    ("truncated_pages_cost_their_vm_only", pages_cut_short),
    ("a_mediator_that_breaks_the_protocol_loses_its_channel_only", a_broken_channel_is_left_alone),
    ("channels_come_and_go", channels_come_and_go),
    ("an_idle_worker_sleeps", an_idle_worker_sleeps),
    ("a_worker_that_sleeps_for_long_is_woken_for_each_packet", a_worker_is_woken_for_each_packet),
    ("a_worker_has_short_time_slices", a_worker_has_short_time_slices),
    ("maps_are_described_and_read_in_parts", maps_are_read_in_parts),
    ("machine_code_lies_where_no_channel_can_be", machine_code_lies_where_no_channel_can_be),
    ("it_ends_when_its_host_closes_the_connection", it_ends_when_its_host_closes_the_connection),
    ("it_ends_when_its_verifier_is_lost", it_ends_when_its_verifier_is_lost),
];

fn programs_judge_packets() {
    let mut rig = Rig::with_vm();
    rig.load(INGRESS, programs::ODD).unwrap();
    let mut m = rig.attach(1);
    for byte in [1, 2, 3, 4] {
        let verdict = if byte % 2 == 1 { Verdict::Pass } else { Verdict::Drop };
        assert_eq!(m.judge(Direction::Ingress, byte), (verdict, None));
    }
    assert_eq!(rig.entry(INGRESS, "counts", 1), Some(4));
    let ingress = rig.status().vms[0].directions[0].clone();
    assert_eq!((ingress.judged, ingress.passed, ingress.dropped, ingress.failed), (4, 2, 2, 0));
}

fn packets_at_limits_are_counted() {
    let mut rig = Rig::with_vm();
    rig.load(INGRESS, programs::FIRST_BYTE).unwrap();
    let mut m = rig.attach(1);
    for byte in [0, 1, 2, 3, 2, 4, 5] {
        let verdict = if byte == 1 { Verdict::Pass } else { Verdict::Drop };
        assert_eq!(m.judge(Direction::Ingress, byte), (verdict, None));
    }
    let ingress = rig.status().vms[0].directions[0].clone();
    assert_eq!((ingress.dropped, ingress.failed, ingress.limited), (6, 0, [2, 1, 1]));
}

fn a_direction_without_a_program_drops_and_counts() {
    let mut rig = Rig::with_vm();
    let mut m = rig.attach(1);
    assert_eq!(m.judge(Direction::Egress, 1).0, Verdict::Drop);
    let egress = rig.status().vms[0].directions[1].clone();
    assert_eq!((egress.judged, egress.dropped, egress.failed), (1, 1, 1));
}

fn no_program_passes_if_configured() {
    let mut rig = Rig::start(Hello { no_program: Verdict::Pass as u8, ..hello() });
    rig.ask(set_vm(0, "web"), &[]).unwrap();
    let mut m = rig.attach(1);
    assert_eq!(m.judge(Direction::Egress, 1).0, Verdict::Pass);
}

/// No log record wakes the worker within an hour.
fn a_worker_is_woken_for_each_packet() {
    let mut rig =
        Rig::start(Hello { no_program: Verdict::Pass as u8, log_interval_ms: 3_600_000, ..hello() });
    rig.ask(set_vm(0, "web"), &[]).unwrap();
    let mut m = rig.attach(1);
    for byte in 0..10 {
        // Longer than it spins.
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert_eq!(m.judge(Direction::Egress, byte).0, Verdict::Pass);
    }
}

fn an_unsafe_program_is_refused() {
    let mut rig = Rig::with_vm();
    rig.load(INGRESS, programs::PASS).unwrap();
    let mut m = rig.attach(1);
    match rig.load(INGRESS, programs::UNSAFE) {
        Err(ClientError::Refused(why)) => assert!(!why.is_empty()),
        other => panic!("{other:?}"),
    }
    assert!(matches!(rig.load_object(INGRESS, b"not an object"), Err(ClientError::Refused(_))));
    assert_eq!(m.judge(Direction::Ingress, 2).0, Verdict::Pass);
}

fn programs_cannot_reach_each_others_maps() {
    let mut rig = Rig::with_vm();
    // The same program twice, with a table of the same name.
    let digest = rig.load(INGRESS, programs::ODD).unwrap();
    assert_eq!(rig.load(EGRESS, programs::ODD).unwrap(), digest);
    let mut m = rig.attach(1);
    for _ in 0..5 {
        m.judge(Direction::Ingress, 1);
    }
    m.judge(Direction::Egress, 1);
    assert_eq!(rig.entry(INGRESS, "counts", 1), Some(5));
    assert_eq!(rig.entry(EGRESS, "counts", 1), Some(1));
    // A new program starts with empty tables.
    rig.load(INGRESS, programs::ODD).unwrap();
    assert_eq!(rig.entry(INGRESS, "counts", 1), Some(0));
}

fn replacing_programs_under_traffic_loses_nothing() {
    const PACKETS: u64 = 500_000;
    let mut rig = Rig::with_vm();
    let objects = [1, 2].map(|v| programs::object(&programs::stamp(v)));
    rig.load_object(INGRESS, &objects[0]).unwrap();
    let mut m = rig.attach(1);
    let traffic = std::thread::spawn(move || {
        let (mut asked, mut answered, mut stamps) = (0, 0_u64, [0_u64; 3]);
        wait_for("the last answer", || {
            if asked < PACKETS {
                asked += m.push(Direction::Ingress, (PACKETS - asked).min(32) as usize, |_| 0) as u64;
            }
            let take = |a: p4shield_channel::CheckedAnswer<'_>| {
                // Every packet is passed once, in order, stamped by one of the two programs.
                assert_eq!((a.id, a.verdict), (answered, Verdict::Pass));
                stamps[usize::from(a.rewrite.unwrap().header[1])] += 1;
                answered += 1;
            };
            m.requester.take(64, take).unwrap();
            m.wake();
            answered == PACKETS
        });
        stamps
    });
    let mut replaced = 0;
    while !traffic.is_finished() {
        replaced += 1;
        rig.load_object(INGRESS, &objects[replaced % 2]).unwrap();
    }
    let stamps = traffic.join().unwrap();
    assert!(replaced > 2, "replaced {replaced} times");
    assert_eq!((stamps[0], stamps[1] + stamps[2]), (0, PACKETS));
    assert!(stamps[1] > 0 && stamps[2] > 0, "{stamps:?}");
    let ingress = rig.status().vms[0].directions[0].clone();
    assert_eq!((ingress.judged, ingress.passed), (PACKETS, PACKETS));
    println!("  {PACKETS} packets, {replaced} replacements, by version {stamps:?}");
}

/// Starts a P4 VM with pages, and opens the user VM's ends.
pub(crate) fn with_pages(name: &str, hello: Hello) -> (Rig, Pages, PageWriter, PageReader) {
    let mut rig = Rig::start(hello);
    let (pages, info, log) = give_pages(&mut rig, name);
    (rig, pages, info, log)
}

/// Gives a P4 VM its first VM, with pages.
pub(crate) fn give_pages(rig: &mut Rig, name: &str) -> (Pages, PageWriter, PageReader) {
    let pages = Pages::new(name);
    let (info, log) = (Pages::open(&pages.info, INFO_PAGE_SIZE), Pages::open(&pages.log, LOG_PAGE_SIZE));
    let fds = [&info, &log].map(|m| m.fd().unwrap().try_clone_to_owned().unwrap());
    let keys = Some(VmKeys { current: THIRD, previous: None });
    let (info_page, log_page) = (Some(FIRST), Some(SECOND));
    let vm =
        Request::SetVm { vm: 0, name: "web".into(), info: info_page, log: log_page, handshake: None, keys };
    rig.ask(vm, &[&fds[0], &fds[1], &memory("key", &KEY)]).unwrap();
    let info = PageWriter::new(info, INFO_MAGIC, INFO_SLOTS, INFO_SLOT_STRIDE).unwrap();
    let log = PageReader::new(log, LOG_MAGIC, LOG_SLOTS, LOG_SLOT_STRIDE).unwrap();
    (pages, info, log)
}

pub(crate) const WEB: Identity<'_> = Identity { tenant: "red", vm: "web" };

fn programs_read_sealed_information_only() {
    let (mut rig, _pages, mut info, _) = with_pages("info", hello());
    rig.load(INGRESS, programs::ASKS).unwrap();
    rig.load(EGRESS, programs::CARELESS).unwrap();
    let mut m = rig.attach(1);
    let mut verdicts = move || (m.judge(Direction::Ingress, 0).0, m.judge(Direction::Egress, 0).0);
    assert_eq!(verdicts(), (Verdict::Drop, Verdict::Drop), "nothing was published yet");

    let key = TenantKey::from_bytes(KEY);
    let mut sealer = InfoSealer::new(&key, &WEB, Epoch::from_clock().unwrap());
    let mut snapshot = Snapshot::default();
    snapshot.taken_ns = p4shield_seal::Now::read().real_ns;
    snapshot.set(field::APP_BASE, 7);
    let sealed = sealer.seal(&snapshot);
    let genuine = (sealed.epoch, sealed.counter, sealed.bytes.to_vec());
    info.publish(sealed.epoch, sealed.counter, sealed.bytes).unwrap();
    wait_for("the snapshot", || verdicts() == (Verdict::Pass, Verdict::Pass));

    snapshot.set(field::APP_BASE, 8);
    let sealed = sealer.seal(&snapshot);
    info.publish(sealed.epoch, sealed.counter, sealed.bytes).unwrap();
    wait_for("the next snapshot", || verdicts() == (Verdict::Drop, Verdict::Pass));

    let mut forged = genuine.2.clone();
    forged[0] ^= 1;
    info.publish(genuine.0, genuine.1 + 9, &forged).unwrap();
    wait_for("the forgery to be counted", || rig.status().vms[0].info_tally[1] == 1);
    info.publish(genuine.0, genuine.1, &genuine.2).unwrap();
    wait_for("the replay to be counted", || rig.status().vms[0].info_tally[2] == 1);
    assert_eq!(verdicts(), (Verdict::Drop, Verdict::Pass), "what was genuine and is fresh stays in force");
    let status = rig.status().vms[0].clone();
    assert_eq!((status.info, status.info_tally), (InfoStatus::Known as u8, [2, 1, 1, 0]));
}

fn the_log_records_verdicts() {
    let (mut rig, _pages, _, log) = with_pages("log", hello());
    let digest = rig.load(INGRESS, programs::ODD).unwrap();
    rig.load(EGRESS, programs::CARELESS).unwrap();
    let mut m = rig.attach(1);
    for byte in [1, 2, 3] {
        m.judge(Direction::Ingress, byte);
    }
    m.judge(Direction::Egress, 0);
    let key = TenantKey::from_bytes(KEY);
    let mut opener = LogOpener::new(&key, &WEB);
    let mut record = None;
    wait_for("the record", || {
        record = newest(&log, &mut opener).or(record);
        record.is_some_and(|r| r.record.totals[1].judged == 1)
    });
    let record = record.unwrap().record;
    let ingress = record.totals[0];
    assert_eq!((ingress.judged, ingress.passed, ingress.dropped), (3, 2, 1));
    assert_eq!((ingress.judged_bytes, ingress.passed_bytes, ingress.dropped_bytes), (192, 128, 64));
    let digests = PacketDigest::for_vm(&key, &WEB);
    let sum = |bytes: &[u8]| {
        bytes.iter().fold(0_u64, |sum, b| {
            let mut packet = [0; 64];
            packet[0] = *b;
            sum.wrapping_add(digests.digest(&packet, 64))
        })
    };
    assert_eq!((ingress.judged_digest, ingress.passed_digest), (sum(&[1, 2, 3]), sum(&[1, 3])));
    assert_eq!((record.totals[1].undecided, record.totals[1].dropped), (1, 1));
    assert_eq!((record.programs[0], record.header_bytes), (digest, 128));
    let of = |bytes: &[u8]| {
        let mut sketch = Sketch::default();
        bytes.iter().for_each(|b| sketch.add(Sketch::item(sum(&[*b]))));
        sketch
    };
    assert_eq!(record.sketches, [of(&[1, 3]), of(&[0])], "passed ingress, judged egress");
    assert_eq!(ingress.without_program, 0);
    rig.ask(Request::UnloadProgram { slot: INGRESS }, &[]).unwrap();
    // The last record is published at the end.
    for _ in 0..10 {
        m.judge(Direction::Ingress, 1);
    }
    rig.ask(Request::Stop, &[]).unwrap();
    wait_for("the last record", || {
        newest(&log, &mut opener)
            .is_some_and(|r| (r.record.totals[0].judged, r.record.totals[0].without_program) == (13, 10))
    });
}

fn pages_cut_short() {
    let (mut rig, pages, _info, _log) = with_pages("cut", hello());
    rig.load(INGRESS, programs::PASS).unwrap();
    let mut m = rig.attach(1);
    for path in [&pages.info, &pages.log] {
        std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(0).unwrap();
    }
    // Long enough for many polls of both pages.
    let records = rig.status().vms[0].log_records;
    for _ in 0..50 {
        assert_eq!(m.judge(Direction::Ingress, 1).0, Verdict::Pass);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let status = rig.status().vms[0].clone();
    assert_eq!(status.info, InfoStatus::Missing as u8);
    assert!(status.log_records <= records + 1, "records on a truncated page do not count");
}

fn a_floor_raises_the_logs_epoch() {
    let before = p4shield_seal::Now::read().real_ns;
    let year = 86_400_000_000_000 * 365;
    // The floor is a year ahead of the clock, as after the clock was set back; or long past.
    for (name, min_epoch, least) in [("ahead", before + year, before + year), ("old", before - year, before)]
    {
        let (_rig, _pages, _, log) = with_pages(name, Hello { min_epoch, ..hello() });
        let mut opener = LogOpener::new(&TenantKey::from_bytes(KEY), &WEB);
        let mut epoch = None;
        wait_for("a record", || {
            epoch = newest(&log, &mut opener).map(|r| r.epoch);
            epoch.is_some()
        });
        assert!(epoch.unwrap() >= least, "{name}: {epoch:?} is below {least}");
    }
    // Without room for random bits, two P4 VMs could seal with the same key and nonce.
    let mut rig = Rig::start(Hello { min_epoch: u64::MAX, ..hello() });
    let page = memory("page", &[0; LOG_PAGE_SIZE]);
    let refused = rig.ask(set_vm_with_log(), &[&page, &memory("key", &KEY)]);
    assert!(matches!(&refused, Err(ClientError::Failed(why)) if why.contains("epoch")), "{refused:?}");
}

pub(crate) fn newest(log: &PageReader, opener: &mut LogOpener) -> Option<OpenedRecord> {
    let mut sealed = vec![0; log.room()];
    let p = log.newest(&mut sealed).ok()??;
    opener.open(p.epoch, p.counter, &sealed[..p.len]).ok()
}

fn a_broken_channel_is_left_alone() {
    let mut rig = Rig::with_vm();
    rig.load(INGRESS, programs::PASS).unwrap();
    let (bad, mut good) = (rig.attach(1), rig.attach(2));
    bad.requester.memory().store_u32(p4shield_abi::channel::REQUEST_HEAD, 0x8000_0000, Relaxed);
    bad.bell.ring();
    wait_for("the fault", || rig.status().channels[0].fault.is_some());
    assert_eq!(good.judge(Direction::Ingress, 1).0, Verdict::Pass);
    assert_eq!(rig.status().channels[1].fault, None);
}

fn channels_come_and_go() {
    let mut rig = Rig::with_vm();
    rig.load(INGRESS, programs::PASS).unwrap();
    for channel in 0..100 {
        let mut m: Mediator = rig.attach(channel);
        assert_eq!(m.judge(Direction::Ingress, 1).0, Verdict::Pass);
        rig.ask(Request::DetachChannel { channel }, &[]).unwrap();
    }
    assert!(matches!(rig.ask(Request::DetachChannel { channel: 0 }, &[]), Err(ClientError::Failed(_))));
    assert_eq!(rig.status().channels, []);
}

fn an_idle_worker_sleeps() {
    let mut rig = Rig::with_vm();
    rig.load(INGRESS, programs::PASS).unwrap();
    let mut m = rig.attach(1);
    let dropped = rig.attach(2);
    drop(dropped);
    for _ in 0..3 {
        assert_eq!(m.judge(Direction::Ingress, 1).0, Verdict::Pass);
        // The thread sleeps at every check; a spinning thread would be running.
        wait_for("sleep", || (0..100).all(|_| of_threads(&rig, 3) == ["S", "S"]));
    }
}

/// Returns a field of proc_pid_stat(5), by its number, for each thread.
fn of_threads(rig: &Rig, field: usize) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", rig.pid.as_raw_pid())).unwrap();
    let stats = tasks.map(|t| std::fs::read_to_string(t.unwrap().path().join("stat")).unwrap());
    // The second field is the name in parentheses, with any characters.
    let field = |stat: String| {
        let (_, behind_the_name) = stat.rsplit_once(") ").unwrap();
        behind_the_name.split(' ').nth(field - 3).unwrap().to_owned()
    };
    stats.map(field).collect()
}

fn a_worker_has_short_time_slices() {
    let rig = Rig::with_vm();
    let slice_ns = |task: std::path::PathBuf| {
        let scheduling = std::fs::read_to_string(task.join("sched")).unwrap_or_default();
        let line = scheduling.lines().find_map(|l| l.strip_prefix("se.slice"))?;
        line.trim_start_matches([' ', ':']).parse::<u64>().ok()
    };
    let tasks = std::fs::read_dir(format!("/proc/{}/task", rig.pid.as_raw_pid())).unwrap();
    let mut slices: Vec<u64> = tasks.filter_map(|t| slice_ns(t.unwrap().path())).collect();
    slices.sort_unstable();
    match slices[..] {
        [worker, control] => assert!(worker == 100_000 && control > worker, "{slices:?}"),
        _ => p4shield_need::skip("linux-6.12", format_args!("the kernel does not show slices: {slices:?}")),
    }
}

fn maps_are_read_in_parts() {
    let mut rig = Rig::with_vm();
    let large = programs::ODD.replace("{2, 4, 8, 4, 0}", "{2, 4, 8, 100000, 0}");
    let program = rig.load(INGRESS, &large).unwrap();
    let mut m = rig.attach(1);
    (0..3).for_each(|_| assert_eq!(m.judge(Direction::Ingress, 1).0, Verdict::Pass));
    let describe = |slot, maps| Request::DescribeProgram { slot, maps, schema: 0 };
    let Ok(Reply::Description(d)) = rig.ask(describe(INGRESS, 0), &[]) else { panic!() };
    assert_eq!((d.program, d.map_count, d.schema_len), (program, 1, None));
    assert_eq!((d.maps[0].name.as_str(), d.maps[0].definition), ("counts", [2, 4, 8, 100_000, 0]));
    // What does not exist gives nothing.
    let Ok(Reply::Description(d)) = rig.ask(describe(INGRESS, u32::MAX), &[]) else { panic!() };
    assert!(d.maps.is_empty());
    assert!(matches!(rig.ask(describe(EGRESS, 0), &[]), Err(ClientError::Failed(_))));

    let query = MapQuery { slot: INGRESS, program, map: 0, from: 0, rows: 10, zeros: false };
    let mut read = |query: &MapQuery| match rig.ask(Request::ReadMap(query.clone()), &[]) {
        Ok(Reply::MapPart(part)) => Ok(part),
        Err(ClientError::Failed(why)) => Err(why),
        other => panic!("{other:?}"),
    };
    // All slots, in as many replies as it takes.
    let mut all = |mut query: MapQuery| {
        let (mut entries, mut more) = (Vec::new(), 0);
        loop {
            let MapPart { entries: part, more: left, next } = read(&query).unwrap();
            assert!(next.is_none_or(|n| n > query.from), "it advances");
            entries.extend(part);
            more += left;
            match next {
                Some(next) => query.from = next,
                None => return (entries, more),
            }
        }
    };
    let three = (1_u32.to_ne_bytes().to_vec(), 3_u64.to_ne_bytes().to_vec());
    assert_eq!(all(query.clone()), (vec![three], 0));
    assert_eq!(all(MapQuery { rows: 0, ..query.clone() }), (vec![], 1), "counted, not sent");
    let (entries, more) = all(MapQuery { zeros: true, rows: u32::MAX, ..query.clone() });
    assert_eq!((entries.len(), more), (100_000, 0));
    for wrong in [
        MapQuery { program: [0; 32], ..query.clone() },
        MapQuery { map: 1, ..query.clone() },
        MapQuery { slot: EGRESS, ..query.clone() },
    ] {
        assert!(read(&wrong).is_err(), "{wrong:?}");
    }
    assert_eq!(read(&MapQuery { from: u32::MAX, ..query }), Ok(MapPart::default()));
    rig.ask(Request::UnloadProgram { slot: INGRESS }, &[]).unwrap();
    assert!(matches!(rig.ask(describe(INGRESS, 0), &[]), Err(ClientError::Failed(_))));
}

fn machine_code_lies_where_no_channel_can_be() {
    let mut rig = Rig::with_vm();
    rig.load(INGRESS, programs::ODD).unwrap();
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", rig.pid.as_raw_pid())).unwrap();
    let is_code = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words[1].contains('x') && words.len() == 5
    };
    let starts = maps
        .lines()
        .filter(is_code)
        .map(|line| usize::from_str_radix(line.split_once('-').unwrap().0, 16).unwrap());
    let starts: Vec<usize> = starts.collect();
    assert!(!starts.is_empty() && starts.iter().all(|at| p4shield_bpf::CODE_STARTS.contains(at)), "{maps}");
}

fn it_ends_when_its_host_closes_the_connection() {
    let mut rig = Rig::with_vm();
    let proc = format!("/proc/{}", rig.pid.as_raw_pid());
    let status = std::fs::read_to_string(format!("{proc}/status")).unwrap();
    assert!(status.contains("Seccomp:\t2") && status.contains("NoNewPrivs:\t1"), "{status}");
    assert!(
        status.contains("CapPrm:\t0000000000000000") && status.contains("CapBnd:\t0000000000000000"),
        "{status}"
    );
    rig.hang_up();
    let mut status = None;
    wait_for("the end", || {
        status = ended(rig.pid);
        status.is_some()
    });
    assert_eq!(status.unwrap().exit_status(), Some(0), "it ends by itself: {status:?}");
}

/// Reaps a child of this process and returns how it ended, if it has ended.
fn it_ends_when_its_verifier_is_lost() {
    let mut rig = Rig::with_vm();
    let pid = rig.pid.as_raw_pid();
    // The zygote is its only child, which the OOM killer could choose.
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let zygote = children.trim().parse().ok().and_then(rustix::process::Pid::from_raw).unwrap();
    rustix::process::kill_process(zygote, rustix::process::Signal::KILL).unwrap();
    match rig.load(INGRESS, programs::PASS) {
        Err(ClientError::Refused(why)) => assert!(why.contains("verifier"), "{why}"),
        other => panic!("{other:?}"),
    }
    wait_for("the end", || ended(rig.pid).is_some());
}

fn ended(pid: rustix::process::Pid) -> Option<WaitStatus> {
    waitpid(Some(pid), WaitOptions::NOHANG).unwrap().map(|(_, status)| status)
}
