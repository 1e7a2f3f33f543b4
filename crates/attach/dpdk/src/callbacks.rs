//! Check that the application calls receive callbacks.
//!
//! `rte_eth_rx_burst` is an inline function, so the application's own build decides whether it
//! calls callbacks (`RTE_ETHDEV_RXTX_CALLBACKS`). If it does, the program or one of its libraries
//! imports `rte_eth_call_rx_callbacks`. DPDK's own libraries do not count: they show how DPDK was
//! built, not the application.
//!
//! A file that cannot be inspected is refused: it may be the one that receives packets.

use object::{Object, ObjectSymbol};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const CALL: &[u8] = b"rte_eth_call_rx_callbacks";
const BURST_TABLE: &[u8] = b"rte_eth_fp_ops";
const ELF: &[u8] = b"\x7fELF";
/// Suffix that the kernel appends to the path of a file that was removed or replaced.
const DELETED: &str = " (deleted)";
/// The kernel's view of this process.
const PROC: &str = "/proc/self";

/// Reason why the application may not call receive callbacks.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallbackError {
    /// A file polls ports and calls no callbacks.
    #[error(
        "{} receives packets without calling receive callbacks: it was built with RTE_ETHDEV_RXTX_CALLBACKS \
         turned off; build it with a DPDK that has them (the default)", .0.display()
    )]
    Missing(PathBuf),
    /// A file of the application cannot be inspected.
    #[error(
        "cannot inspect {}, which is part of this switch, for calls of receive callbacks; if it was updated \
         since the switch started, restart the switch", file.display()
    )]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
}

/// Checks the files of this process's application.
///
/// # Errors
/// A file receives packets and calls no callbacks, or cannot be inspected.
pub(crate) fn check() -> Result<(), CallbackError> {
    check_at(Path::new(PROC))
}

fn check_at(proc: &Path) -> Result<(), CallbackError> {
    let unreadable = |file: &Path| {
        let file = file.to_owned();
        move |source| CallbackError::Unreadable { file, source }
    };
    let maps = proc.join("maps");
    let text = std::fs::read_to_string(&maps).map_err(unreadable(&maps))?;
    for (file, range) in application_files(&text) {
        let bytes = contents(&file, &proc.join("map_files").join(range)).map_err(unreadable(&file))?;
        if receives_silently(&bytes).map_err(unreadable(&file))? {
            return Err(CallbackError::Missing(file));
        }
    }
    Ok(())
}

/// Returns the files with code of this process except DPDK's own, each with a range of addresses
/// where it is mapped.
fn application_files(maps: &str) -> BTreeMap<PathBuf, &str> {
    let code = maps.lines().filter(|l| l.split(' ').nth(1).is_some_and(|p| p.contains('x')));
    let files = code.filter_map(|l| Some((PathBuf::from(&l[l.find('/')?..]), l.split(' ').next()?)));
    let ours = |(p, _): &(PathBuf, _)| {
        let name = p.file_name().unwrap_or_default().to_string_lossy();
        !name.starts_with("librte_") && !name.starts_with("libp4shield_")
    };
    files.filter(ours).collect()
}

/// Reads a mapped file through its mapping, which finds the right file even after a replacement but
/// needs a capability that a switch may lack; else by its path.
fn contents(file: &Path, mapping: &Path) -> std::io::Result<Vec<u8>> {
    std::fs::read(mapping).or_else(|error| {
        if file.to_string_lossy().ends_with(DELETED) { Err(error) } else { std::fs::read(file) }
    })
}

