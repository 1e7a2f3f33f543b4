//! A file of the kernel that is read again and again through one descriptor.

use std::path::PathBuf;

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};

/// Longest text that is taken of one file.
const LIMIT: usize = 64 * 1024;

/// One file. Files of `/proc` render their text anew at each read from offset 0.
#[derive(Debug)]
pub(super) struct Source {
    path: PathBuf,
    what: &'static str,
    fd: Option<OwnedFd>,
    told: bool,
}

impl Source {
    /// `what` is not known while the file at `path` cannot be read; that is said once.
    pub(super) const fn new(path: PathBuf, what: &'static str) -> Self {
        Self { path, what, fd: None, told: false }
    }

    /// Its text, in `buffer`.
    pub(super) fn read<'a>(&mut self, buffer: &'a mut Vec<u8>) -> Option<&'a str> {
        match self.fill(buffer) {
            Ok(len) => std::str::from_utf8(&buffer[..len]).ok(),
            Err(error) => {
                // Opened again next time: the interface or the feature may come back.
                self.fd = None;
                if !std::mem::replace(&mut self.told, true) {
                    let error = std::io::Error::from(error);
                    tracing::warn!(file = %self.path.display(), %error, "{} stays unknown", self.what);
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
        buffer.resize(LIMIT, 0);
        let mut len = 0;
        while len < LIMIT {
            match rustix::io::pread(&*fd, &mut buffer[len..], len as u64)? {
                0 => break,
                n => len += n,
            }
        }
        Ok(len)
    }
}
