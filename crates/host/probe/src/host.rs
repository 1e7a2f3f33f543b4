//! The machine that is probed: its processor, and the kernel's files.

use p4shield_qemu::PROGRAM;
use raw_cpuid::CpuId;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The most bytes of a kernel's file that a probe reads.
const MAX_FILE: u64 = 1 << 20;

/// What the processor says of itself (CPUID). A guest sees what its host lets through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Virtualisation extensions: `vmx` or `svm`.
    pub virtualisation: Option<&'static str>,
    /// AMD SEV-SNP (leaf 8000001F).
    pub sev_snp: bool,
}

impl Cpu {
    /// Asks this machine's processor.
    #[must_use]
    pub fn of_this_host() -> Self {
        let cpu = CpuId::new();
        let vmx = cpu.get_feature_info().is_some_and(|info| info.has_vmx());
        let svm = cpu.get_extended_processor_and_feature_identifiers().is_some_and(|info| info.has_svm());
        let virtualisation = [("vmx", vmx), ("svm", svm)].into_iter().find(|(_, has)| *has);
        Self {
            virtualisation: virtualisation.map(|(name, _)| name),
            sev_snp: cpu.get_memory_encryption_info().is_some_and(|info| info.has_sev_snp()),
        }
    }
}

/// The machine that is probed.
#[derive(Clone, Debug)]
pub struct Host {
    /// The folder that stands for `/`; another one in tests.
    pub root: PathBuf,
    /// The processor.
    pub cpu: Cpu,
    /// QEMU's program.
    pub qemu: PathBuf,
    /// The firmware of machines with a TEE; `None`: Debian's.
    pub firmware: Option<PathBuf>,
}

impl Host {
    /// Returns this machine.
    #[must_use]
    pub fn this() -> Self {
        Self { root: "/".into(), cpu: Cpu::of_this_host(), qemu: PROGRAM.into(), firmware: None }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Returns whether a file exists.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.at(path).exists()
    }

    /// Returns whether the firmware exists that machines of a TEE load: the configured one, or Debian's.
    pub(crate) fn firmware(&self, packaged: &str) -> (String, bool) {
        match &self.firmware {
            Some(path) => (path.display().to_string(), path.exists()),
            None => (packaged.to_owned(), self.has(packaged)),
        }
    }

    /// Returns a text of the kernel's, without the line end.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        File::open(self.at(path)).ok()?.take(MAX_FILE).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Returns the bytes of memory.
    #[must_use]
    pub fn memory(&self) -> Option<u64> {
        let text = self.text("/proc/meminfo")?;
        let kibibytes = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        kibibytes.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
    }

    /// Returns a number of the kernel's.
    pub(crate) fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// Returns the sorted names in a folder; none if there is no folder.
    pub(crate) fn names(&self, folder: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.at(folder)) else { return Vec::new() };
        let mut names: Vec<_> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Returns the last component of the path that a symbolic link names.
    pub(crate) fn link(&self, path: &str) -> Option<String> {
        let target = std::fs::read_link(self.at(path)).ok()?;
        target.file_name().and_then(|name| name.to_str()).map(str::to_owned)
    }

    /// Returns whether users other than root may write a device, by its group or all of them.
    pub(crate) fn is_shared(&self, device: &str) -> bool {
        let Ok(found) = std::fs::metadata(self.at(device)) else { return false };
        let by_group = found.mode() & 0o060 == 0o060 && found.gid() != 0;
        by_group || found.mode() & 0o006 == 0o006
    }
}

/// Returns whether the host is this machine, whose kernel answers system calls, too.
pub(crate) fn is_this_machine(host: &Host) -> bool {
    host.root == Path::new("/")
}
