//! Sealed snapshots against a cloud that flips, truncates, swaps, replays, reorders, delays and
//! withholds them.

use std::time::Duration;

use p4shield_abi::info::{InfoStatus, Snapshot, field};
use p4shield_abi::page::SALT_SIZE;
use p4shield_seal::{
    AgeLimit, Epoch, Identity, InfoOpener, InfoRefusal, InfoSealer, LogOpener, LogRefusal, Now,
    SEALED_INFO_SIZE, TenantKey,
};
use proptest::prelude::*;

const KEY: TenantKey = TenantKey::from_bytes([7; 32]);
const WEB: Identity<'_> = Identity { tenant: "acme", vm: "web" };
const MS: u64 = 1_000_000;
/// Both clocks at the start of every test, far apart.
const START: Now = Now { mono_ns: 5_000 * MS, real_ns: 1_700_000_000_000 * MS };

fn at(ms: u64) -> Now {
    Now { mono_ns: START.mono_ns + ms * MS, real_ns: START.real_ns + ms * MS }
}

/// A sealed snapshot as a page contains it.
#[derive(Clone, Debug, PartialEq)]
struct Page {
    epoch: u64,
    counter: u64,
    bytes: Vec<u8>,
}

fn sealer(identity: &Identity<'_>) -> InfoSealer {
    // The lowest millisecond of an epoch is random.
    std::thread::sleep(Duration::from_millis(3));
    InfoSealer::new(&KEY, identity, Epoch::from_clock().unwrap())
}

/// Seals a snapshot taken at `ms` with `value`.
fn seal(sealer: &mut InfoSealer, ms: u64, value: u64) -> Page {
    let mut s = Snapshot::default();
    s.taken_ns = at(ms).real_ns;
    s.set(field::TCP_MEM_USED, value);
    let sealed = sealer.seal(&s);
    Page { epoch: sealed.epoch, counter: sealed.counter, bytes: sealed.bytes.to_vec() }
}

fn opener() -> InfoOpener {
    InfoOpener::new(&KEY, &WEB, AgeLimit::default())
}

/// Opens a snapshot and returns its value.
fn open(o: &mut InfoOpener, p: &Page, now: Now) -> Result<u64, InfoRefusal> {
    o.open(p.epoch, p.counter, &p.bytes, now).map(|s| s.get(field::TCP_MEM_USED).unwrap())
}

#[test]
fn genuine_snapshots_open_in_order() {
    let (mut s, mut o) = (sealer(&WEB), opener());
    assert_eq!(o.status(at(0)), InfoStatus::Missing);
    for i in 0..100 {
        assert_eq!(open(&mut o, &seal(&mut s, i * 10, i), at(i * 10 + 1)), Ok(i));
        assert_eq!(o.status(at(i * 10 + 1)), InfoStatus::Known);
    }
    assert_eq!(o.totals().accepted, 100);
}

#[test]
fn any_flipped_byte_or_truncation_is_a_forgery() {
    let mut s = sealer(&WEB);
    let p = seal(&mut s, 0, 42);
    let mut o = opener();
    for i in 0..p.bytes.len() {
        let mut q = p.clone();
        q.bytes[i] ^= 1 << (i % 8);
        assert_eq!(open(&mut o, &q, at(0)), Err(InfoRefusal::Forged), "byte {i}");
    }
    for len in (0..p.bytes.len()).step_by(13).chain([p.bytes.len() - 1]) {
        let q = Page { bytes: p.bytes[..len].to_vec(), ..p.clone() };
        assert_eq!(open(&mut o, &q, at(0)), Err(InfoRefusal::Forged), "truncated to {len}");
    }
    let longer = Page { bytes: [&p.bytes[..], &[0]].concat(), ..p.clone() };
    assert_eq!(open(&mut o, &longer, at(0)), Err(InfoRefusal::Forged));
    assert_eq!(o.status(at(0)), InfoStatus::Forged);
    assert_eq!(open(&mut o, &p, at(0)), Ok(42), "forgeries do not block the original");
    assert_eq!(o.totals().accepted, 1);
    assert!(o.totals().forged >= SEALED_INFO_SIZE as u64);
}

