//! The image of a guest: the distribution's kernel, unpacked and not installed, and a root file system for
//! one test with a shell, the kernel modules of the guest's devices, and the test's programs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{find, run};
use crate::{Error, Result};
use p4shield_image::Archive;

/// Modules of the guest's devices (virtio network) and of the auditor's tap (tc before Linux 6.6).
const MODULES: [&str; 4] = ["virtio_pci", "virtio_net", "sch_ingress", "cls_bpf"];

/// The first program: mounts, loads modules in order, and leaves a shell on the second serial port.
const INIT: &str = include_str!("init.sh");

/// A kernel and its modules.
#[derive(Debug)]
pub(super) struct Kernel {
    folder: PathBuf,
}

impl Kernel {
    /// Fetches the distribution\'s kernel into the folder `guest` below cargo\'s target folder, from the
    /// network if it is not there yet; `scripts/guest-kernel.sh` does the work.
    pub(super) fn get() -> Result<Self> {
        let folder = cache()?;
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../scripts/guest-kernel.sh");
        run(Command::new(script).arg(&folder))?;
        Ok(Self { folder })
    }

    /// Returns the file to boot.
    pub(super) fn image(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    /// Returns the modules `names` and their dependencies, dependencies first.
    fn modules(&self, names: &[&str]) -> Result<Vec<(String, Vec<u8>)>> {
        let mut files = BTreeMap::new();
        collect(&self.folder.join("modules"), &mut files)?;
        let mut ordered = Vec::new();
        for name in names {
            add(name, &files, &mut ordered)?;
        }
        Ok(ordered)
    }
}

/// Returns `target/guest`, relative to the running test `target/PROFILE/deps/TEST`.
pub(super) fn cache() -> Result<PathBuf> {
    let exe = std::env::current_exe().map_err(read("find the running program"))?;
    let profile =
        exe.ancestors().find(|p| p.ends_with("deps")).and_then(Path::parent).or_else(|| exe.parent());
    let target = profile.and_then(Path::parent).unwrap_or(Path::new("target"));
    Ok(target.join("guest"))
}

/// Module files by module name.
fn collect(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(read(folder.display()))? {
        let path = entry.map_err(read(folder.display()))?.path();
        if path.is_dir() && !path.is_symlink() {
            collect(&path, files)?;
        } else if let Some((name, "ko" | "ko.xz")) =
            path.file_name().and_then(|n| n.to_str()).and_then(|n| n.split_once('.'))
        {
            files.insert(name.replace('-', "_"), path);
        }
    }
    Ok(())
}

fn add(name: &str, files: &BTreeMap<String, PathBuf>, ordered: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    // A module without a file is built in.
    let Some(path) = files.get(name).filter(|_| !ordered.iter().any(|(n, _)| n == name)) else {
        return Ok(());
    };
    let data = if path.extension().is_some_and(|e| e == "xz") {
        let out = Command::new("xz").arg("-dc").arg(path).output();
        out.map_err(|source| Error::Start { command: "xz -dc".into(), source })?.stdout
    } else {
        fs::read(path).map_err(read(path.display()))?
    };
    for needed in needs(&data) {
        add(&needed, files, ordered)?;
    }
    ordered.push((name.to_owned(), data));
    Ok(())
}

/// Returns the dependencies in a module's `.modinfo` section: `depends=a,b`, between zero octets.
fn needs(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|w| w == KEY) else { return Vec::new() };
    let rest = &module[at + KEY.len()..];
    let value = &rest[..rest.iter().position(|b| *b == 0).unwrap_or(rest.len())];
    let names = String::from_utf8_lossy(value);
    names.split(',').filter(|n| !n.is_empty()).map(|n| n.replace('-', "_")).collect()
}

/// Builds the root file system: `programs` go to `/bin` with their libraries, `files` to their paths.
pub(super) fn root(
    kernel: &Kernel,
    programs: &[PathBuf],
    files: &[(String, Vec<u8>)],
    work: &Path,
) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    let busybox = find("busybox").ok_or_else(|| Error::Start {
        command: "busybox (package busybox-static)".into(),
        source: std::io::ErrorKind::NotFound.into(),
    })?;
    for folder in ["proc", "sys", "dev", "run", "tmp", "root", "var/lib", "etc"] {
        archive.folder(folder);
    }
    archive.file("bin/busybox", &fs::read(&busybox).map_err(read(busybox.display()))?);
    archive.link("bin/sh", "busybox");
    archive.file("init", INIT.as_bytes());
    let mut order = String::new();
    for (name, data) in kernel.modules(&MODULES)? {
        archive.file(&format!("modules/{name}.ko"), &data);
        order.push_str(&name);
        order.push('\n');
    }
    archive.file("modules/order", order.as_bytes());
    let mut libraries = BTreeMap::new();
    for program in programs {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        archive.file(&format!("bin/{name}"), &stripped(program, work)?);
        for library in needed_libraries(program)? {
            let data = fs::read(&library).map_err(read(library.display()))?;
            libraries.insert(library, data);
        }
    }
    for (path, data) in &libraries {
        archive.file(path.to_string_lossy().trim_start_matches('/'), data);
    }
    for (path, data) in files {
        archive.file(path.trim_start_matches('/'), data);
    }
    Ok(archive.finish())
}

/// Returns a program without its debug information.
fn stripped(program: &Path, work: &Path) -> Result<Vec<u8>> {
    let to = work.join("stripped");
    run(Command::new("strip").arg("-o").arg(&to).arg(program))?;
    fs::read(&to).map_err(read(to.display()))
}

/// Returns the paths of a program's shared libraries and interpreter; none for a static program.
fn needed_libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let Ok(listed) = run(Command::new("ldd").arg(program)) else { return Ok(Vec::new()) };
    let paths = listed.split_whitespace().filter(|w| w.starts_with('/'));
    Ok(paths.map(PathBuf::from).collect())
}

fn read(what: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Error {
    Error::system(format!("read {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_modules_dependencies_are_read_from_it() {
        assert_eq!(
            needs(b"\x7fELF\0license=GPL\0depends=virtio,net-failover\0name=x\0"),
            ["virtio", "net_failover"]
        );
        for none in [&b"\0depends=\0"[..], b"no module", b"\0depends="] {
            assert_eq!(needs(none), Vec::<String>::new());
        }
    }
}
