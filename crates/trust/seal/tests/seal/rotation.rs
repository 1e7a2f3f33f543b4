//! Rotation of keys against a cloud that replays, cuts, withholds and prolongs.

use std::time::Duration;

use p4shield_abi::info::{InfoStatus, Snapshot};
use p4shield_abi::log_page::LogRecord;
use p4shield_seal::{
    AgeLimit, Continuity, Epoch, Identity, InfoKey, InfoOpener, InfoRefusal, InfoSealer, KeyRing, LogKey,
    LogOpener, LogRefusal, LogSealer, Now, TenantKey,
};

const OLD: TenantKey = TenantKey::from_bytes([1; 32]);
const NEW: TenantKey = TenantKey::from_bytes([2; 32]);
const WEB: Identity<'_> = Identity { tenant: "acme", vm: "web" };
const MS: u64 = 1_000_000;
const WINDOW: u64 = 1_000 * MS;

fn at(ms: u64) -> Now {
    Now { mono_ns: ms * MS, real_ns: 1_700_000_000_000 * MS + ms * MS }
}

#[derive(Clone)]
struct Page {
    epoch: u64,
    counter: u64,
    bytes: Vec<u8>,
}

fn info(s: &mut InfoSealer, ms: u64) -> Page {
    let mut snapshot = Snapshot::default();
    snapshot.taken_ns = at(ms).real_ns;
    let sealed = s.seal(&snapshot);
    Page { epoch: sealed.epoch, counter: sealed.counter, bytes: sealed.bytes.to_vec() }
}

fn open(o: &mut InfoOpener, p: &Page, ms: u64) -> Result<(), InfoRefusal> {
    o.open(p.epoch, p.counter, &p.bytes, at(ms)).map(drop)
}

fn rotate_info(opener: &mut InfoOpener, key: &TenantKey) {
    opener.rotate(&mut Some(InfoKey::new(key, &WEB)), WINDOW);
}

/// An agent and a P4 VM with the old key that have exchanged a snapshot, after which the key rotates.
fn rotated() -> (InfoSealer, InfoOpener) {
    let mut sealer = InfoSealer::new(&OLD, &WEB, Epoch::from_clock().unwrap());
    let mut opener = InfoOpener::new(&OLD, &WEB, AgeLimit::default());
    open(&mut opener, &info(&mut sealer, 0), 0).unwrap();
    rotate_info(&mut opener, &NEW);
    (sealer, opener)
}

#[test]
fn both_keys_are_accepted_within_the_window() {
    let (mut sealer, mut opener) = rotated();
    for ms in (10..500).step_by(10) {
        open(&mut opener, &info(&mut sealer, ms), ms).unwrap();
        assert_eq!(opener.status(at(ms)), InfoStatus::Known);
    }
    assert_eq!(opener.current_since(), None, "the agent still has the old key");
    sealer.rotate(&NEW, &WEB);
    for ms in (500..2_000).step_by(10) {
        open(&mut opener, &info(&mut sealer, ms), ms).unwrap();
        assert_eq!(opener.status(at(ms)), InfoStatus::Known, "there is no gap");
    }
    assert_eq!(opener.current_since(), Some(500 * MS));
    assert_eq!(opener.totals().forged + opener.totals().replayed + opener.totals().stale, 0);
}

#[test]
fn the_old_key_ends_when_the_agent_uses_the_new_one() {
    let (mut sealer, mut opener) = rotated();
    let kept = info(&mut sealer, 20);
    // A later position, sealed by a cloud that has stolen the old key.
    let mut thief = InfoSealer::new(&OLD, &WEB, Epoch::from_session(u64::MAX / 2));
    sealer.rotate(&NEW, &WEB);
    open(&mut opener, &info(&mut sealer, 30), 30).unwrap();
    assert_eq!(opener.previous_until(), None);
    assert_eq!(open(&mut opener, &kept, 31), Err(InfoRefusal::Forged));
    assert_eq!(open(&mut opener, &info(&mut thief, 31), 31), Err(InfoRefusal::Forged));
}

