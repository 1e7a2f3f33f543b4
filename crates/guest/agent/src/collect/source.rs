//! A file of the kernel that is read repeatedly through one descriptor.

use std::path::PathBuf;

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};

/// Maximum length of a file's text.
const MAX_TEXT: usize = 64 * 1024;

/// A file. Files of `/proc` render their text again at each read from offset 0.
#[derive(Debug)]
pub(super) struct Source {
    path: PathBuf,
    what: &'static str,
    fd: Option<OwnedFd>,
    logged: bool,
}

impl Source {
    /// While the file at `path` cannot be read, `what` is unknown; that is logged once.
    pub(super) const fn new(path: PathBuf, what: &'static str) -> Self {
        Self { path, what, fd: None, logged: false }
    }

    /// Reads the text into `buffer`.
    pub(super) fn read<'a>(&mut self, buffer: &'a mut Vec<u8>) -> Option<&'a str> {
        match self.fill(buffer) {
            Ok(len) => std::str::from_utf8(&buffer[..len]).ok(),
            Err(error) => {
                // The next read opens the file again: the interface or the feature may return.
                self.fd = None;
                if !std::mem::replace(&mut self.logged, true) {
                    let error = std::io::Error::from(error);
                    tracing::warn!(
                        event = "value_unknown",
                        file = %self.path.display(),
                        %error,
                        "{} stays unknown",
                        self.what
                    );
                }
                None
            }
        }
    }

    fn fill(&mut self, buffer: &mut Vec<u8>) -> rustix::io::Result<usize> {
        let fd = match &mut self.fd {
            Some(fd) => fd,
            none => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
                none.insert(rustix::fs::open(&self.path, flags, Mode::empty())?)
            }
        };
        buffer.resize(MAX_TEXT, 0);
        let mut len = 0;
        while len < MAX_TEXT {
            match rustix::io::pread(&*fd, &mut buffer[len..], len as u64)? {
                0 => break,
                n => len += n,
            }
        }
        Ok(len)
    }
}
