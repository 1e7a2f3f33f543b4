//! What the agent says of its session beside the key file: with whom the key was agreed on.
//!
//! The file is `KEY_FILE.session`, a JSON object. The auditor repeats it in its summary.

use std::fs;
use std::path::{Path, PathBuf};

use p4shield_handshake::Session;
use serde::{Deserialize, Serialize};

/// Longest note, bytes: claims of a TEE have some hundred.
const NOTE_LIMIT: u64 = 16 << 10;

/// A session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionNote {
    /// Digest of everything that was agreed, hexadecimal. The P4 VM's status has the same.
    pub transcript: String,
    /// Whether hardware attests the P4 VM.
    pub is_attested: bool,
    /// What is known of the P4 VM, in words.
    pub standing: String,
    /// The P4 VM's public key, hexadecimal.
    pub p4vm: String,
}

/// The note of a session cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} the session's note {}", path.display())]
pub struct SessionNoteError {
    doing: &'static str,
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

impl SessionNote {
    /// Returns the note of a session.
    #[must_use]
    pub fn of(session: &Session) -> Self {
        Self {
            transcript: session.transcript().iter().map(|byte| format!("{byte:02x}")).collect(),
            is_attested: session.standing().is_attested(),
            standing: session.standing().to_string(),
            p4vm: session.peer().to_string(),
        }
    }

    /// Writes the note of the key in `key_file`. A reader finds the previous note or this one, whole.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn store(&self, key_file: &Path) -> Result<(), SessionNoteError> {
        let (path, new) = (beside(key_file, ".session"), beside(key_file, ".session.new"));
        let failed = |source| SessionNoteError { doing: "write", path: path.clone(), source };
        let text = serde_json::to_vec(self).map_err(|e| failed(e.into()))?;
        fs::write(&new, text).and_then(|()| fs::rename(&new, &path)).map_err(failed)
    }

    /// Reads the note of the key in `key_file`; none if that key comes from no handshake.
    ///
    /// # Errors
    /// The file cannot be read or is no note.
    pub fn load(key_file: &Path) -> Result<Option<Self>, SessionNoteError> {
        let path = beside(key_file, ".session");
        let failed = |source| SessionNoteError { doing: "read", path: path.clone(), source };
        match fs::metadata(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(failed(e)),
            Ok(file) if file.len() > NOTE_LIMIT => {
                return Err(failed(std::io::ErrorKind::FileTooLarge.into()));
            }
            Ok(_) => {}
        }
        let text = fs::read(&path).map_err(failed)?;
        serde_json::from_slice(&text).map(Some).map_err(|e| failed(e.into()))
    }
}

fn beside(key_file: &Path, suffix: &str) -> PathBuf {
    let mut path = key_file.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("vm.key");
        assert_eq!(SessionNote::load(&key).unwrap(), None);
        let note =
            SessionNote { transcript: "ab".into(), standing: "not attested".into(), ..Default::default() };
        note.store(&key).unwrap();
        assert_eq!(SessionNote::load(&key).unwrap(), Some(note));
        fs::write(folder.path().join("vm.key.session"), vec![b'x'; 1 << 20]).unwrap();
        assert!(SessionNote::load(&key).is_err());
    }
}
