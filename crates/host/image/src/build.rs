//! Building of images.

use crate::Archive;
use crate::error::{ImageError, Operation};
use crate::manifest::{Contents, INITRAMFS, KERNEL, MANIFEST, Manifest};
use crate::modules::{OF_SWITCHES, OF_TENANT_SWITCHES, folder_of, read_modules};
use crate::open_vswitch::{self, HostFile};
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Architecture, Object};
use std::path::Path;

/// Offset of the magic number of Linux's boot protocol, `HdrS` (`Documentation/arch/x86/boot.rst` of Linux).
const BOOT_MAGIC: usize = 0x202;

/// Builds an image of a static program and a kernel in `folder`, which is created. Each file is replaced
/// as a whole.
///
/// # Errors
/// The program is not static, the kernel is none, or a file cannot be read or written.
pub fn build(program: &Path, kernel: &Path, folder: &Path) -> Result<Manifest, ImageError> {
    build_with(program, kernel, |_| Ok(Parts::default()), folder)
}

/// As [`build`], for P4 switches: with the modules of the kernel that network devices need, from `modules` or
/// `/lib/modules`.
///
/// # Errors
/// As [`build`]; or a module is missing.
pub fn build_switch(
    program: &Path,
    kernel: &Path,
    modules: Option<&Path>,
    folder: &Path,
) -> Result<Manifest, ImageError> {
    let parts = |bytes: &[u8]| {
        let modules = modules_of(kernel, bytes, modules, &OF_SWITCHES)?;
        Ok(Parts { modules, ..Parts::default() })
    };
    build_with(program, kernel, parts, folder)
}

/// As [`build_switch`], for tenants' switches: also with Open vSwitch's programs of this host, and the
/// libraries that they need.
///
/// # Errors
/// As [`build_switch`]; or Open vSwitch is not installed.
pub fn build_tenant_switch(
    program: &Path,
    kernel: &Path,
    modules: Option<&Path>,
    folder: &Path,
) -> Result<Manifest, ImageError> {
    let parts = |bytes: &[u8]| {
        let modules = modules_of(kernel, bytes, modules, &OF_TENANT_SWITCHES)?;
        Ok(Parts { modules, files: open_vswitch::files()? })
    };
    build_with(program, kernel, parts, folder)
}

/// The parts of an image beside its program.
#[derive(Default)]
struct Parts {
    /// Modules of the kernel: their names, and their contents.
    modules: Modules,
    /// Files of this host.
    files: Vec<HostFile>,
}

type Modules = Vec<(String, Vec<u8>)>;

fn modules_of(
    kernel: &Path,
    bytes: &[u8],
    folder: Option<&Path>,
    names: &[&str],
) -> Result<Modules, ImageError> {
    match folder {
        Some(folder) => read_modules(folder, names),
        None => read_modules(&folder_of(kernel, bytes)?, names),
    }
}

fn build_with(
    program: &Path,
    kernel: &Path,
    parts: impl FnOnce(&[u8]) -> Result<Parts, ImageError>,
    folder: &Path,
) -> Result<Manifest, ImageError> {
    let program_bytes = std::fs::read(program).map_err(ImageError::file(Operation::Read, program))?;
    let kernel_bytes = std::fs::read(kernel).map_err(ImageError::file(Operation::Read, kernel))?;
    check_program(program, &program_bytes)?;
    if kernel_bytes.get(BOOT_MAGIC..BOOT_MAGIC + 4) != Some(b"HdrS") {
        return Err(ImageError::NotAKernel { path: kernel.to_owned() });
    }
    let parts = parts(&kernel_bytes)?;
    let initramfs = initramfs(&program_bytes, &parts);
    let Parts { modules, files } = parts;
    let contents = Contents {
        modules: modules.into_iter().map(|(name, _)| name).collect(),
        files: files.into_iter().map(|file| file.path).collect(),
    };
    let manifest = Manifest::new(&kernel_bytes, &initramfs, &program_bytes, contents);
    std::fs::create_dir_all(folder).map_err(ImageError::file(Operation::Create, folder))?;
    let mut text = serde_json::to_string_pretty(&manifest).unwrap_or_default();
    text.push('\n');
    for (name, bytes) in [(KERNEL, &kernel_bytes[..]), (INITRAMFS, &initramfs), (MANIFEST, text.as_bytes())] {
        replace(&folder.join(name), bytes)?;
    }
    Ok(manifest)
}

