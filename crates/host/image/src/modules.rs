//! Kernel modules: those of a switch's network devices and of its line to the host are a part of its image.

use crate::error::{ImageError, Operation};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The drivers of a switch's image.
pub(crate) const OF_SWITCHES: [&str; 3] = ["virtio_pci", "virtio_net", "virtio_console"];
/// Those of a tenant's switch, whose bridge is a tap.
pub(crate) const OF_TENANT_SWITCHES: [&str; 4] = ["virtio_pci", "virtio_net", "virtio_console", "tun"];
/// How a module's file ends, and the program that decompresses it.
const KINDS: [(&str, Option<&str>); 4] =
    [(".ko", None), (".ko.xz", Some("xz")), (".ko.zst", Some("zstd")), (".ko.gz", Some("gzip"))];

/// Returns the folder of the modules of a kernel: `/lib/modules/RELEASE`.
///
/// # Errors
/// The kernel does not say its release (`Documentation/arch/x86/boot.rst` of Linux).
pub(crate) fn folder_of(kernel: &Path, bytes: &[u8]) -> Result<PathBuf, ImageError> {
    let at = bytes.get(0x20e..0x210).map_or(0, |b| 0x200 + usize::from(u16::from_le_bytes([b[0], b[1]])));
    let text = bytes.get(at..).filter(|_| at > 0x200).unwrap_or_default();
    let end = text.iter().take(256).position(|b| matches!(b, b' ' | 0)).unwrap_or_default();
    let release = std::str::from_utf8(&text[..end]).ok().filter(|release| !release.is_empty());
    let release = release.filter(|release| !release.contains('/'));
    let release = release.ok_or_else(|| ImageError::NotAKernel { path: kernel.to_owned() })?;
    Ok(Path::new("/lib/modules").join(release))
}

/// Reads modules from the folder of a kernel, each behind those that it needs. One that is a part of the
/// kernel itself is left out.
///
/// # Errors
/// A module is missing, or cannot be read.
pub fn read_modules(folder: &Path, names: &[&str]) -> Result<Vec<(String, Vec<u8>)>, ImageError> {
    let mut files = BTreeMap::new();
    collect(folder, &mut files)?;
    let builtin = std::fs::read_to_string(folder.join("modules.builtin")).unwrap_or_default();
    let mut all: Vec<(String, Vec<u8>)> = Vec::new();
    for name in names {
        let is_builtin = || builtin.lines().any(|line| named(line).is_some_and(|n| n == *name));
        let is_there = files.contains_key(*name) || all.iter().any(|(n, _)| n == name) || is_builtin();
        if !is_there {
            return Err(ImageError::NoModule { name: (*name).to_owned(), folder: folder.to_owned() });
        }
        add(name, &mut files, &mut all)?;
    }
    Ok(all)
}

/// Adds a module behind those that it needs.
fn add(
    name: &str,
    files: &mut BTreeMap<String, PathBuf>,
    all: &mut Vec<(String, Vec<u8>)>,
) -> Result<(), ImageError> {
    // A module without a file is a part of the kernel, or there already.
    let Some(path) = files.remove(name) else { return Ok(()) };
    let bytes = contents(&path)?;
    needs(&bytes).iter().try_for_each(|needed| add(needed, files, all))?;
    all.push((name.to_owned(), bytes));
    Ok(())
}

/// Returns what a module needs, by its section `.modinfo`: `depends=a,b`, between zero octets.
fn needs(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = memchr::memmem::find(module, KEY) else { return Vec::new() };
    let rest = &module[at + KEY.len()..];
    let value = &rest[..rest.iter().position(|b| *b == 0).unwrap_or(rest.len())];
    let names = String::from_utf8_lossy(value);
    names.split(',').filter(|n| !n.is_empty()).map(|n| n.replace('-', "_")).collect()
}

/// Collects the files of the modules in a folder, by their names.
fn collect(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<(), ImageError> {
    let failed = || ImageError::file(Operation::Read, folder);
    for entry in std::fs::read_dir(folder).map_err(failed())? {
        let entry = entry.map_err(failed())?;
        let path = entry.path();
        // A link leads to the kernel's sources.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&path, files)?;
        } else if let Some(name) = path.to_str().and_then(named) {
            files.insert(name, path);
        }
    }
    Ok(())
}

