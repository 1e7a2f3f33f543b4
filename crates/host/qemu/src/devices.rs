//! Devices that a build of QEMU has: some distributions leave devices out.

use crate::process::end;
use crate::version::{LIMIT, VersionError};
use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Command, Stdio};

/// Devices of a P4 VM's machine.
const NEEDED: [&str; 3] = ["ivshmem-plain", "pci-serial", "pci-bridge"];
/// Bytes of QEMU's list that are read.
const MAX_LIST: u64 = 1 << 20;

/// Returns the devices that machines of P4 VMs consist of, and that a program of QEMU lacks.
///
/// # Errors
/// The program does not run, or does not end in time.
pub fn missing_devices(program: &Path) -> Result<Vec<&'static str>, VersionError> {
    let failed = |source| VersionError::Run { program: program.to_owned(), source };
    // A file: a list that is longer than a pipe would stop QEMU.
    let mut file = tempfile::tempfile().map_err(failed)?;
    let output = file.try_clone().map_err(failed)?;
    let mut command = Command::new(program);
    command.args(["-device", "help"]).stdin(Stdio::null()).stdout(output).stderr(Stdio::null());
    let status = end(command.spawn().map_err(failed)?, LIMIT);
    if !status.is_some_and(|status| status.success()) {
        return Err(VersionError::Devices { program: program.to_owned() });
    }
    file.rewind().map_err(failed)?;
    let mut list = Vec::new();
    file.take(MAX_LIST).read_to_end(&mut list).map_err(failed)?;
    let list = String::from_utf8_lossy(&list);
    let lacks = |device: &&str| !list.contains(&format!("name \"{device}\""));
    Ok(NEEDED.into_iter().filter(lacks).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PROGRAM;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn an_installed_qemu_has_all_devices() {
        match missing_devices(Path::new(PROGRAM)) {
            Ok(missing) => assert_eq!(missing, [""; 0]),
            Err(e) => p4shield_need::skip("qemu", e),
        }
    }

    #[test]
    fn a_qemu_without_a_device_or_a_list_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("qemu");
        let missing = |script: &str| {
            std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
            missing_devices(&program).map_err(|e| e.to_string())
        };
        let list = "echo 'name \"pci-serial\", bus PCI'; echo 'name \"pci-bridge\"'";
        assert_eq!(missing(list).unwrap(), ["ivshmem-plain"]);
        assert_eq!(missing("").unwrap().len(), NEEDED.len());
        assert!(missing("exit 1").unwrap_err().contains("-device help` failed"));
    }
}