/// Returns the archive of the initial file system: the program, the places where it mounts the kernel's file
/// systems, its standard output, the modules, with a place for a socket, and the files of the host.
fn initramfs(program: &[u8], parts: &Parts) -> Vec<u8> {
    let mut archive = Archive::default();
    for folder in ["dev", "proc", "sys"] {
        archive.folder(folder);
    }
    if !parts.modules.is_empty() {
        archive.folder("run");
    }
    // They are loaded in the order of their names.
    for (n, (name, bytes)) in parts.modules.iter().enumerate() {
        archive.file(&format!("modules/{n:02}-{name}.ko"), bytes);
    }
    for HostFile { path, bytes } in &parts.files {
        archive.file(path.trim_start_matches('/'), bytes);
    }
    archive.character_device("dev/console", (5, 1));
    archive.file("init", program);
    archive.finish()
}

/// Checks that a program is one for this image: for the processor, without libraries.
fn check_program(path: &Path, bytes: &[u8]) -> Result<(), ImageError> {
    let refused = || ImageError::NotAProgram { path: path.to_owned() };
    let file = ElfFile64::<object::Endianness>::parse(bytes).map_err(|_| refused())?;
    if file.architecture() != Architecture::X86_64 {
        return Err(refused());
    }
    let endian = file.endian();
    for header in file.elf_program_headers() {
        if let Ok(Some(name)) = header.interpreter(endian, bytes) {
            let interpreter = String::from_utf8_lossy(name).into_owned();
            return Err(ImageError::NotStatic { path: path.to_owned(), interpreter });
        }
    }
    Ok(())
}

/// Replaces a file as a whole. All users may read it: an image holds no secret.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), ImageError> {
    let mut new = path.as_os_str().to_owned();
    // Another process may build the same image.
    new.push(format!(".{}.new", std::process::id()));
    std::fs::write(&new, bytes).map_err(ImageError::file(Operation::Write, Path::new(&new)))?;
    std::fs::rename(&new, path).map_err(ImageError::file(Operation::Replace, path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Image;
    use std::fs;

    /// A kernel as far as it is looked at.
    fn kernel(folder: &Path) -> std::path::PathBuf {
        let path = folder.join("kernel");
        let mut bytes = vec![0; 4096];
        bytes[BOOT_MAGIC..BOOT_MAGIC + 4].copy_from_slice(b"HdrS");
        fs::write(&path, bytes).unwrap();
        path
    }

    /// The smallest static ELF executable: a header and no segment.
    fn program(folder: &Path) -> std::path::PathBuf {
        let path = folder.join("program");
        let mut elf = vec![0_u8; 64];
        elf[..20].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 62, 0]);
        elf[52] = 64;
        fs::write(&path, elf).unwrap();
        path
    }

    #[test]
    fn two_builds_in_two_folders_are_equal() {
        let folder = tempfile::tempdir().unwrap();
        let (program, kernel) = (program(folder.path()), kernel(folder.path()));
        let [a, b] = ["a", "deep/b"].map(|name| folder.path().join(name));
        assert_eq!(build(&program, &kernel, &a).unwrap(), build(&program, &kernel, &b).unwrap());
        for name in [KERNEL, INITRAMFS, MANIFEST] {
            assert_eq!(fs::read(a.join(name)).unwrap(), fs::read(b.join(name)).unwrap(), "{name}");
        }
        Image::open(&a).unwrap();
    }

    #[test]
    fn a_changed_file_is_no_image() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        build(&program(folder.path()), &kernel(folder.path()), &image).unwrap();
        for name in [KERNEL, INITRAMFS] {
            let path = image.join(name);
            let mut bytes = fs::read(&path).unwrap();
            bytes[100] ^= 1;
            fs::write(&path, &bytes).unwrap();
            assert!(matches!(Image::open(&image), Err(ImageError::Changed { .. })), "{name}");
            bytes[100] ^= 1;
            fs::write(&path, &bytes).unwrap();
        }
        fs::write(image.join(MANIFEST), "{}").unwrap();
        assert!(matches!(Image::open(&image), Err(ImageError::Manifest { .. })));
    }

    #[test]
    fn programs_with_libraries_and_other_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let kernel = kernel(folder.path());
        let build = |program: &Path| build(program, &kernel, &folder.path().join("image")).unwrap_err();
        let own = std::env::current_exe().unwrap();
        assert!(matches!(build(&own), ImageError::NotStatic { .. }));
        assert!(matches!(build(&kernel), ImageError::NotAProgram { .. }));
        let text = super::build(&program(folder.path()), &own, folder.path()).unwrap_err().to_string();
        assert!(text.contains("linux-image-amd64"), "{text}");
    }
}
