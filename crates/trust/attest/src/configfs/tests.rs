//! The attester on an imitation of the kernel, and its file operations on a folder.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::*;
use crate::evidence::CertificateKind;

/// What an imitation does wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fault {
    #[default]
    None,
    /// Another process writes between the attester's write and its read.
    OtherWriter,
    /// Another process writes after the report was read.
    LateWriter,
    /// The hardware refuses a report.
    NoReport,
    /// Entries with the first names are there already.
    Leftovers,
    NoFolder,
    EmptyReport,
}

/// An imitation of the kernel: attributes of entries, and the generation of each.
#[derive(Default)]
struct Kernel {
    provider: &'static str,
    fault: Fault,
    auxblob: Option<Vec<u8>>,
    entries: RefCell<BTreeMap<String, (u64, Vec<u8>)>>,
    created: RefCell<u64>,
}

impl Entries for Kernel {
    fn create(&self, name: &str) -> io::Result<()> {
        *self.created.borrow_mut() += 1;
        match self.fault {
            Fault::NoFolder => Err(io::ErrorKind::NotFound.into()),
            Fault::Leftovers if *self.created.borrow() < 4 => Err(io::ErrorKind::AlreadyExists.into()),
            _ => {
                assert!(self.entries.borrow_mut().insert(name.to_owned(), (0, Vec::new())).is_none());
                Ok(())
            }
        }
    }

    fn write(&self, name: &str, attribute: &str, bytes: &[u8]) -> io::Result<()> {
        assert_eq!((attribute, bytes.len()), ("inblob", 64));
        let mut entries = self.entries.borrow_mut();
        let (generation, inblob) = entries.get_mut(name).unwrap();
        (*generation, *inblob) = (*generation + 1, bytes.to_vec());
        if self.fault == Fault::OtherWriter {
            (*generation, *inblob) = (*generation + 1, vec![0xee; 64]);
        }
        Ok(())
    }