#[test]
fn the_old_key_ends_with_its_window() {
    let (mut sealer, mut opener) = rotated();
    let kept = info(&mut sealer, 990);
    open(&mut opener, &info(&mut sealer, 999), 999).unwrap();
    assert_eq!(open(&mut opener, &info(&mut sealer, 1_000), 1_000), Err(InfoRefusal::Forged));
    assert_eq!(open(&mut opener, &kept, 1_001), Err(InfoRefusal::Forged));
    assert_eq!(opener.previous_until(), None);
    // The status alone ends it, too, so that a cloud gains nothing by withholding publications.
    let (_, mut opener) = rotated();
    opener.status(at(1_000));
    assert_eq!(opener.previous_until(), None);
}

#[test]
fn a_rotation_makes_no_replay_acceptable() {
    let (mut sealer, mut opener) = rotated();
    let kept = info(&mut sealer, 20);
    open(&mut opener, &info(&mut sealer, 30), 30).unwrap();
    assert_eq!(open(&mut opener, &kept, 31), Err(InfoRefusal::Replayed), "within the window");
    // Back to the first key: what was sealed with it before is old.
    sealer.rotate(&NEW, &WEB);
    open(&mut opener, &info(&mut sealer, 40), 40).unwrap();
    rotate_info(&mut opener, &OLD);
    assert_eq!(open(&mut opener, &kept, 41), Err(InfoRefusal::Replayed));
    assert_eq!(opener.current_since(), None, "a replay is no sign of the agent");
    assert!(opener.previous_until().is_some(), "nor does it end the key that the agent has");
}

#[test]
fn a_window_only_becomes_shorter() {
    let (mut sealer, mut opener) = rotated();
    opener.shorten_window(5 * WINDOW);
    assert_eq!(opener.previous_until(), Some(WINDOW));
    opener.shorten_window(500 * MS);
    assert_eq!(open(&mut opener, &info(&mut sealer, 500), 500), Err(InfoRefusal::Forged));
    opener.shorten_window(WINDOW);
    assert_eq!(opener.previous_until(), None, "what has ended is wiped");
}

#[test]
fn a_restarted_p4_vm_continues_the_window() {
    let mut sealer = InfoSealer::new(&OLD, &WEB, Epoch::from_clock().unwrap());
    let ring = KeyRing::new(NEW.duplicate()).with_previous(OLD.duplicate(), WINDOW);
    let mut opener = InfoOpener::with_keys(&ring, &WEB, AgeLimit::default());
    open(&mut opener, &info(&mut sealer, 10), 10).unwrap();
    sealer.rotate(&NEW, &WEB);
    open(&mut opener, &info(&mut sealer, 20), 20).unwrap();
    assert_eq!(opener.previous_until(), None);
}

#[test]
fn a_key_of_one_vm_opens_nothing_of_another() {
    let (a, b) = (TenantKey::from_bytes([3; 32]), TenantKey::from_bytes([4; 32]));
    let db = Identity { vm: "db", ..WEB };
    let mut sealer = InfoSealer::new(&a, &WEB, Epoch::from_clock().unwrap());
    let page = info(&mut sealer, 0);
    // Neither the VM that has the other key, nor the VM itself if keys were exchanged.
    for (key, identity) in [(&b, db), (&b, WEB), (&a, db)] {
        let mut opener = InfoOpener::new(key, &identity, AgeLimit::default());
        assert_eq!(open(&mut opener, &page, 0), Err(InfoRefusal::Forged));
    }
}

fn record(s: &mut LogSealer, judged: u64) -> Page {
    let mut r = LogRecord::default();
    r.totals[0].judged = judged;
    let sealed = s.seal(&r);
    Page { epoch: sealed.epoch, counter: sealed.counter, bytes: sealed.bytes.to_vec() }
}

/// A P4 VM and an auditor with the old key; the auditor has read one record and awaits the new key.
fn logs() -> (LogSealer, LogOpener) {
    std::thread::sleep(Duration::from_millis(3));
    let mut sealer = LogSealer::new(&OLD, &WEB, Epoch::from_clock().unwrap());
    let mut opener = LogOpener::new(&OLD, &WEB);
    read(&mut opener, &record(&mut sealer, 1), 0).unwrap();
    opener.rotate(LogKey::new(&NEW, &WEB), WINDOW, WINDOW);
    (sealer, opener)
}

fn read(o: &mut LogOpener, p: &Page, ms: u64) -> Result<(Continuity, bool), LogRefusal> {
    o.open_at(ms * MS, p.epoch, p.counter, &p.bytes).map(|r| (r.continuity, r.is_rekeyed))
}

