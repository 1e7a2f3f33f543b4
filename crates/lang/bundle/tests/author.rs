//! Private keys and manifests.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use p4shield_bundle::author::{Manifest, ManifestError, SigningError, SigningKey};
use p4shield_bundle::{Bundle, PublicKey};
use tempfile::TempDir;

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_private_key_is_private_and_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("signing.key");
    let key = SigningKey::generate(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(SigningKey::load(&path).unwrap().public(), key.public());
    assert!(matches!(SigningKey::generate(&path), Err(SigningError::Exists(_))), "never overwritten");
    assert_ne!(SigningKey::generate(&folder.path().join("other")).unwrap().public(), key.public());
    assert!(!format!("{key:?}").contains("07"), "no secret in messages");
}

#[test]
fn private_keys_that_others_may_read_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("signing.key");
    SigningKey::generate(&path).unwrap();
    for mode in [0o640, 0o604, 0o660, 0o700, 0o400] {
        chmod(&path, mode);
        assert!(matches!(SigningKey::load(&path), Err(SigningError::Mode { .. })), "{mode:o}");
    }
    chmod(&path, 0o600);
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(matches!(SigningKey::load(&link), Err(SigningError::NotAFile(_))));
    assert!(matches!(SigningKey::load(folder.path()), Err(SigningError::NotAFile(_))));
    assert!(matches!(SigningKey::load(&folder.path().join("absent")), Err(SigningError::Io { .. })));
}

#[test]
fn other_files_are_no_keys() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let public = common::key().public().to_string();
    for text in [&[7; 32][..], public.as_bytes(), b"", b"p4shield-bundle-private-key 07"] {
        std::fs::write(&path, text).unwrap();
        chmod(&path, 0o600);
        assert!(matches!(SigningKey::load(&path), Err(SigningError::NotAKey(_))), "{text:?}");
    }
    SigningKey::generate(&folder.path().join("signing.key")).unwrap();
    let private = std::fs::read_to_string(folder.path().join("signing.key")).unwrap();
    assert!(private.parse::<PublicKey>().is_err(), "a private key is no public key");
    assert_eq!(format!("{public}\n").parse(), Ok(common::key().public()));
    assert!(format!("{public} more").parse::<PublicKey>().is_err());
}

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in
            [("guard.o", "guard"), ("extern.o", "extern"), ("guard.p4info.txt", "pkg_info {}")]
        {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        std::fs::write(folder.path().join("empty.o"), "").unwrap();
        Self(folder)
    }

    fn manifest(&self, text: &str) -> Result<Manifest, ManifestError> {
        Manifest::parse(&self.0.path().join("web.toml"), text)
    }

    /// Returns what is wrong with a manifest, without the name of its file.
    fn problems(&self, text: &str) -> Vec<String> {
        match self.manifest(text).and_then(Manifest::collect) {
            Err(ManifestError::Refused { problems, .. }) => {
                problems.iter().map(ToString::to_string).collect()
            }
            other => panic!("{other:?}"),
        }
    }
}

const GOOD: &str = r#"
version = 7
tenant = "alice"
vm = "web"
header_bytes = 96

[ingress]
objects = ["guard.o", "extern.o"]
p4info = "guard.p4info.txt"

[[ingress.entry]]
map = "ports"
key = "00 50"
value = "01000000"

[[check]]
name = "http-passes"
direction = "ingress"
packet = "000102030405 060708090a0b 0800 45"
expect = "pass"
information = [{ field = 1, value = 5 }]
"#;

#[test]
fn a_manifest_becomes_a_bundle() {
    let folder = Folder::new();
    let contents = folder.manifest(GOOD).unwrap().collect().unwrap();
    let bundle = Bundle::open(&common::key().sign(&contents).unwrap(), &common::key().public()).unwrap();
    let read = bundle.for_vm("alice", "web", 7).unwrap();
    assert_eq!((read.version, read.header_bytes), (7, 96));
    let ingress = read.programs[0].as_ref().unwrap();
    assert_eq!(ingress.objects, [b"guard".to_vec(), b"extern".to_vec()]);
    assert_eq!(ingress.p4info.as_deref(), Some(&b"pkg_info {}"[..]));
    assert_eq!((&*ingress.entries[0].map, &*ingress.entries[0].key), ("ports", &[0, 0x50][..]));
    let check = &read.checks[0];
    assert!(check.passes && check.packet.len() == 15 && check.packet[12..] == [8, 0, 0x45]);
    assert_eq!(check.information.as_deref(), Some(&[(1, 5)][..]));
    assert_eq!(read.programs[1], None);
}

#[test]
fn a_bad_manifest_is_refused_at_its_place() {
    let folder = Folder::new();
    for (from, to, problem) in [
        ("version = 7", "version = 0", "2:11: version: write 1"),
        ("version = 7", "version = -7", "2:11: "),
        ("tenant = \"alice\"", "", "missing field `tenant`"),
        ("\"alice\"", "\"a b\"", "3:10: tenant: \"a b\" is invalid"),
        ("header_bytes = 96", "header_bytes = 5", "5:16: header_bytes: write a number from 14"),
        ("header_bytes", "header_byte", "5:1: unknown field `header_byte`"),
        ("[\"guard.o\", \"extern.o\"]", "[]", "7:1: objects: name at least one"),
        ("extern.o", "absent.o", "absent.o: cannot open it"),
        ("extern.o", "empty.o", "8:23: "),
        ("\"01000000\"", "\"0100000\"", "14:9: entry.value: write pairs"),
        ("\"ingress\"", "\"inward\"", "18:13: check.direction: write"),
        ("\"ingress\"", "\"egress\"", "18:13: check.direction: there is no program for egress"),
        ("expect = \"pass\"", "expect = \"maybe\"", "20:10: check.expect: write"),
        ("packet = \"000102", "packet = \"zz0102", "19:10: check.packet: write pairs"),
        ("060708090a0b 0800 45", "", "19:10: check.packet: 6 bytes"),
        ("field = 1", "field = 256", "21:16: field: there are fields 0 to 255"),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let found = folder.problems(&GOOD.replacen(from, to, 1));
        assert!(found.len() == 1 && found[0].contains(problem), "{to}: {found:?}");
    }
    let none = folder.problems("version = 1\ntenant = \"alice\"\n");
    assert!(none[0].contains("there is no program"), "{none:?}");
    let twice = GOOD.replace(
        "[[check]]",
        "[[ingress.entry]]\nmap = \"ports\"\nkey = \"0050\"\nvalue = \"02\"\n[[check]]",
    );
    assert!(folder.problems(&twice)[0].contains("18:7: entry.key"), "{:?}", folder.problems(&twice));
}
