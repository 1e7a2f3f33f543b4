//! Rotation of a VM's key in a running P4 VM.

use crate::programs;
use crate::rig::{FIRST, INGRESS, KEY, Pages, Rig, SECOND, THIRD, hello, memory, wait_for};
use crate::tests::{Test, WEB, with_pages};
use p4shield_abi::info::{InfoStatus, Snapshot};
use p4shield_abi::log_page::LOG_SLOTS;
use p4shield_abi::sketch::Sketch;
use p4shield_abi::{Direction, info_page, log_page};
use p4shield_channel::{PageReader, PageWriter};
use p4shield_control::{ClientError, KeyStatus, Reply, Request, ResourceId, VmKeys};
use p4shield_seal::{
    Epoch, Identity, InfoSealer, LogKey, LogOpener, LogRefusal, Now, OpenedRecord, PacketDigest, TenantKey,
};
use std::time::{Duration, Instant};

pub(crate) const TESTS: &[Test] = &[
    ("a_key_rotates_without_a_gap_in_information_and_log", a_key_rotates_without_a_gap),
    ("the_old_key_ends_with_its_window_which_no_host_prolongs", the_old_key_ends_with_its_window),
    ("a_p4_vm_that_starts_within_a_window_continues_it", a_start_within_a_window_continues_it),
    ("each_vm_has_a_key_of_its_own", each_vm_has_a_key_of_its_own),
];

const NEW: [u8; 32] = [0xa5; 32];

fn key(bytes: [u8; 32]) -> TenantKey {
    TenantKey::from_bytes(bytes)
}

/// A user VM's agent.
struct Agent {
    sealer: InfoSealer,
    page: PageWriter,
}

impl Agent {
    fn new(key: &TenantKey, identity: &Identity<'_>, page: PageWriter) -> Self {
        Self { sealer: InfoSealer::new(key, identity, Epoch::from_clock().unwrap()), page }
    }

    fn publish(&mut self) {
        let mut snapshot = Snapshot::default();
        snapshot.taken_ns = Now::read().real_ns;
        let sealed = self.sealer.seal(&snapshot);
        self.page.publish(sealed.epoch, sealed.counter, sealed.bytes).unwrap();
    }

    /// Publishes and waits until the P4 VM has accepted the snapshot.
    fn is_accepted(&mut self, rig: &mut Rig) {
        let tally = |rig: &mut Rig| rig.status().vms[0].info_tally;
        let before = tally(rig);
        self.publish();
        wait_for("the snapshot", || tally(rig)[0] > before[0]);
        assert_eq!(tally(rig)[1..], before[1..]);
    }

    /// Publishes and waits until the P4 VM has refused the snapshot as a forgery.
    fn is_refused(&mut self, rig: &mut Rig) {
        let forged = |rig: &mut Rig| rig.status().vms[0].info_tally[1];
        let before = forged(rig);
        self.publish();
        wait_for("the refusal", || forged(rig) > before);
    }
}

fn rotate(rig: &mut Rig, new: [u8; 32], window_ms: u32) -> Result<Reply, ClientError> {
    rig.ask(Request::SetKeys { vm: 0, key: FIRST, window_ms }, &[&memory("key", &new)])
}

fn keys(rig: &mut Rig) -> KeyStatus {
    rig.status().vms[0].keys.unwrap()
}

/// Reads every record of a log once.
struct Log {
    page: PageReader,
    opener: LogOpener,
    next: u64,
}

impl Log {
    fn read(&mut self) -> Vec<Result<OpenedRecord, LogRefusal>> {
        let mut sealed = vec![0; self.page.room()];
        let published = self.page.published();
        assert!(published - self.next <= u64::from(LOG_SLOTS), "the test reads too slowly");
        let mut opened = Vec::new();
        for index in std::mem::replace(&mut self.next, published)..published {
            let p = self.page.read(index, &mut sealed).unwrap();
            opened.push(self.opener.open_at(Now::read().mono_ns, p.epoch, p.counter, &sealed[..p.len]));
        }
        opened
    }
}