#[test]
fn a_snapshot_belongs_to_its_tenant_vm_epoch_and_counter() {
    let p = seal(&mut sealer(&WEB), 0, 1);
    for other in [
        Identity { tenant: "acme2", vm: "web" },
        Identity { tenant: "acme", vm: "web2" },
        Identity { tenant: "acmew", vm: "eb" },
        Identity { tenant: "web", vm: "acme" },
        Identity { tenant: "", vm: "acmeweb" },
    ] {
        let mut o = InfoOpener::new(&KEY, &other, AgeLimit::default());
        assert_eq!(open(&mut o, &p, at(0)), Err(InfoRefusal::Forged), "{other:?}");
    }
    let mut o = InfoOpener::new(&TenantKey::from_bytes([8; 32]), &WEB, AgeLimit::default());
    assert_eq!(open(&mut o, &p, at(0)), Err(InfoRefusal::Forged), "another tenant's key");
    for (epoch, counter) in [(p.epoch + 1, 0), (p.epoch - 1, 0), (p.epoch, 1), (0, 0), (u64::MAX, u64::MAX)] {
        let moved = Page { epoch, counter, ..p.clone() };
        assert_eq!(open(&mut opener(), &moved, at(0)), Err(InfoRefusal::Forged));
    }
}

/// A damaged copy with the right tag, shown first, must not block the genuine snapshot.
#[test]
fn a_damaged_copy_does_not_block_the_original() {
    let (mut s, mut o) = (sealer(&WEB), opener());
    let p = seal(&mut s, 0, 1);
    let mut damaged = p.clone();
    damaged.bytes[8] ^= 1;
    assert_eq!(open(&mut o, &damaged, at(0)), Err(InfoRefusal::Forged));
    assert_eq!(open(&mut o, &p, at(0)), Ok(1));
    assert_eq!(open(&mut o, &damaged, at(0)), Err(InfoRefusal::Forged), "and is still refused afterwards");
}

/// A snapshot on the log page is not taken for a record.
#[test]
fn a_snapshot_does_not_open_as_a_log_record() {
    let p = seal(&mut sealer(&WEB), 0, 1);
    let mut log = LogOpener::new(&KEY, &WEB);
    let mut bytes = p.bytes.clone();
    bytes.resize(p4shield_seal::SEALED_LOG_SIZE, 0);
    assert_eq!(log.open(p.epoch, p.counter, &bytes), Err(LogRefusal::Forged));
}

#[test]
fn replays_differ_from_forgeries_and_change_nothing() {
    let (mut s, mut o) = (sealer(&WEB), opener());
    let pages: Vec<Page> = (0..5).map(|i| seal(&mut s, i * 10, i)).collect();
    assert_eq!(open(&mut o, &pages[2], at(30)), Ok(2));
    for old in [1, 0] {
        assert_eq!(open(&mut o, &pages[old], at(30)), Err(InfoRefusal::Replayed));
    }
    assert_eq!(o.current(at(30)).0.get(field::TCP_MEM_USED), Some(2), "accepted values stay");
    assert_eq!(o.status(at(30)), InfoStatus::Known);
    assert_eq!(open(&mut o, &pages[4], at(41)), Ok(4));
    assert_eq!(open(&mut o, &pages[3], at(42)), Err(InfoRefusal::Replayed), "reordered");
    assert_eq!(o.totals().replayed, 3);
    // Only replays until the age limit has passed.
    assert_eq!(open(&mut o, &pages[0], at(2_000)), Err(InfoRefusal::Replayed));
    assert_eq!(o.status(at(2_000)), InfoStatus::Replayed);
    assert!(!o.current(at(2_000)).0.is_known(field::TCP_MEM_USED));
}