/// Returns whether a file receives packets, for which it needs DPDK's table of functions, and calls
/// no callbacks. A file that is not ELF holds generated code, or belongs to a device.
fn receives_silently(bytes: &[u8]) -> std::io::Result<bool> {
    if !bytes.starts_with(ELF) {
        return Ok(false);
    }
    let elf = object::File::parse(bytes).map_err(std::io::Error::other)?;
    // The table may be an import or, in a program that is not position-independent, a copy of its own.
    let has_symbol = |name: &[u8]| elf.dynamic_symbols().any(|s| s.name_bytes().is_ok_and(|n| n == name));
    Ok(has_symbol(BURST_TABLE) && !has_symbol(CALL))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn dpdks_own_files_are_left_out() {
        let maps = "1-2 r--p 0 0:0 1 /usr/bin/switch\n1-2 r-xp 0 0:0 1 /usr/bin/switch\n\
                    1-2 r-xp 0 0:0 2 /usr/lib/librte_net_bond.so.23\n1-2 r-xp 0 0:0 0 [vdso]\n\
                    3-4 r-xp 0 0:0 3 /usr/lib/with space.so\n1-2 rw-p 0 0:0 4 /dev/shm/x\n";
        let files: Vec<_> = application_files(maps).into_iter().collect();
        assert_eq!(files, [("/usr/bin/switch".into(), "1-2"), ("/usr/lib/with space.so".into(), "3-4")]);
    }

    /// Two switches that call callbacks; a shell receives no packets.
    #[test]
    fn distributions_switches_call_callbacks() {
        for file in ["/usr/bin/dpdk-testpmd", "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk", "/bin/sh"]
        {
            let Ok(bytes) = std::fs::read(file) else {
                p4shield_need::skip("dpdk", format_args!("{file} is not installed"));
                continue;
            };
            assert!(!receives_silently(&bytes).unwrap(), "{file}");
        }
    }

    /// Creates a `/proc` folder of a process with one file, mapped at 10-20; `mapped` is the
    /// content of its `map_files` entry.
    fn process(path: &str, mapped: Option<&[u8]>) -> tempfile::TempDir {
        let proc = tempfile::tempdir().unwrap();
        std::fs::write(proc.path().join("maps"), format!("10-20 r-xp 0 0:0 1 {path}\n")).unwrap();
        std::fs::create_dir(proc.path().join("map_files")).unwrap();
        if let Some(bytes) = mapped {
            std::fs::write(proc.path().join("map_files/10-20"), bytes).unwrap();
        }
        proc
    }

    #[test]
    fn this_process_can_be_inspected() {
        check().unwrap();
    }

    #[test]
    fn files_that_cannot_be_inspected_are_refused() {
        let empty = tempfile::tempdir().unwrap();
        let refused = |proc: &Path| matches!(check_at(proc), Err(CallbackError::Unreadable { .. }));
        assert!(refused(empty.path()), "a process without a list of its files");
        assert!(refused(process("/no/such/switch", None).path()), "a missing file");
        // Updated while it runs, and the user may not read mappings: another file is at its path.
        let replaced = process("/bin/sh (deleted)", None);
        assert!(refused(replaced.path()));
        let message = check_at(replaced.path()).unwrap_err().to_string();
        assert!(message.contains("/bin/sh (deleted)") && message.contains("restart the switch"), "{message}");
        let cut = &std::fs::read("/bin/sh").unwrap()[..40];
        assert!(refused(process("/bin/switch", Some(cut)).path()), "a file that is cut off");
        check_at(process("/memfd:jit (deleted)", Some(b"\x90\xc3")).path()).unwrap();
    }

    #[test]
    fn a_replaced_file_is_inspected_as_it_runs() {
        let folder = tempfile::tempdir().unwrap();
        let (source, library) = (folder.path().join("silent.c"), folder.path().join("silent.so"));
        let text = "extern char rte_eth_fp_ops[] __attribute__((weak));\
                    char *poll_ports(void) { return rte_eth_fp_ops; }";
        std::fs::write(&source, text).unwrap();
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-o"]).args([&library, &source]);
        assert!(compile.status().unwrap().success());
        let silent = std::fs::read(&library).unwrap();
        for path in ["/bin/sh (deleted)", "/bin/sh"] {
            let found = check_at(process(path, Some(&silent)).path());
            assert!(
                matches!(&found, Err(CallbackError::Missing(file)) if *file == Path::new(path)),
                "{found:?}"
            );
        }
    }
}
