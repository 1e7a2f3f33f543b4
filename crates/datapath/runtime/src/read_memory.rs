//! Reading of what comes with a request in memory of its own.

use std::os::fd::OwnedFd;

/// Copies `total` bytes into private memory, once: another process that maps them may change them at any
/// time. The caller has limited `total`.
pub(crate) fn read(fd: &OwnedFd, total: usize, what: &str) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; total];
    let mut at = 0;
    while at < total {
        match rustix::io::pread(fd, &mut bytes[at..], at as u64) {
            Ok(0) => return Err(format!("{what} end after {at} of {total} bytes")),
            Ok(n) => at += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(format!("cannot read {what}: {e}")),
        }
    }
    Ok(bytes)
}