    fn read(&self, name: &str, attribute: &str) -> io::Result<Vec<u8>> {
        let mut entries = self.entries.borrow_mut();
        let (generation, inblob) = entries.get_mut(name).unwrap();
        match (attribute, self.fault) {
            ("provider", _) => Ok(format!("{}\n", self.provider).into_bytes()),
            ("generation", _) => Ok(format!("{generation}\n").into_bytes()),
            ("outblob", Fault::NoReport) => Err(io::ErrorKind::InvalidInput.into()),
            ("outblob", Fault::EmptyReport) => Ok(Vec::new()),
            ("outblob", fault) => {
                *generation += u64::from(fault == Fault::LateWriter);
                Ok([b"report of ".as_slice(), inblob].concat())
            }
            ("auxblob", _) => self.auxblob.clone().ok_or_else(|| io::ErrorKind::NotFound.into()),
            _ => panic!("there is no attribute {attribute}"),
        }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.entries.borrow_mut().remove(name).map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

const DATA: ReportData = ReportData::new([7; 64]);

fn evidence(kernel: &Kernel) -> Result<Evidence, AttestError> {
    let folder = Path::new("/folder");
    let tee = detect(kernel, folder)?;
    let evidence = Entry::create(kernel, folder)?.report(tee, &DATA);
    assert!(kernel.entries.borrow().is_empty(), "an entry is left");
    evidence
}

#[test]
fn the_kernels_report_becomes_evidence_and_leaves_no_entry() {
    let kernel = Kernel { provider: "tdx_guest", ..Kernel::default() };
    let found = evidence(&kernel).unwrap();
    assert_eq!((found.tee, found.certificates.len()), (Tee::Tdx, 0));
    assert_eq!(found.report, [b"report of ".as_slice(), DATA.as_bytes()].concat());
    let mut table = 0x63da_758d_e664_4564_adc5_f4b9_3be8_accd_u128.to_be_bytes().to_vec();
    table.extend([48, 0, 0, 0, 4, 0, 0, 0]);
    table.extend([0; 24]);
    table.extend(b"vcek");
    let kernel = Kernel { provider: "sev_guest", auxblob: Some(table), ..Kernel::default() };
    let found = evidence(&kernel).unwrap();
    assert_eq!(found.tee, Tee::SevSnp);
    assert_eq!(
        (found.certificates[0].kind, found.certificates[0].der.as_slice()),
        (CertificateKind::Vcek, &b"vcek"[..])
    );
    // A host that passes no certificates on.
    assert!(
        evidence(&Kernel { provider: "sev_guest", ..Kernel::default() }).unwrap().certificates.is_empty()
    );
}

#[test]
fn another_writer_of_the_entry_is_noticed_by_its_generation() {
    for fault in [Fault::OtherWriter, Fault::LateWriter] {
        let kernel = Kernel { provider: "sev_guest", fault, ..Kernel::default() };
        let refused = evidence(&kernel).unwrap_err();
        assert!(matches!(refused, AttestError::Generation { expected: 1, found: 2 }), "{refused}");
    }
}

#[test]
fn a_machine_without_a_tee_gets_no_sample_instead() {
    let of = |provider, fault| evidence(&Kernel { provider, fault, ..Kernel::default() });
    assert!(matches!(of("", Fault::NoFolder), Err(AttestError::NoTee(_))));
    assert!(
        matches!(of("arm_cca_guest", Fault::None), Err(AttestError::Provider(p)) if p == "arm_cca_guest")
    );
    assert!(matches!(of("sev_guest", Fault::NoReport), Err(AttestError::Io { attribute: "outblob", .. })));
    assert!(matches!(of("sev_guest", Fault::EmptyReport), Err(AttestError::Answer { .. })));
    let missing = ConfigfsTsm::detect(Path::new("/nonexistent/tsm/report")).unwrap_err();
    assert!(matches!(missing, AttestError::NoTee(_)), "{missing}");
}

#[test]
fn entries_that_a_crash_left_behind_are_passed_over() {
    let kernel = Kernel { provider: "tdx_guest", fault: Fault::Leftovers, ..Kernel::default() };
    assert!(evidence(&kernel).is_ok());
}

#[test]
fn a_table_of_certificates_that_is_damaged_is_an_error() {
    let mut table = 0x63da_758d_e664_4564_adc5_f4b9_3be8_accd_u128.to_be_bytes().to_vec();
    table.extend([0xff; 8]);
    let kernel = Kernel { provider: "sev_guest", auxblob: Some(table), ..Kernel::default() };
    assert!(matches!(evidence(&kernel), Err(AttestError::Answer { attribute: "auxblob", .. })));
}

/// An ordinary folder, in which no kernel makes attributes.
#[test]
fn the_folders_operations_are_those_of_files() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder(dir.path().to_owned());
    folder.create("entry").unwrap();
    assert_eq!(folder.create("entry").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    // The attester creates no attribute: only the kernel does.
    assert_eq!(folder.write("entry", "inblob", b"64 bytes").unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(folder.read("entry", "outblob").unwrap_err().kind(), io::ErrorKind::NotFound);
    let attribute = dir.path().join("entry/outblob");
    fs::write(&attribute, vec![1; 1 << 15]).unwrap();
    assert_eq!(folder.read("entry", "outblob").unwrap().len(), 1 << 15);
    fs::write(&attribute, vec![1; (1 << 15) + 1]).unwrap();
    assert_eq!(folder.read("entry", "outblob").unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    folder.write("entry", "outblob", b"new").unwrap();
    fs::remove_file(&attribute).unwrap();
    folder.remove("entry").unwrap();
    // An ordinary folder is no kernel: detection fails and leaves nothing.
    assert!(matches!(ConfigfsTsm::detect(dir.path()), Err(AttestError::Io { attribute: "provider", .. })));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
