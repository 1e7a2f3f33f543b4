//! The running switch.

use std::path::Path;

use crate::systemd;
use crate::{OVS_UNIT, PreloadedAttachment};

/// `AT_SECURE` of the auxiliary vector (linux/auxvec.h): the linker must ignore the environment.
const AT_SECURE: u64 = 23;

/// A running switch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Running {
    /// Its process ID.
    pub(crate) pid: u32,
    /// Whether it has loaded the library.
    pub(crate) loaded: bool,
    /// Whether the linker ignored `LD_PRELOAD`; `None` if unknown.
    pub(crate) secure: Option<bool>,
}

/// Finds the process of a unit on this host.
pub(crate) fn of_unit(unit: &str, kind: PreloadedAttachment) -> Option<Running> {
    let by_file = || {
        let name = unit.strip_suffix(".service")?;
        let text = std::fs::read_to_string(format!("/run/openvswitch/{name}.pid")).ok()?;
        text.trim().parse::<u32>().ok()
    };
    let by_systemd = || {
        let asked = systemd::systemctl(&["show", "--property=MainPID", "--value", unit]).ok()?;
        asked.parse::<u32>().ok().filter(|pid| *pid != 0)
    };
    let pid = if unit == OVS_UNIT { by_file() } else { by_systemd() }?;
    look(pid, kind)
}

fn look(pid: u32, kind: PreloadedAttachment) -> Option<Running> {
    let folder = Path::new("/proc").join(pid.to_string());
    let maps = std::fs::read_to_string(folder.join("maps")).ok()?;
    let secure = std::fs::read(folder.join("auxv")).ok().and_then(|bytes| secure(&bytes));
    Some(Running { pid, loaded: maps.lines().any(|line| line.ends_with(kind.library())), secure })
}

/// Reads `AT_SECURE` in the auxiliary vector of a 64-bit process.
fn secure(auxv: &[u8]) -> Option<bool> {
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_ne_bytes).ok();
    auxv.chunks_exact(16)
        .find(|e| word(&e[..8]) == Some(AT_SECURE))
        .and_then(|e| word(&e[8..]))
        .map(|v| v != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_not_secure_and_has_loaded_nothing() {
        let me = look(std::process::id(), PreloadedAttachment::Dpdk).unwrap();
        assert_eq!(me, Running { pid: std::process::id(), loaded: false, secure: Some(false) });
        assert_eq!(look(u32::MAX, PreloadedAttachment::Dpdk), None);
    }

    #[test]
    fn a_vector_that_is_cut_tells_nothing() {
        assert_eq!(secure(&[23, 0, 0]), None);
        let entry = [23_u64.to_ne_bytes(), 1_u64.to_ne_bytes()].concat();
        assert_eq!(secure(&entry), Some(true));
    }
}
