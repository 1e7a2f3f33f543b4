//! Log records against a cloud that forges, replays, reorders, drops and swaps them, and against a
//! cloned P4 VM.

use std::time::Duration;

use p4shield_abi::info::Snapshot;
use p4shield_abi::log_page::{LogRecord, RECORD_SIZE};
use p4shield_seal::{
    Continuity, Epoch, Identity, InfoSealer, LogOpener, LogRefusal, LogSealer, SEALED_LOG_SIZE, TenantKey,
};
use proptest::prelude::*;

const KEY: TenantKey = TenantKey::from_bytes([9; 32]);
const WEB: Identity<'_> = Identity { tenant: "acme", vm: "web" };

#[derive(Clone, Debug)]
struct Page {
    epoch: u64,
    counter: u64,
    bytes: Vec<u8>,
}

fn sealer() -> LogSealer {
    std::thread::sleep(Duration::from_millis(3));
    LogSealer::new(&KEY, &WEB, Epoch::from_clock().unwrap())
}

fn seal(s: &mut LogSealer, judged: u64) -> Page {
    let mut r = LogRecord::default();
    r.totals[0].judged = judged;
    let sealed = s.seal(&r);
    Page { epoch: sealed.epoch, counter: sealed.counter, bytes: sealed.bytes.to_vec() }
}

fn open(o: &mut LogOpener, p: &Page) -> Result<(u64, Continuity), LogRefusal> {
    o.open(p.epoch, p.counter, &p.bytes).map(|r| (r.record.totals[0].judged, r.continuity))
}

#[test]
fn records_chain() {
    let (mut s, mut o) = (sealer(), LogOpener::new(&KEY, &WEB));
    assert_eq!(open(&mut o, &seal(&mut s, 0)), Ok((0, Continuity::First)));
    for i in 1..300 {
        assert_eq!(open(&mut o, &seal(&mut s, i)), Ok((i, Continuity::Next)));
    }
    assert_eq!(o.totals().accepted, 300);
}

#[test]
fn any_flipped_byte_or_truncation_is_a_forgery() {
    let p = seal(&mut sealer(), 5);
    let mut o = LogOpener::new(&KEY, &WEB);
    for i in 0..p.bytes.len() {
        let mut q = p.clone();
        q.bytes[i] ^= 1 << (i % 8);
        assert_eq!(open(&mut o, &q), Err(LogRefusal::Forged), "byte {i}");
    }
    for len in 0..p.bytes.len() {
        assert_eq!(
            o.open(p.epoch, p.counter, &p.bytes[..len]),
            Err(LogRefusal::Forged),
            "truncated to {len}"
        );
    }
    assert_eq!(open(&mut o, &p), Ok((5, Continuity::First)));
    assert_eq!(o.totals().forged, 2 * SEALED_LOG_SIZE as u64);
}

#[test]
fn a_record_belongs_to_its_tenant_vm_and_position() {
    let p = seal(&mut sealer(), 5);
    for other in [Identity { tenant: "acmf", vm: "web" }, Identity { tenant: "acm", vm: "eweb" }] {
        assert_eq!(open(&mut LogOpener::new(&KEY, &other), &p), Err(LogRefusal::Forged));
    }
    let moved = Page { counter: p.counter + 1, ..p.clone() };
    assert_eq!(open(&mut LogOpener::new(&KEY, &WEB), &moved), Err(LogRefusal::Forged));
    let mut info =
        InfoSealer::new(&KEY, &WEB, Epoch::from_clock().unwrap()).seal(&Snapshot::default()).bytes.to_vec();
    info.resize(SEALED_LOG_SIZE, 0);
    assert_eq!(LogOpener::new(&KEY, &WEB).open(p.epoch, 0, &info), Err(LogRefusal::Forged));
}

#[test]
fn replays_gaps_and_repetitions_are_distinguished() {
    let (mut s, mut o) = (sealer(), LogOpener::new(&KEY, &WEB));
    let pages: Vec<Page> = (0..10).map(|i| seal(&mut s, i)).collect();
    assert_eq!(open(&mut o, &pages[1]), Ok((1, Continuity::First)), "a reader may start late");
    assert_eq!(open(&mut o, &pages[1]), Err(LogRefusal::Unchanged));
    assert_eq!(open(&mut o, &pages[0]), Err(LogRefusal::Replayed));
    assert_eq!(open(&mut o, &pages[5]), Ok((5, Continuity::Gap { missed: 3 })));
    assert_eq!(open(&mut o, &pages[4]), Err(LogRefusal::Replayed), "reordered");
    assert_eq!(open(&mut o, &pages[6]), Ok((6, Continuity::Next)), "refusals do not disturb the chain");
    let t = o.totals();
    assert_eq!((t.accepted, t.replayed, t.missed), (3, 2, 3));
}

