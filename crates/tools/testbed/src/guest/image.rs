//! The image of a guest: the distribution's kernel, unpacked and not installed, and a root file system for
//! one test with a shell, the kernel modules of the guest's devices, and the test's programs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{find, run};
use crate::{Error, Result};
use p4shield_image::{Archive, read_modules};

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
    /// Fetches the distribution's kernel for virtual machines into the folder `guest` below cargo's target
    /// folder, from the network if it is not there yet; `scripts/guest-kernel.sh` does the work.
    pub(super) fn get() -> Result<Self> {
        Self::fetch(cache()?, "cloud")
    }

    /// Fetches the distribution's kernel with drivers of network cards, into `guest/any`.
    pub(super) fn with_drivers() -> Result<Self> {
        Self::fetch(cache()?.join("any"), "any")
    }

    fn fetch(folder: PathBuf, kind: &str) -> Result<Self> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../scripts/guest-kernel.sh");
        run(Command::new(script).arg(&folder).arg(kind))?;
        Ok(Self { folder })
    }

    /// Returns the file to boot.
    pub(super) fn image(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    /// Returns the folder of its modules.
    pub(super) fn module_folder(&self) -> Result<PathBuf> {
        let folder = self.folder.join("modules");
        let mut entries = fs::read_dir(&folder).map_err(read(folder.display()))?;
        let version = entries.next().ok_or_else(|| Error::failed("the kernel", "it has no modules"))?;
        Ok(version.map_err(read(folder.display()))?.path())
    }

    /// Returns the modules `names` and their dependencies, dependencies first.
    fn modules(&self, names: &[&str]) -> Result<Vec<(String, Vec<u8>)>> {
        read_modules(&self.module_folder()?, names).map_err(|e| Error::failed("the kernel", e.to_string()))
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

/// Builds the root file system: `programs` go to `/bin` with their libraries, `files` to their paths; the
/// modules `drivers` are loaded after the usual ones.
pub(super) fn root(
    kernel: &Kernel,
    drivers: &[String],
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
    let modules: Vec<&str> = MODULES.into_iter().chain(drivers.iter().map(String::as_str)).collect();
    for (name, data) in kernel.modules(&modules)? {
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
pub(super) fn needed_libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let Ok(listed) = run(Command::new("ldd").arg(program)) else { return Ok(Vec::new()) };
    let paths = listed.split_whitespace().filter(|w| w.starts_with('/'));
    Ok(paths.map(PathBuf::from).collect())
}

pub(super) fn read(what: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Error {
    Error::system(format!("read {what}"))
}