fn a_key_rotates_without_a_gap() {
    let (mut rig, _pages, info, page) = with_pages("rotates", hello());
    rig.load(INGRESS, programs::ASKS).unwrap();
    rig.load(INGRESS, programs::PASS).unwrap();
    let mut mediator = rig.attach(1);
    let mut agent = Agent::new(&key(KEY), &WEB, info);
    let mut log = Log { page, opener: LogOpener::new(&key(KEY), &WEB), next: 0 };
    agent.is_accepted(&mut rig);
    rotate(&mut rig, NEW, 600_000).unwrap();
    log.opener.rotate(LogKey::new(&key(NEW), &WEB), u64::MAX, 0);
    agent.is_accepted(&mut rig);
    let status = keys(&mut rig);
    assert_eq!(status.current, key(NEW).id().0);
    assert!(!status.agent_follows && !status.log_follows && status.previous_ms > Some(590_000));
    agent.sealer.rotate(&key(NEW), &WEB);
    agent.is_accepted(&mut rig);
    assert!(keys(&mut rig).agent_follows, "the old key has ended for information");
    // The log follows while packets flow. Each record continues the one before.
    let (mut judged, mut rekeyed, mut last, mut sum) = (0, 0, None, None);
    let start = Instant::now();
    while rekeyed == 0
        || judged < 100
        || last.is_none_or(|l: OpenedRecord| l.record.totals[0].judged < judged)
    {
        assert!(start.elapsed() < Duration::from_secs(30), "{judged} judged, {last:?}");
        if rekeyed > 0 && judged < 100 || judged < 50 {
            mediator.judge(Direction::Ingress, 1);
            judged += 1;
        }
        for opened in log.read() {
            let opened = opened.unwrap();
            rekeyed += u32::from(opened.is_rekeyed);
            if opened.is_rekeyed {
                sum = last.map(|l| l.record);
            }
            last = Some(opened);
        }
        agent.publish();
    }
    assert_eq!(rekeyed, 1);
    assert_eq!(log.opener.totals().missed, 0);
    assert!(start.elapsed() > Duration::from_secs(2), "auditors have time to follow");
    let status = rig.status().vms[0].clone();
    assert_eq!((status.info, status.info_tally[1]), (InfoStatus::Known as u8, 0));
    let keys = status.keys.unwrap();
    assert!(keys.log_follows && keys.previous_ms.is_none(), "{keys:?}");
    // Packets before the first record under the new key have digests of the old one, later ones of the new.
    let (before, after) = (sum.unwrap(), last.unwrap().record);
    let since = after.sketches[0].since(&before.sketches[0]);
    let mut expected = Sketch::default();
    let digest = PacketDigest::for_vm(&key(NEW), &WEB);
    let mut packet = [0; 64];
    packet[0] = 1;
    for _ in before.totals[0].passed..after.totals[0].passed {
        expected.add(Sketch::item(digest.digest(&packet, 64)));
    }
    assert_eq!(since, expected);
}

fn the_old_key_ends_with_its_window() {
    let (mut rig, _pages, info, page) = with_pages("window", hello());
    let mut agent = Agent::new(&key(KEY), &WEB, info);
    let mut log = Log { page, opener: LogOpener::new(&key(KEY), &WEB), next: 0 };
    agent.is_accepted(&mut rig);
    log.opener.rotate(LogKey::new(&key(NEW), &WEB), u64::MAX, 0);
    let start = Instant::now();
    rotate(&mut rig, NEW, 1_500).unwrap();
    // The host asks for a longer window, and asks again for the same rotation.
    rotate(&mut rig, NEW, 600_000).unwrap();
    agent.is_accepted(&mut rig);
    assert!(keys(&mut rig).previous_ms <= Some(1_500));
    wait_for("the end of the window", || keys(&mut rig).previous_ms.is_none());
    assert!(start.elapsed() >= Duration::from_millis(1_450), "{:?}", start.elapsed());
    let status = keys(&mut rig);
    assert!(status.log_follows && !status.agent_follows);
    agent.is_refused(&mut rig);
    wait_for("the log's new key", || {
        let records = log.read();
        records.iter().any(|r| r.as_ref().is_ok_and(|r| r.is_rekeyed))
    });
    assert_eq!(log.opener.totals().missed, 0);
    // An agent that follows late is accepted again.
    agent.sealer.rotate(&key(NEW), &WEB);
    agent.is_accepted(&mut rig);
    // A rotation without a window ends the old key at once.
    rotate(&mut rig, KEY, 0).unwrap();
    agent.is_refused(&mut rig);
    agent.sealer.rotate(&key(KEY), &WEB);
    agent.is_accepted(&mut rig);
}

