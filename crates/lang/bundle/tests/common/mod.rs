//! A bundle with something in every field.
#![allow(dead_code, reason = "each test file uses its part of it")]

use p4shield_bundle::author::SigningKey;
use p4shield_bundle::{BundledProgram, Contents, Entry, HealthCheck};

/// The key of the tests, and of the golden file.
pub(crate) fn key() -> SigningKey {
    SigningKey::from_bytes(&[7; 32])
}

pub(crate) fn contents() -> Contents {
    let entry = |key: u8| Entry { map: "ports".into(), key: vec![0, key], value: vec![1, 0, 0, 0] };
    let ingress = BundledProgram {
        objects: vec![b"\x7fELF ingress".to_vec(), b"\x7fELF extern".to_vec()],
        p4info: Some(b"pkg_info { arch: \"ubpf\" }".to_vec()),
        entries: vec![entry(80), entry(22)],
    };
    let egress = BundledProgram { objects: vec![b"\x7fELF egress".to_vec()], ..BundledProgram::default() };
    let check = |name: &str, direction, passes, information| HealthCheck {
        name: name.into(),
        direction,
        packet: (0..60).collect(),
        passes,
        information,
    };
    Contents {
        version: 7,
        tenant: "alice".into(),
        vm: Some("web".into()),
        header_bytes: 128,
        programs: [Some(ingress), Some(egress)],
        checks: vec![
            check("http-passes", 0, true, Some(vec![(0, 5), (128, u64::MAX)])),
            check("out", 1, false, None),
        ],
    }
}

/// The bundle of [`contents`], signed with [`key`].
pub(crate) fn file() -> Vec<u8> {
    key().sign(&contents()).unwrap()
}
