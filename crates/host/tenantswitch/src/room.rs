//! The host's limit of the packets that a port of a switch holds.

use std::fs;
use std::path::Path;

/// Bytes that a switch asks for at each of its ports. The kernel doubles the number, for what it keeps beside
/// a packet (`SO_RCVBUF` in socket(7)): room for 1,800 frames of 1,500 bytes.
pub(crate) const BYTES: usize = 2 << 20;
/// The limit (`Documentation/admin-guide/sysctl/net.rst`): 208 KiB unless set, from Linux 6.18 on 4 MiB.
const SETTING: &str = "net.core.rmem_max";

/// Raises the host's limit if it is lower than [`BYTES`], and returns the new setting then. In a network
/// namespace of its own the process cannot: the compartment's log then names the limit.
pub(crate) fn allow() -> Option<String> {
    raise(&Path::new("/proc/sys").join(SETTING.replace('.', "/")))?;
    Some(format!("{SETTING}={BYTES}"))
}

/// Raises the limit in a file; `None` if it is not lower, or cannot be changed.
fn raise(file: &Path) -> Option<()> {
    let limit: usize = fs::read_to_string(file).ok()?.trim().parse().ok()?;
    (limit < BYTES).then(|| fs::write(file, BYTES.to_string()).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_raised_and_never_lowered() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rmem_max");
        assert_eq!(raise(&file), None, "another network namespace");
        for (before, raised, after) in
            [("212992\n", Some(()), "2097152"), ("4194304\n", None, "4194304\n"), ("x", None, "x")]
        {
            fs::write(&file, before).unwrap();
            assert_eq!(raise(&file), raised, "{before}");
            assert_eq!(fs::read_to_string(&file).unwrap(), after);
        }
    }
}