#[test]
fn a_restart_is_reported_and_its_past_is_a_replay() {
    let (mut old, mut o) = (sealer(), LogOpener::new(&KEY, &WEB));
    let before: Vec<Page> = (0..3).map(|i| seal(&mut old, i)).collect();
    let mut new = sealer();
    open(&mut o, &before[0]).unwrap();
    let first = seal(&mut new, 0);
    let restart = Continuity::Restart { previous_epoch: before[0].epoch, missed: 0 };
    assert_eq!(open(&mut o, &first), Ok((0, restart)));
    assert_eq!(open(&mut o, &before[1]), Err(LogRefusal::Replayed));
    assert_eq!(open(&mut o, &seal(&mut new, 1)), Ok((1, Continuity::Next)));
}

/// Creates an epoch file with a number.
fn epoch_file(dir: &tempfile::TempDir, name: &str, number: u64) -> std::path::PathBuf {
    use sha2::{Digest, Sha256};
    let sum = Sha256::digest(format!("p4shield epoch {number}"));
    let check: String = sum.iter().take(8).map(|b| format!("{b:02x}")).collect();
    let path = dir.path().join(name);
    std::fs::write(&path, format!("epoch {number} {check}\n")).unwrap();
    path
}

/// One machine image starts twice, with a number so far ahead that the clock does not matter.
#[test]
fn a_cloned_p4vm_never_continues_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let ahead = p4shield_seal::Now::read().real_ns + 86_400_000_000_000 * 365;
    let start = |name| LogSealer::new(&KEY, &WEB, Epoch::next_in(&epoch_file(&dir, name, ahead)).unwrap());
    let (mut a, mut b, mut o) = (start("a"), start("b"), LogOpener::new(&KEY, &WEB));
    open(&mut o, &seal(&mut a, 0)).unwrap();
    let _ = seal(&mut b, 100);
    let opened = open(&mut o, &seal(&mut b, 101));
    // The random low bits of an epoch distinguish the clones, except once in a million: that case is
    // the next test.
    let detected = matches!(
        opened,
        Ok((_, Continuity::Restart { .. })) | Err(LogRefusal::Replayed | LogRefusal::ChainBroken)
    );
    assert!(detected, "{opened:?}");
}

/// Two writers with the same epoch, which only a broken host can cause.
#[test]
fn two_writers_of_one_epoch_break_the_chain() {
    let (mut a, mut b) = twins();
    let mut o = LogOpener::new(&KEY, &WEB);
    open(&mut o, &seal(&mut a, 0)).unwrap();
    open(&mut o, &seal(&mut a, 1)).unwrap();
    let _ = seal(&mut b, 100);
    assert_eq!(
        open(&mut o, &seal(&mut b, 101)),
        Err(LogRefusal::ChainBroken),
        "same position, another record"
    );
    let third = seal(&mut a, 2);
    assert_eq!(open(&mut o, &third), Err(LogRefusal::ChainBroken), "does not name the previous record");
    assert_eq!(open(&mut o, &seal(&mut a, 3)), Ok((3, Continuity::Next)), "the chain restarts there");
    assert_eq!(o.totals().chain_broken, 2);
}

/// Two sealers with the same epoch: the highest one, to which no random bits can be added.
fn twins() -> (LogSealer, LogSealer) {
    let dir = tempfile::tempdir().unwrap();
    let start =
        |name| LogSealer::new(&KEY, &WEB, Epoch::next_in(&epoch_file(&dir, name, u64::MAX - 1)).unwrap());
    (start("a"), start("b"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// In any order of records, accepted ones only advance, and each is what was sealed at its position.
    #[test]
    fn a_log_only_advances(shown in prop::collection::vec(0usize..20, 1..80), damage: u16) {
        let mut s = LogSealer::new(&KEY, &WEB, Epoch::from_clock().unwrap());
        let pages: Vec<Page> = (0..20).map(|i| seal(&mut s, i)).collect();
        let mut o = LogOpener::new(&KEY, &WEB);
        let mut last = None;
        for (n, i) in shown.into_iter().enumerate() {
            let mut p = pages[i].clone();
            let damaged = n % 5 == 4;
            if damaged {
                p.bytes[usize::from(damage) % (RECORD_SIZE + 16)] ^= 0x10;
            }
            match open(&mut o, &p) {
                Ok((v, link)) => {
                    prop_assert!(!damaged && last.is_none_or(|l| v > l));
                    prop_assert_eq!(link == Continuity::Next, last.is_some_and(|l| v == l + 1));
                    last = Some(v);
                }
                Err(LogRefusal::Forged) => prop_assert!(damaged),
                Err(LogRefusal::Replayed) => prop_assert!(last > Some(i as u64)),
                Err(LogRefusal::Unchanged) => prop_assert_eq!(last, Some(i as u64)),
                Err(e) => prop_assert!(false, "{e}"),
            }
        }
    }
}