#[test]
fn an_unchanged_page_is_not_counted_again() {
    let (mut s, mut o) = (sealer(&WEB), opener());
    let p = seal(&mut s, 0, 1);
    assert_eq!(open(&mut o, &p, at(0)), Ok(1));
    let mut forged = p.clone();
    forged.bytes[0] ^= 1;
    forged.counter += 1;
    for _ in 0..100 {
        assert_eq!(open(&mut o, &p, at(1)), Err(InfoRefusal::Unchanged));
    }
    for _ in 0..100 {
        assert_eq!(open(&mut o, &forged, at(1)), Err(InfoRefusal::Forged));
    }
    let t = o.totals();
    assert_eq!((t.accepted, t.forged, t.replayed), (1, 1, 0));
}

#[test]
fn snapshots_of_an_old_epoch_are_replays() {
    let (mut old, mut o) = (sealer(&WEB), opener());
    let before: Vec<Page> = (0..3).map(|i| seal(&mut old, 0, i)).collect();
    let mut new = sealer(&WEB);
    assert_eq!(open(&mut o, &before[0], at(0)), Ok(0));
    assert_eq!(open(&mut o, &seal(&mut new, 1, 100), at(1)), Ok(100), "counters restart at 0");
    for p in &before[1..] {
        assert_eq!(open(&mut o, p, at(2)), Err(InfoRefusal::Replayed));
    }
    assert_eq!(open(&mut o, &seal(&mut new, 2, 101), at(2)), Ok(101));
}

#[test]
fn a_stopped_stream_turns_stale_by_the_steady_clock_alone() {
    let (mut s, mut o) = (sealer(&WEB), opener());
    open(&mut o, &seal(&mut s, 0, 1), at(0)).unwrap();
    let limit = AgeLimit::default().max_age.as_millis() as u64;
    // The cloud stops the real-time clock: only the steady one advances.
    let frozen = |ms: u64| Now { real_ns: START.real_ns, ..at(ms) };
    assert_eq!(o.status(frozen(limit)), InfoStatus::Known);
    assert_eq!(o.status(frozen(limit + 1)), InfoStatus::Stale);
    assert_eq!(o.totals().stale, 1);
    assert_eq!(o.status(frozen(0)), InfoStatus::Stale, "and stays stale");
    assert_eq!(o.totals().stale, 1, "once");
}

/// The steady clock does not notice a cloud that delays every snapshot by the same time.
#[test]
fn the_real_time_clock_detects_a_delayed_stream() {
    let (mut s, mut o) = (sealer(&WEB), opener());
    let delay = 1_001;
    for i in 0..50 {
        let p = seal(&mut s, i * 10, i);
        let refusal = open(&mut o, &p, at(i * 10 + delay)).unwrap_err();
        assert!(matches!(refusal, InfoRefusal::Stale { age } if age == Duration::from_millis(delay)));
        assert_eq!(o.status(at(i * 10 + delay)), InfoStatus::Stale);
    }
    assert_eq!(o.totals().accepted, 0);
    assert_eq!(open(&mut o, &seal(&mut s, 5_000, 7), at(5_000)), Ok(7), "a punctual snapshot is accepted");
}

#[test]
fn a_snapshot_from_the_future_is_refused() {
    let (mut s, mut o) = (sealer(&WEB), opener());
    let refusal = open(&mut o, &seal(&mut s, 501, 1), at(0)).unwrap_err();
    assert!(matches!(refusal, InfoRefusal::Future { .. }));
    assert_eq!(open(&mut o, &seal(&mut s, 499, 2), at(0)), Ok(2), "within the allowed skew");
}

