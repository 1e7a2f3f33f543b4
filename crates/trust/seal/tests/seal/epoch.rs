//! Epochs grow, also if their file is damaged or lost.

use std::fs;
use std::path::PathBuf;

use p4shield_seal::{Epoch, EpochError, EpochSequence, MAX_FLOOR_LEAD_NS, Now};

fn state_file() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("epoch");
    (dir, path)
}

fn next(path: &std::path::Path) -> u64 {
    Epoch::next_in(path).unwrap().number()
}

#[test]
fn epochs_grow_with_every_start() {
    let (_dir, path) = state_file();
    let mut last = Now::read().real_ns;
    for _ in 0..50 {
        let epoch = next(&path);
        assert!(epoch > last);
        last = epoch;
    }
}

#[test]
fn epochs_are_on_disk_before_use() {
    let (_dir, path) = state_file();
    let epoch = Epoch::next_in(&path).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(&epoch.number().to_string()), "{text}");
}

#[test]
fn two_writers_at_once_are_impossible() {
    let (_dir, path) = state_file();
    let first = Epoch::next_in(&path).unwrap();
    assert!(matches!(Epoch::next_in(&path), Err(EpochError::InUse(_))));
    let number = first.number();
    drop(first);
    assert!(next(&path) > number);
}

/// For every state in which a crash may leave the file, the next epoch is higher.
#[test]
fn torn_writes_never_turn_an_epoch_back() {
    let (_dir, path) = state_file();
    let before = next(&path);
    let whole = fs::read(&path).unwrap();
    // If the file is lost the clock decides, whose last millisecond is random.
    std::thread::sleep(std::time::Duration::from_millis(3));
    for len in 0..whole.len() {
        fs::write(&path, &whole[..len]).unwrap();
        // The file that was being written during the crash.
        fs::write(path.with_extension("new"), &whole[..len]).unwrap();
        assert!(next(&path) > before, "truncated to {len} bytes");
    }
    for i in 0..whole.len() {
        for bit in 0..8 {
            let mut damaged = whole.clone();
            damaged[i] ^= 1 << bit;
            fs::write(&path, &damaged).unwrap();
            let epoch = next(&path);
            assert!(epoch > before, "bit {bit} of byte {i}");
            // A flipped digit must be detected: it could exhaust the numbers.
            assert!(epoch < before + 3_600_000_000_000, "bit {bit} of byte {i}: {epoch}");
        }
    }
}

#[test]
fn a_lost_file_is_replaced_by_the_clock() {
    let (_dir, path) = state_file();
    let before = next(&path);
    fs::remove_file(&path).unwrap();
    // The random part is about a millisecond of the clock.
    std::thread::sleep(std::time::Duration::from_millis(3));
    assert!(next(&path) > before);
}

/// If the clock is set back, the stored number still counts.
#[test]
fn a_clock_in_the_past_does_not_matter() {
    use sha2::{Digest, Sha256};

    let (_dir, path) = state_file();
    let ahead = Now::read().real_ns + 86_400_000_000_000 * 365;
    let sum = Sha256::digest(format!("p4shield epoch {ahead}"));
    let check: String = sum.iter().take(8).map(|b| format!("{b:02x}")).collect();
    fs::write(&path, format!("epoch {ahead} {check}\n")).unwrap();
    let epoch = next(&path);
    assert!(epoch > ahead, "the file contains {ahead}");
    assert!(next(&path) > epoch);

    let sum = Sha256::digest(format!("p4shield epoch {}", u64::MAX));
    let check: String = sum.iter().take(8).map(|b| format!("{b:02x}")).collect();
    fs::write(&path, format!("epoch {} {check}\n", u64::MAX)).unwrap();
    assert!(matches!(Epoch::next_in(&path), Err(EpochError::Exhausted(_))), "it never wraps");
}

#[test]
fn links_are_not_followed() {
    let (dir, path) = state_file();
    let target = dir.path().join("precious");
    fs::write(&target, "precious").unwrap();
    for name in ["epoch", "epoch.new", "epoch.lock"] {
        let link = dir.path().join(name);
        // The lock file of the previous iteration.
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(matches!(Epoch::next_in(&path), Err(EpochError::Io { .. })), "{name}");
        fs::remove_file(link).unwrap();
    }
    assert_eq!(fs::read_to_string(target).unwrap(), "precious");
}

#[test]
fn without_storage_the_clock_decides() {
    let before = Now::read().real_ns;
    let a = Epoch::from_clock().unwrap().number();
    assert!(a >= before);
    std::thread::sleep(std::time::Duration::from_millis(3));
    assert!(Epoch::from_clock().unwrap().number() > a);
}

#[test]
fn without_storage_the_floor_prevails_over_the_clock() {
    let ahead = Now::read().real_ns + 86_400_000_000_000 * 365;
    let epoch = Epoch::from_floor(ahead).unwrap().number();
    assert!((ahead..ahead + (1 << 20)).contains(&epoch));
    // A floor below the clock does not lower the epoch.
    let before = Now::read().real_ns;
    for old in [0, 1, before / 2, before - 1] {
        assert!(Epoch::from_floor(old).unwrap().number() >= before, "a floor of {old}");
    }
}

/// A hostile host may try to make a writer take one number twice, which would break its seals.
#[test]
fn no_floor_repeats_an_epoch() {
    for floor in [1 << 63, u64::MAX - (1 << 20) + 2, u64::MAX] {
        assert!(matches!(Epoch::from_floor(floor), Err(EpochError::FloorTooHigh { .. })), "{floor}");
    }
    let highest = Now::read().real_ns + MAX_FLOOR_LEAD_NS;
    let mut epochs = EpochSequence::default();
    let taken: Vec<_> = (0..5_000).map(|_| epochs.next(highest).unwrap().number()).collect();
    assert!(taken.is_sorted_by(|a, b| a < b));
}