fn rotate(s: &mut LogSealer) {
    s.rotate(&mut LogKey::new(&NEW, &WEB));
}

#[test]
fn the_chain_of_a_log_crosses_a_rotation() {
    let (mut sealer, mut opener) = logs();
    assert_eq!(read(&mut opener, &record(&mut sealer, 2), 1), Ok((Continuity::Next, false)));
    rotate(&mut sealer);
    assert_eq!(read(&mut opener, &record(&mut sealer, 3), 2), Ok((Continuity::Next, true)));
    assert_eq!(read(&mut opener, &record(&mut sealer, 4), 3), Ok((Continuity::Next, false)));
    assert!(!opener.awaits_rotation());
    assert_eq!(opener.key_id(), NEW.id());
}

#[test]
fn records_cut_at_a_rotation_are_counted() {
    let (mut sealer, mut opener) = logs();
    record(&mut sealer, 2);
    record(&mut sealer, 3);
    rotate(&mut sealer);
    record(&mut sealer, 4);
    let missed = Continuity::Gap { missed: 3 };
    assert_eq!(read(&mut opener, &record(&mut sealer, 5), 2), Ok((missed, true)));
    assert_eq!(opener.totals().missed, 3);
}

/// A P4 VM that the cloud cloned continues its log under the new key, whose records are not those of the
/// one that the auditor has read.
#[test]
fn another_log_does_not_continue_at_a_rotation() {
    // The highest epoch, to which no random bits can be added.
    let dir = tempfile::tempdir().unwrap();
    let [mut shown, mut cloned] = ["a", "b"].map(|name| {
        let path = dir.path().join(name);
        std::fs::write(&path, "epoch 18446744073709551614 f256fc80ca2438d0\n").unwrap();
        LogSealer::new(&OLD, &WEB, Epoch::next_in(&path).unwrap())
    });
    let mut opener = LogOpener::new(&OLD, &WEB);
    opener.rotate(LogKey::new(&NEW, &WEB), WINDOW, WINDOW);
    read(&mut opener, &record(&mut shown, 1), 0).unwrap();
    record(&mut cloned, 2);
    rotate(&mut cloned);
    assert_eq!(read(&mut opener, &record(&mut cloned, 3), 1), Err(LogRefusal::ChainBroken));
}

#[test]
fn records_under_the_old_key_are_refused_after_the_rotation() {
    let (mut sealer, mut opener) = logs();
    // A cloud that has stolen the old key continues the log with it.
    let mut thief = LogSealer::new(&OLD, &WEB, Epoch::from_session(u64::MAX / 2));
    let stolen = record(&mut thief, 100);
    rotate(&mut sealer);
    read(&mut opener, &record(&mut sealer, 2), 1).unwrap();
    assert_eq!(read(&mut opener, &stolen, 2), Err(LogRefusal::OldKey));
    assert_eq!(opener.totals().old_key, 1);
    // The log itself goes on.
    assert_eq!(read(&mut opener, &record(&mut sealer, 3), 3), Ok((Continuity::Next, false)));
    // Once the old key is forgotten, its records are forgeries like any.
    assert_eq!(read(&mut opener, &stolen, 1_001), Err(LogRefusal::Forged));
}

#[test]
fn a_log_that_keeps_the_old_key_is_refused_after_the_window() {
    let (mut sealer, mut opener) = logs();
    assert!(read(&mut opener, &record(&mut sealer, 2), 999).is_ok());
    assert_eq!(read(&mut opener, &record(&mut sealer, 3), 1_000), Err(LogRefusal::OldKey));
    assert!(!opener.awaits_rotation());
    // It may follow late: the records that were refused are a gap.
    rotate(&mut sealer);
    let missed = Continuity::Gap { missed: 1 };
    assert_eq!(read(&mut opener, &record(&mut sealer, 4), 1_100), Ok((missed, true)));
}

#[test]
fn a_p4_vm_that_restarts_with_the_new_key_is_a_restart() {
    let (_, mut opener) = logs();
    std::thread::sleep(Duration::from_millis(3));
    let mut next = LogSealer::new(&NEW, &WEB, Epoch::from_clock().unwrap());
    let opened = read(&mut opener, &record(&mut next, 1), 1);
    assert!(matches!(opened, Ok((Continuity::Restart { .. }, true))), "{opened:?}");
}
