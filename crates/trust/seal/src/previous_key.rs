//! The key before a rotation, in a file beside the key's own.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use zeroize::Zeroizing;

use crate::key::{
    KEY_SIZE, KeyError, KeyId, TenantKey, check_access, errno, io_error, open_secret, replace_file,
};

/// First bytes of the file: its kind and version.
const MAGIC: &[u8; 16] = b"p4shield prev 1\n";
/// Bytes of the file: the magic, two numbers, the successor, the key.
const SIZE: usize = MAGIC.len() + 8 + 8 + 8 + KEY_SIZE;

/// A previous key, with the end of its window.
#[derive(Debug)]
pub struct PreviousKey {
    /// The key.
    pub key: TenantKey,
    /// Number of the key that follows it.
    pub successor: KeyId,
    /// End of its window by the real-time clock, in seconds since 1970.
    pub until: u64,
    /// Length of its window, which bounds it if the clock was set back.
    pub window: Duration,
}

impl PreviousKey {
    /// Returns the file of the previous key of `key_file`.
    #[must_use]
    pub fn path(key_file: &Path) -> PathBuf {
        let mut path = key_file.as_os_str().to_owned();
        path.push(".previous");
        path.into()
    }

    /// Stores it for `key_file`, with mode 0600, durably.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn store(&self, key_file: &Path) -> Result<(), KeyError> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(SIZE));
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.until.to_le_bytes());
        bytes.extend_from_slice(&self.window.as_secs().max(1).to_le_bytes());
        bytes.extend_from_slice(&self.successor.0);
        bytes.extend_from_slice(self.key.expose());
        replace_file(&Self::path(key_file), &bytes)
    }

    /// Reads that of `key_file`; none if there is none.
    ///
    /// # Errors
    ///
    /// If it cannot be read, other users could read it, or it is damaged.
    pub fn load(key_file: &Path) -> Result<Option<Self>, KeyError> {
        let path = Self::path(key_file);
        let fd = match open_secret(&path) {
            Err(KeyError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Ok(None);
            }
            other => other?,
        };
        let size = check_access(&path, &fd)?;
        if size != SIZE as u64 {
            return Err(KeyError::Size { path, size });
        }
        let mut bytes = Zeroizing::new([0; SIZE]);
        File::from(fd).read_exact(&mut bytes[..]).map_err(|e| io_error(&path, "read", errno(&e)))?;
        Self::decode(&bytes).map(Some).ok_or_else(|| io_error(&path, "read", Errno::BADMSG))
    }

    fn decode(bytes: &[u8; SIZE]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<16>()?;
        let (until, rest) = rest.split_first_chunk::<8>()?;
        let (window, rest) = rest.split_first_chunk::<8>()?;
        let (successor, rest) = rest.split_first_chunk::<8>()?;
        let key = rest.first_chunk::<KEY_SIZE>()?;
        (magic == MAGIC).then(|| Self {
            key: TenantKey::from_bytes(*key),
            successor: KeyId(*successor),
            until: u64::from_le_bytes(*until),
            window: Duration::from_secs(u64::from_le_bytes(*window)),
        })
    }

    /// Removes that of `key_file`. Nothing happens if there is none.
    ///
    /// # Errors
    ///
    /// If it cannot be removed.
    pub fn remove(key_file: &Path) -> Result<(), KeyError> {
        let path = Self::path(key_file);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(io_error(&path, "remove", errno(&e))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_previous_key_survives_in_its_file() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let key_file = dir.path().join("alice.key");
        assert!(PreviousKey::load(&key_file).unwrap().is_none());
        let key = TenantKey::from_bytes([3; KEY_SIZE]);
        let window = Duration::from_secs(600);
        let kept = PreviousKey { key, successor: KeyId([7; 8]), until: 1_800_000_000, window };
        kept.store(&key_file).unwrap();
        let path = PreviousKey::path(&key_file);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        let read = PreviousKey::load(&key_file).unwrap().unwrap();
        assert_eq!((read.key.expose(), read.successor), (&[3; KEY_SIZE], KeyId([7; 8])));
        assert_eq!((read.until, read.window), (1_800_000_000, window));
        // A file that others could read, or that is damaged, is refused.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(PreviousKey::load(&key_file), Err(KeyError::Mode { .. })));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[0] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert!(PreviousKey::load(&key_file).is_err());
        std::fs::write(&path, b"short").unwrap();
        assert!(matches!(PreviousKey::load(&key_file), Err(KeyError::Size { .. })));
        PreviousKey::remove(&key_file).unwrap();
        PreviousKey::remove(&key_file).unwrap();
        assert!(PreviousKey::load(&key_file).unwrap().is_none());
    }
}
