//! Reports of the Linux kernel: configfs-tsm (`Documentation/ABI/testing/configfs-tsm-report`).
//!
//! A folder in configfs is an entry; the kernel fills it with attributes. Whoever writes `inblob` gets the
//! report from `outblob`. `generation` counts the writes to an entry, so that a process notices when another
//! one uses its entry.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::attester::{AttestError, Attester};
use crate::evidence::Evidence;
use crate::snp::table;
use crate::tee::{ReportData, Tee};

/// Where the kernel's entries are.
pub const CONFIGFS: &str = "/sys/kernel/config/tsm/report";

/// Most bytes of an attribute: reports have some kilobytes, tables of certificates some more.
const MAX_ATTRIBUTE: u64 = 32 << 10;
/// Names that are tried for an entry. A process with the same number may have left some behind.
const MAX_NAMES: u64 = 16;

/// What the attester needs of the kernel's folder. The tests imitate the kernel.
trait Entries {
    fn create(&self, name: &str) -> io::Result<()>;
    fn write(&self, name: &str, attribute: &str, bytes: &[u8]) -> io::Result<()>;
    fn read(&self, name: &str, attribute: &str) -> io::Result<Vec<u8>>;
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// The kernel's folder itself.
#[derive(Debug)]
struct Folder(PathBuf);

impl Entries for Folder {
    fn create(&self, name: &str) -> io::Result<()> {
        fs::create_dir(self.0.join(name))
    }

    fn write(&self, name: &str, attribute: &str, bytes: &[u8]) -> io::Result<()> {
        // In one write: the kernel takes each write for a whole value.
        let mut file = fs::OpenOptions::new().write(true).open(self.0.join(name).join(attribute))?;
        match file.write(bytes)? {
            n if n == bytes.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    fn read(&self, name: &str, attribute: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = fs::File::open(self.0.join(name).join(attribute))?;
        file.take(MAX_ATTRIBUTE + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_ATTRIBUTE {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(bytes)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_dir(self.0.join(name))
    }
}

/// One entry, which is removed at the end.
struct Entry<'a, E: Entries> {
    entries: &'a E,
    folder: &'a Path,
    name: String,
}

impl<E: Entries> Drop for Entry<'_, E> {
    fn drop(&mut self) {
        // An entry that cannot be removed costs the kernel some memory and hinders nothing.
        let _ = self.entries.remove(&self.name);
    }
}

impl<'a, E: Entries> Entry<'a, E> {
    fn create(entries: &'a E, folder: &'a Path) -> Result<Self, AttestError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut refused = io::ErrorKind::AlreadyExists.into();
        for _ in 0..MAX_NAMES {
            let name = format!("p4shield-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            match entries.create(&name) {
                Ok(()) => return Ok(Self { entries, folder, name }),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => refused = e,
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    return Err(AttestError::NoTee(folder.to_owned()));
                }
                Err(e) => {
                    refused = e;
                    break;
                }
            }
        }
        Err(io_error(folder, "create", "the folder", refused))
    }

    fn read(&self, attribute: &'static str) -> Result<Vec<u8>, AttestError> {
        let read = self.entries.read(&self.name, attribute);
        read.map_err(|e| io_error(self.folder, "read", attribute, e))
    }

    fn provider(&self) -> Result<Tee, AttestError> {
        let text = String::from_utf8_lossy(&self.read("provider")?).trim().to_owned();
        match text.as_str() {
            "sev_guest" => Ok(Tee::SevSnp),
            "tdx_guest" => Ok(Tee::Tdx),
            _ => Err(AttestError::Provider(text)),
        }
    }

    fn generation(&self) -> Result<u64, AttestError> {
        let text = String::from_utf8_lossy(&self.read("generation")?).trim().to_owned();
        text.parse().map_err(|_| answer("generation", format!("{text:?} is no number")))
    }

    fn report(&self, tee: Tee, report_data: &ReportData) -> Result<Evidence, AttestError> {
        let found = self.provider()?;
        if found != tee {
            return Err(answer("provider", format!("it changed from {tee} to {found}")));
        }
        let expected = self.generation()?.wrapping_add(1);
        let written = self.entries.write(&self.name, "inblob", report_data.as_bytes());
        written.map_err(|e| io_error(self.folder, "write", "inblob", e))?;
        let report = self.read("outblob")?;
        let certificates = match tee {
            Tee::SevSnp => match self.entries.read(&self.name, "auxblob") {
                Ok(table) => table::certificates(&table).map_err(|why| answer("auxblob", why))?,
                // Kernels before 6.10 have the attribute only if the host passes certificates on.
                Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
                Err(e) => return Err(io_error(self.folder, "read", "auxblob", e)),
            },
            _ => Vec::new(),
        };
        // After the last read: a report of other report data, or certificates of another report, are noticed.
        let found = self.generation()?;
        if found != expected {
            return Err(AttestError::Generation { expected, found });
        }
        if report.is_empty() {
            return Err(answer("outblob", "it is empty".to_owned()));
        }
        Ok(Evidence { tee, report, certificates })
    }
}

fn answer(attribute: &'static str, why: String) -> AttestError {
    AttestError::Answer { attribute, why }
}

fn io_error(folder: &Path, doing: &'static str, attribute: &'static str, source: io::Error) -> AttestError {
    AttestError::Io { folder: folder.to_owned(), doing, attribute, source }
}

/// Asks the kernel for reports of SEV-SNP or TDX.
#[derive(Debug)]
pub struct ConfigfsTsm {
    folder: Folder,
    tee: Tee,
}

impl ConfigfsTsm {
    /// Finds out which TEE the kernel reports about. `folder` is [`CONFIGFS`], except in tests.
    ///
    /// # Errors
    ///
    /// The kernel offers no reports, or those of another TEE. There is no fallback.
    pub fn detect(folder: &Path) -> Result<Self, AttestError> {
        let entries = Folder(folder.to_owned());
        let tee = detect(&entries, folder)?;
        Ok(Self { folder: entries, tee })
    }
}

fn detect(entries: &impl Entries, folder: &Path) -> Result<Tee, AttestError> {
    Entry::create(entries, folder)?.provider()
}

impl Attester for ConfigfsTsm {
    fn tee(&self) -> Tee {
        self.tee
    }

    fn evidence(&self, report_data: &ReportData) -> Result<Evidence, AttestError> {
        Entry::create(&self.folder, &self.folder.0)?.report(self.tee, report_data)
    }
}

#[cfg(test)]
mod tests;