#[test]
fn a_snapshot_exactly_at_its_limits_is_accepted() {
    let (mut s, mut o) = (sealer(&WEB), opener());
    let AgeLimit { max_age, skew } = AgeLimit::default();
    let (ahead, old) = (skew.as_millis() as u64, (max_age + skew).as_millis() as u64);
    assert_eq!(open(&mut o, &seal(&mut s, ahead, 1), at(0)), Ok(1));
    assert_eq!(open(&mut o, &seal(&mut s, ahead, 2), at(ahead + old)), Ok(2));
    let refusal = open(&mut o, &seal(&mut s, ahead, 3), at(ahead + old + 1)).unwrap_err();
    assert!(matches!(refusal, InfoRefusal::Stale { .. }));
}

#[test]
fn a_stepped_clock_refreshes_no_old_data() {
    let (mut s, mut o) = (sealer(&WEB), opener());
    let p = seal(&mut s, 0, 1);
    open(&mut o, &p, at(0)).unwrap();
    let stepped = Now { real_ns: START.real_ns + 3_600_000 * MS, ..at(10) };
    assert_eq!(o.status(stepped), InfoStatus::Stale);
    let back = Now { real_ns: START.real_ns - 3_600_000 * MS, ..at(20) };
    assert!(matches!(open(&mut o, &seal(&mut s, 20, 2), back), Err(InfoRefusal::Future { .. })));
}

#[test]
fn a_restarted_reader_refuses_an_old_page() {
    let mut s = sealer(&WEB);
    let p = seal(&mut s, 0, 1);
    let mut fresh = opener();
    assert!(matches!(open(&mut fresh, &p, at(60_000)), Err(InfoRefusal::Stale { .. })));
    assert_eq!(fresh.status(at(60_000)), InfoStatus::Stale);
}

/// No two records of one VM's sealers have the same key stream: equal plaintexts give different ciphertexts.
#[test]
fn nonces_never_repeat_across_starts() {
    let dir = tempfile::tempdir().unwrap();
    let mut seen = std::collections::HashSet::new();
    for _ in 0..20 {
        let epoch = Epoch::next_in(&dir.path().join("epoch")).unwrap();
        let mut s = InfoSealer::new(&KEY, &WEB, epoch);
        for _ in 0..5 {
            let sealed = s.seal(&Snapshot::default());
            assert!(seen.insert((sealed.epoch, sealed.counter)));
            assert!(
                seen.insert((
                    u64::from_le_bytes(*sealed.bytes[SALT_SIZE..].first_chunk().unwrap()),
                    u64::MAX
                ))
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// For any order and damage of genuine snapshots, the value is never older than an accepted one,
    /// and no unpublished value is accepted.
    #[test]
    fn values_only_become_newer(
        shown in prop::collection::vec(
            (0usize..12, prop::option::of((0usize..SEALED_INFO_SIZE, 1u8..))),
            1..60,
        ),
    ) {
        let mut old = InfoSealer::new(&KEY, &WEB, Epoch::from_clock().unwrap());
        let mut pages: Vec<Page> = (0..6).map(|i| seal(&mut old, 0, i)).collect();
        let mut new = sealer(&WEB);
        pages.extend((6..12).map(|i| seal(&mut new, 0, i)));
        let mut o = opener();
        let mut last = None;
        for (i, damage) in shown {
            let mut p = pages[i].clone();
            if let Some((byte, xor)) = damage {
                p.bytes[byte] ^= xor;
            }
            match open(&mut o, &p, at(1)) {
                Ok(v) => {
                    prop_assert!(damage.is_none());
                    prop_assert_eq!(v, i as u64);
                    prop_assert!(last.is_none_or(|l| v > l));
                    last = Some(v);
                }
                Err(InfoRefusal::Forged) => prop_assert!(damage.is_some()),
                Err(InfoRefusal::Replayed | InfoRefusal::Unchanged) => prop_assert!(last >= Some(i as u64)),
                Err(e) => prop_assert!(false, "{e}"),
            }
            prop_assert_eq!(o.current(at(1)).0.get(field::TCP_MEM_USED), last);
        }
    }
}