/// Returns the name of a module by its file.
fn named(path: &str) -> Option<String> {
    let file = path.rsplit('/').next()?;
    let name = KINDS.iter().find_map(|(end, _)| file.strip_suffix(end))?;
    Some(name.replace('-', "_"))
}

/// Reads a module, decompressed.
fn contents(path: &Path) -> Result<Vec<u8>, ImageError> {
    let failed = || ImageError::file(Operation::Read, path);
    let kind = KINDS.iter().find(|(end, _)| path.to_str().is_some_and(|path| path.ends_with(end)));
    let Some((_, Some(program))) = kind else { return std::fs::read(path).map_err(failed()) };
    let output = Command::new(program).arg("-dc").arg(path).output().map_err(|source| {
        let why = format!("{program} decompresses it, and cannot be started: {source}");
        failed()(std::io::Error::new(source.kind(), why))
    })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let why = format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Err(failed()(std::io::Error::other(why)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_come_behind_those_that_they_need() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("kernel/drivers");
        std::fs::create_dir_all(&deep).unwrap();
        let names = |wanted: &[&str]| {
            let all = read_modules(folder.path(), wanted);
            all.map(|all| all.into_iter().map(|(name, _)| name).collect::<Vec<_>>())
        };
        let error = names(&["virtio_net"]).unwrap_err().to_string();
        assert!(error.contains("virtio_net") && error.contains("--modules"), "{error}");
        for (name, needed) in
            [("virtio-net", "virtio,net-failover"), ("net_failover", ""), ("virtio", "virtio_ring,builtin")]
        {
            std::fs::write(deep.join(format!("{name}.ko")), format!("\x7fELF\0depends={needed}\0")).unwrap();
        }
        std::fs::write(deep.join("virtio_ring.ko"), "no section").unwrap();
        std::fs::write(folder.path().join("modules.builtin"), "kernel/char/console.ko\n").unwrap();
        let expected = ["virtio_ring", "virtio", "net_failover", "virtio_net"];
        assert_eq!(names(&["virtio_net", "console", "virtio"]).unwrap(), expected);
        // Needs that lead back end, too.
        std::fs::write(deep.join("virtio_ring.ko"), "\0depends=virtio\0").unwrap();
        assert!(names(&["virtio"]).unwrap().contains(&"virtio_ring".to_owned()));
    }

    #[test]
    fn a_modules_needs_are_read_from_it() {
        assert_eq!(
            needs(b"\x7fELF\0license=GPL\0depends=virtio,net-failover\0name=x\0"),
            ["virtio", "net_failover"]
        );
        for none in [&b"\0depends=\0"[..], b"no module", b"\0depends="] {
            assert_eq!(needs(none), Vec::<String>::new());
        }
    }

    #[test]
    fn compressed_modules_are_decompressed_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("virtio.ko.gz");
        std::fs::write(folder.path().join("virtio.ko"), "module").unwrap();
        let packed = Command::new("gzip").arg(folder.path().join("virtio.ko")).status().unwrap();
        assert!(packed.success());
        assert_eq!(contents(&path).unwrap(), b"module");
        std::fs::write(&path, "no archive").unwrap();
        let error = format!("{:?}", contents(&path).unwrap_err());
        assert!(error.contains("gzip"), "{error}");
    }

    #[test]
    fn a_kernel_names_the_folder_of_its_modules() {
        let mut kernel = vec![0; 4096];
        assert!(folder_of(Path::new("k"), &kernel).is_err());
        kernel[0x20e] = 0x40;
        kernel[0x240..0x250].copy_from_slice(b"6.1.0-9-amd64 (x");
        assert_eq!(folder_of(Path::new("k"), &kernel).unwrap(), Path::new("/lib/modules/6.1.0-9-amd64"));
        kernel[0x240..0x243].copy_from_slice(b"../");
        assert!(folder_of(Path::new("k"), &kernel).is_err());
        assert!(folder_of(Path::new("k"), &kernel[..0x220]).is_err());
    }
}
