//! Keys and epochs of handshakes: what was sealed in an older session is void, whatever clock and host do.

use p4shield_abi::info::Snapshot;
use p4shield_abi::log_page::LogRecord;
use p4shield_seal::{
    AgeLimit, Continuity, Epoch, Identity, InfoKey, InfoOpener, InfoRefusal, InfoSealer, LogKey, LogOpener,
    LogRefusal, LogSealer, Now, TenantKey,
};

const WEB: Identity<'_> = Identity { tenant: "acme", vm: "web" };
/// A clock that the host has stopped.
const FROZEN: Now = Now { mono_ns: 5, real_ns: 1_700_000_000_000_000_000 };

/// A record as a host keeps it.
#[derive(Clone)]
struct Kept {
    epoch: u64,
    counter: u64,
    bytes: Vec<u8>,
}

const fn key(session: u8) -> TenantKey {
    TenantKey::from_bytes([session; 32])
}

fn info(sealer: &mut InfoSealer) -> Kept {
    let mut snapshot = Snapshot::default();
    snapshot.taken_ns = FROZEN.real_ns;
    let sealed = sealer.seal(&snapshot);
    Kept { epoch: sealed.epoch, counter: sealed.counter, bytes: sealed.bytes.to_vec() }
}

fn log(sealer: &mut LogSealer) -> Kept {
    let sealed = sealer.seal(&LogRecord::default());
    Kept { epoch: sealed.epoch, counter: sealed.counter, bytes: sealed.bytes.to_vec() }
}

fn read(opener: &mut InfoOpener, kept: &Kept) -> Result<(), InfoRefusal> {
    opener.open(kept.epoch, kept.counter, &kept.bytes, FROZEN).map(drop)
}

/// A P4 VM that restarts again and again, with a clock and a floor that the host has frozen.
#[test]
fn a_restarted_p4_vm_continues_the_log_without_a_clock() {
    let mut auditor = LogOpener::new(&key(1), &WEB);
    let mut kept: Vec<Kept> = Vec::new();
    for session in 1..=20_u8 {
        let epoch = 100 + u64::from(session);
        if session > 1 {
            // The old session is void at once.
            auditor.rotate(LogKey::new(&key(session), &WEB), 0, u64::MAX);
        }
        let mut sealer = LogSealer::new(&key(session), &WEB, Epoch::from_session(epoch));
        for n in 0..3 {
            let record = log(&mut sealer);
            assert_eq!(record.epoch, epoch);
            let opened = auditor.open_at(FROZEN.mono_ns, epoch, record.counter, &record.bytes).unwrap();
            match opened.continuity {
                Continuity::First => assert_eq!((session, n), (1, 0)),
                Continuity::Restart { previous_epoch, missed: 0 } => {
                    assert_eq!((previous_epoch, n), (epoch - 1, 0));
                }
                other => assert_eq!((other, n > 0), (Continuity::Next, true)),
            }
            kept.push(record);
        }
        for old in &kept[..kept.len() - 3] {
            let refused = auditor.open_at(FROZEN.mono_ns, old.epoch, old.counter, &old.bytes).unwrap_err();
            assert!(matches!(refused, LogRefusal::OldKey | LogRefusal::Forged), "{refused}");
        }
    }
}

#[test]
fn information_of_an_older_session_is_void() {
    let mut first = InfoSealer::new(&key(1), &WEB, Epoch::from_session(7));
    let old = info(&mut first);
    let mut opener = InfoOpener::new(&key(1), &WEB, AgeLimit::default());
    read(&mut opener, &old).unwrap();
    // The P4 VM restarts: it remembers nothing, and a host shows it the old snapshot.
    let mut restarted = InfoOpener::new(&key(2), &WEB, AgeLimit::default());
    assert_eq!(read(&mut restarted, &old), Err(InfoRefusal::Forged));
    // The agent goes on: its epoch and counter, too.
    first.rotate(&key(2), &WEB);
    let new = info(&mut first);
    assert_eq!((new.epoch, new.counter), (7, 1));
    read(&mut restarted, &new).unwrap();
    // The agent restarts: the session has an epoch above all that the P4 VM has seen.
    restarted.rotate(&mut Some(InfoKey::new(&key(3), &WEB)), 0);
    let mut second = InfoSealer::new(&key(3), &WEB, Epoch::from_session(8));
    let newest = info(&mut second);
    read(&mut restarted, &newest).unwrap();
    assert!(matches!(read(&mut restarted, &new), Err(InfoRefusal::Forged | InfoRefusal::Replayed)));
}

/// Even if a number repeated, no key and nonce would.
#[test]
fn sessions_with_one_epoch_share_no_ciphertext() {
    let sealed = |session| log(&mut LogSealer::new(&key(session), &WEB, Epoch::from_session(1))).bytes;
    assert_ne!(sealed(1), sealed(2));
    assert_eq!(LogOpener::new(&key(2), &WEB).open(1, 0, &sealed(1)), Err(LogRefusal::Forged));
}
