//! Open vSwitch of this host, as a part of an image: its programs, the schema of its database, and the
//! libraries that the dynamic linker would load.

use crate::error::{ImageError, Operation};
use object::read::elf::{ElfFile64, ProgramHeader};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The programs, each with Debian's package.
const PROGRAMS: [(&str, &str); 6] = [
    ("ovs-appctl", COMMON),
    ("ovs-ofctl", COMMON),
    ("ovs-vsctl", COMMON),
    ("ovs-vswitchd", SWITCH),
    ("ovsdb-server", COMMON),
    ("ovsdb-tool", COMMON),
];
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const SWITCH: &str = "openvswitch-switch";
const COMMON: &str = "openvswitch-common";
/// Where the programs are.
const FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/bin"];
/// Open vSwitch without DPDK, which the distribution's alternatives may hide behind the one with it.
const PLAIN: &str = "/usr/lib/openvswitch-switch/ovs-vswitchd";

/// A file of this host.
pub(crate) struct HostFile {
    /// Its path, in the image as here.
    pub(crate) path: String,
    pub(crate) bytes: Vec<u8>,
}

/// Returns the files, in the order of their paths.
///
/// # Errors
/// One is not installed, or cannot be read.
pub(crate) fn files() -> Result<Vec<HostFile>, ImageError> {
    let mut libraries = BTreeSet::new();
    let mut files = Vec::new();
    for (name, package) in PROGRAMS {
        let path = FOLDERS.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.exists());
        let path = path.ok_or(ImageError::NoProgram { name, package })?;
        let plain = Path::new(PLAIN);
        let source = if plain.ends_with(name) && plain.exists() { plain } else { &path };
        let bytes = read(source)?;
        libraries.extend(libraries_of(source, &bytes)?);
        files.push(HostFile { path: path.display().to_string(), bytes });
    }
    if !Path::new(SCHEMA).exists() {
        return Err(ImageError::NoProgram { name: SCHEMA, package: COMMON });
    }
    files.push(HostFile { path: SCHEMA.to_owned(), bytes: read(Path::new(SCHEMA))? });
    for library in libraries {
        files.push(HostFile { bytes: read(&library)?, path: library.display().to_string() });
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn read(path: &Path) -> Result<Vec<u8>, ImageError> {
    std::fs::read(path).map_err(ImageError::file(Operation::Read, path))
}

/// Returns the dynamic linker and the libraries of a program. The linker itself lists them: it knows where
/// they are on this host.
fn libraries_of(program: &Path, bytes: &[u8]) -> Result<Vec<PathBuf>, ImageError> {
    let failed = |why: String| ImageError::Libraries { path: program.to_owned(), why };
    let linker = linker_of(bytes).ok_or_else(|| failed("it names no dynamic linker".to_owned()))?;
    let listed = Command::new(&linker).arg("--list").arg(program).env_clear().output();
    let listed = listed.map_err(|e| failed(format!("{}: {e}", linker.display())))?;
    if !listed.status.success() {
        return Err(failed(String::from_utf8_lossy(&listed.stderr).trim().to_owned()));
    }
    let mut all = listed_files(&String::from_utf8_lossy(&listed.stdout)).map_err(failed)?;
    all.push(linker);
    Ok(all)
}

fn linker_of(bytes: &[u8]) -> Option<PathBuf> {
    let file = ElfFile64::<object::Endianness>::parse(bytes).ok()?;
    let headers = file.elf_program_headers().iter();
    let name = headers.filter_map(|header| header.interpreter(file.endian(), bytes).ok().flatten()).next()?;
    Some(PathBuf::from(OsStr::from_bytes(name)))
}

/// Returns the files that the dynamic linker lists: `NAME => FILE (ADDRESS)`. Lines without a file are the
/// kernel's page and the linker.
fn listed_files(text: &str) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    for line in text.lines() {
        match line.split_once(" => ") {
            Some((name, "not found")) => return Err(format!("{} is missing", name.trim())),
            Some((_, file)) => {
                let file = file.rsplit_once(" (").map_or(file, |(file, _)| file);
                files.push(PathBuf::from(file.trim()));
            }
            None => {}
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_linkers_list_is_read() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x7f)\n\t\
                    /lib64/ld-linux-x86-64.so.2 (0x7f)\n";
        assert_eq!(listed_files(text).unwrap(), [Path::new("/lib/x86_64-linux-gnu/libz.so.1")]);
        let missing = listed_files("\tlibq.so => not found\n").unwrap_err();
        assert_eq!(missing, "libq.so is missing");
    }

    #[test]
    fn a_program_comes_with_its_libraries() {
        let own = std::env::current_exe().unwrap();
        let found = libraries_of(&own, &read(&own).unwrap()).unwrap();
        assert!(found.iter().any(|path| path.ends_with("libc.so.6")), "{found:?}");
        assert!(found.iter().all(|path| path.is_absolute() && path.exists()), "{found:?}");
        assert!(matches!(libraries_of(&own, b"no program"), Err(ImageError::Libraries { .. })));
    }

    #[test]
    fn open_vswitch_is_complete() {
        let files = files().unwrap();
        let has = |end: &str| files.iter().any(|file| file.path.ends_with(end));
        assert!(["/ovs-vswitchd", "/ovsdb-server", "/libc.so.6", "vswitch.ovsschema"].into_iter().all(has));
        assert!(files.is_sorted_by(|a, b| a.path < b.path));
        assert!(!has("librte_eal.so.23"), "it has no DPDK");
    }
}