fn a_start_within_a_window_continues_it() {
    let mut rig = Rig::start(hello());
    let pages = Pages::new("within");
    let info = Pages::open(&pages.info, info_page::INFO_PAGE_SIZE);
    let log = Pages::open(&pages.log, log_page::LOG_PAGE_SIZE);
    let fds = [&info, &log].map(|m| m.fd().unwrap().try_clone_to_owned().unwrap());
    let vm = Request::SetVm {
        vm: 0,
        name: "web".into(),
        info: Some(FIRST),
        log: Some(SECOND),
        handshake: None,
        keys: Some(VmKeys { current: THIRD, previous: Some((ResourceId(3), 600_000)) }),
    };
    rig.ask(vm, &[&fds[0], &fds[1], &memory("new", &NEW), &memory("old", &KEY)]).unwrap();
    let slots = (info_page::INFO_MAGIC, info_page::INFO_SLOTS, info_page::INFO_SLOT_STRIDE);
    let mut agent = Agent::new(&key(KEY), &WEB, PageWriter::new(info, slots.0, slots.1, slots.2).unwrap());
    let slots = (log_page::LOG_MAGIC, LOG_SLOTS, log_page::LOG_SLOT_STRIDE);
    let page = PageReader::new(log, slots.0, slots.1, slots.2).unwrap();
    let mut log = Log { page, opener: LogOpener::new(&key(KEY), &WEB), next: 0 };
    agent.is_accepted(&mut rig);
    wait_for("records", || log.opener.totals().accepted > 2 || log.read().iter().any(Result::is_err));
    assert_eq!(log.opener.totals().forged, 0, "the log begins under the key that the auditor has");
    agent.sealer.rotate(&key(NEW), &WEB);
    agent.is_accepted(&mut rig);
}

fn each_vm_has_a_key_of_its_own() {
    let (mut rig, _pages, info, _log) = with_pages("own", hello());
    let other = Pages::new("own-db");
    let db = Identity { vm: "db", ..WEB };
    let page = Pages::open(&other.info, info_page::INFO_PAGE_SIZE);
    let fd = page.fd().unwrap().try_clone_to_owned().unwrap();
    let keys = Some(VmKeys { current: SECOND, previous: None });
    let vm = Request::SetVm { vm: 1, name: "db".into(), info: Some(FIRST), log: None, handshake: None, keys };
    rig.ask(vm, &[&fd, &memory("key", &NEW)]).unwrap();
    // The key of one VM seals nothing for another, whatever name it claims.
    let mut agent = Agent::new(&key(NEW), &WEB, info);
    agent.is_refused(&mut rig);
    agent.sealer = InfoSealer::new(&key(NEW), &db, Epoch::from_clock().unwrap());
    agent.is_refused(&mut rig);
    agent.sealer = InfoSealer::new(&key(KEY), &WEB, Epoch::from_clock().unwrap());
    agent.is_accepted(&mut rig);
    // Nor does a rotation of one VM's key change the other's.
    rotate(&mut rig, [7; 32], 0).unwrap();
    agent.is_refused(&mut rig);
    let (slots, stride) = (info_page::INFO_SLOTS, info_page::INFO_SLOT_STRIDE);
    let page = PageWriter::new(page, info_page::INFO_MAGIC, slots, stride).unwrap();
    let mut other = Agent::new(&key(NEW), &db, page);
    other.publish();
    wait_for("the other VM's snapshot", || rig.status().vms[1].info_tally[0] == 1);
    // A VM without a key has none that could rotate, and a VM that does not exist neither.
    rig.ask(crate::rig::set_vm(2, "bare"), &[]).unwrap();
    for vm in [2, 3] {
        let refused = rig.ask(Request::SetKeys { vm, key: FIRST, window_ms: 1 }, &[&memory("key", &NEW)]);
        assert!(matches!(refused, Err(ClientError::Failed(_))), "{refused:?}");
    }
    let refused = rig.ask(Request::SetKeys { vm: 0, key: FIRST, window_ms: 1 }, &[&memory("key", b"short")]);
    assert!(matches!(refused, Err(ClientError::Failed(_))), "{refused:?}");
}
