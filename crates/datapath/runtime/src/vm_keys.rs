//! Keys as the control thread receives them: in memory files of their own, so that no message has a secret.
//!
//! An attested handshake delivers the same: a key and, for a P4 VM that starts within a window, the previous
//! key with the time that is left.

use p4shield_control::{Delivered, ResourceId, VmKeys};
use p4shield_seal::{KEY_SIZE, KeyRing, Now, TenantKey};
use std::os::fd::OwnedFd;
use zeroize::Zeroizing;

/// Reads a VM's keys.
pub(crate) fn ring(keys: VmKeys, resources: &mut Delivered) -> Result<KeyRing, String> {
    let mut key = |id: ResourceId| read(&resources.take(id).map_err(|e| e.to_string())?);
    let ring = KeyRing::new(key(keys.current)?);
    Ok(match keys.previous {
        Some((previous, window_ms)) => ring.with_previous(key(previous)?, until(window_ms)),
        None => ring,
    })
}

/// Returns the reading of the steady clock at which a window ends that begins now.
pub(crate) fn until(window_ms: u32) -> u64 {
    Now::read().mono_ns.saturating_add(u64::from(window_ms) * 1_000_000)
}

/// Reads a key from the file that the host opened.
pub(crate) fn read(fd: &OwnedFd) -> Result<TenantKey, String> {
    let mut bytes = Zeroizing::new([0; KEY_SIZE + 1]);
    match rustix::io::pread(fd, &mut bytes[..], 0) {
        Ok(KEY_SIZE) => {
            let key = bytes.first_chunk().expect("the buffer is longer than a key");
            Ok(TenantKey::from_bytes(*key))
        }
        Ok(n) => {
            Err(format!("the key file has {n} bytes instead of {KEY_SIZE}; make one with `p4shield keygen`"))
        }
        Err(e) => Err(format!("cannot read the key file: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};

    fn memory(bytes: &[u8]) -> OwnedFd {
        let fd = memfd_create("key", MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&fd, bytes).unwrap();
        fd
    }

    #[test]
    fn a_key_of_the_wrong_size_is_refused() {
        assert!(read(&memory(&[7; KEY_SIZE])).is_ok());
        assert!(read(&memory(&[7; KEY_SIZE + 1])).is_err());
        assert!(read(&memory(&[])).is_err());
    }

    #[test]
    fn a_ring_needs_the_keys_that_are_announced() {
        let alone = VmKeys { current: ResourceId(0), previous: None };
        let both = VmKeys { previous: Some((ResourceId(1), 1_000)), ..alone };
        let [one, two] = [[1; KEY_SIZE], [2; KEY_SIZE]];
        let came =
            |keys: &[[u8; KEY_SIZE]]| Delivered::from(keys.iter().map(|key| memory(key)).collect::<Vec<_>>());
        assert!(ring(alone, &mut came(&[])).is_err());
        assert!(ring(both, &mut came(&[one])).is_err());
        let ring = ring(both, &mut came(&[one, two])).unwrap();
        assert_eq!(ring.current().expose(), &one);
        assert_eq!(ring.previous().unwrap().0.expose(), &two);
    }
}
