//! The format: its golden file, and what is refused.

mod common;

use common::{contents, file, key};
use p4shield_bundle::author::SigningKey;
use p4shield_bundle::{
    Bundle, BundleError, BundledProgram, Contents, Entry, MAX_BUNDLE, PublicKey, Reason, Unpinned,
    program_digest,
};
use proptest::prelude::*;

/// A change of contents.
type Change<'a> = &'a dyn Fn(&mut Contents);

/// Written by `P4SHIELD_BLESS=1`; a change of it is a change of the format.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/format-1.bundle");

fn open(bytes: &[u8]) -> Result<Bundle, BundleError> {
    Bundle::open(bytes, &key().public())
}

/// Opens the bytes with the pinned key and without one: the two agree but for the key.
fn refusal(bytes: &[u8]) -> BundleError {
    let unpinned = Unpinned::open(bytes).err();
    let refusal = open(bytes).unwrap_err();
    if !matches!(refusal, BundleError::WrongKey { .. }) {
        assert_eq!(unpinned.as_ref(), Some(&refusal));
    }
    refusal
}

#[test]
fn the_format_is_the_golden_file() {
    if std::env::var_os("P4SHIELD_BLESS").is_some() {
        std::fs::write(GOLDEN, file()).unwrap();
    }
    let golden = std::fs::read(GOLDEN).unwrap();
    assert_eq!(golden, file(), "the format changed: raise FORMAT, and bless the golden file");
    assert_eq!(open(&golden).unwrap().contents(), &contents());
    // As the crate's documentation describes it.
    assert_eq!(&golden[..8], b"P4BUNDLE");
    assert_eq!(golden[8..12], 1_u32.to_le_bytes());
    assert_eq!(golden[12..16], (golden.len() as u32 - 112).to_le_bytes());
    assert_eq!(golden[16..48], key().public().to_bytes());
}

#[test]
fn a_flipped_byte_is_refused_wherever_it_is() {
    let good = file();
    for at in 0..good.len() {
        for bit in [0x01, 0x80] {
            let mut bad = good.clone();
            bad[at] ^= bit;
            let expected = match at {
                0..8 => "not_a_bundle",
                8..12 => "other_format",
                12..16 => ["other_length", "too_large"][usize::from(at == 15)],
                16..48 => "wrong_key",
                _ => "changed",
            };
            assert_eq!(refusal(&bad).name(), expected, "byte {at}, bit {bit:#x}");
            assert!(Unpinned::open(&bad).is_err(), "byte {at}, bit {bit:#x}");
        }
    }
}

#[test]
fn cut_and_extended_files_are_refused() {
    let good = file();
    for len in 0..good.len() {
        let expected = if len < 8 { "not_a_bundle" } else { "other_length" };
        assert_eq!(refusal(&good[..len]).name(), expected, "{len} bytes");
    }
    let longer = [&good[..], &[0]].concat();
    let (expected, found) = (good.len() as u64, longer.len() as u64);
    assert_eq!(refusal(&longer), BundleError::Length { expected, found });
}

#[test]
fn another_signer_is_the_wrong_key() {
    let mallory = SigningKey::from_bytes(&[8; 32]);
    let forged = mallory.sign(&contents()).unwrap();
    let (expected, found) = (key().public().id(), mallory.public().id());
    assert_eq!(open(&forged).unwrap_err(), BundleError::WrongKey { expected, found });
    // Mallory names the pinned key.
    let mut claims = forged.clone();
    claims[16..48].copy_from_slice(&key().public().to_bytes());
    assert_eq!(open(&claims).unwrap_err(), BundleError::Changed);
    // A reader without a key learns that it is not verified.
    assert!(!Unpinned::open(&forged).unwrap().summary(|_| Ok([0; 32])).verified);
    assert!(open(&file()).unwrap().summary(|_| Ok([0; 32])).verified);
}

#[test]
fn a_signature_of_something_else_is_none_of_a_bundle() {
    // What ed25519 signs without this format's domain: the digest alone, the file alone.
    use ed25519_dalek::{Signer, SigningKey};
    use sha2::{Digest, Sha256};
    let signer = SigningKey::from_bytes(&[7; 32]);
    let good = file();
    let signed = [&good[..48], &good[112..]].concat();
    for message in [signed.clone(), Sha256::digest(&signed).to_vec()] {
        let mut bad = good.clone();
        bad[48..112].copy_from_slice(&signer.sign(&message).to_bytes());
        assert_eq!(open(&bad).unwrap_err(), BundleError::Changed);
    }
}

#[test]
fn keys_that_anyone_can_sign_for_are_none() {
    // The neutral element and the other points of small order, in canonical form.
    let mut neutral = [0; 32];
    neutral[0] = 1;
    let mut minus_one = [0xff; 32];
    (minus_one[0], minus_one[31]) = (0xec, 0x7f);
    for weak in [[0; 32], neutral, minus_one] {
        assert!(PublicKey::from_bytes(&weak).is_err(), "{weak:?}");
        let mut bad = file();
        bad[16..48].copy_from_slice(&weak);
        assert_eq!(Unpinned::open(&bad).unwrap_err(), BundleError::InvalidKey);
    }
}

#[test]
fn a_malleable_signature_is_refused() {
    // s + L verifies under lax rules: L is the order of the base point.
    const L: [u8; 32] = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];
    let mut bad = file();
    let mut carry = 0;
    for (s, l) in bad[80..112].iter_mut().zip(L) {
        let sum = u16::from(*s) + u16::from(l) + carry;
        (*s, carry) = (sum as u8, sum >> 8);
    }
    assert_eq!(open(&bad).unwrap_err(), BundleError::Changed);
}

#[test]
fn too_large_files_are_refused_before_they_are_hashed() {
    let mut large = file();
    large.resize(MAX_BUNDLE + 1, 0);
    assert_eq!(refusal(&large), BundleError::TooLarge { len: MAX_BUNDLE as u64 + 1 });
    // A head that announces more than there is.
    let mut false_length = file();
    false_length[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(refusal(&false_length).name(), "too_large");
}

#[test]
fn a_bundle_is_for_its_tenant_vm_and_version() {
    let bundle = open(&file()).unwrap();
    for floor in [0, 6, 7] {
        assert!(bundle.for_vm("alice", "web", floor).is_ok());
    }
    let refused = |tenant, vm, floor| bundle.for_vm(tenant, vm, floor).unwrap_err().name();
    assert_eq!(refused("alice", "web", 8), "too_old");
    assert_eq!(refused("bob", "web", 0), "other_tenant");
    assert_eq!(refused("alice", "db", 0), "other_vm");
    let any = Contents { vm: None, ..contents() };
    let any = open(&key().sign(&any).unwrap()).unwrap();
    assert!(any.for_vm("alice", "db", 7).is_ok());
    assert_eq!(any.for_vm("bob", "db", 7).unwrap_err().name(), "other_tenant");
}

#[test]
fn contents_beyond_a_limit_are_neither_signed_nor_read() {
    let change = |f: Change<'_>| {
        let mut c = contents();
        f(&mut c);
        key().sign(&c).map(drop).unwrap_err()
    };
    let duplicate = |c: &mut Contents| {
        let program = c.programs[0].as_mut().unwrap();
        program.entries[1] = program.entries[0].clone();
    };
    let cases: [(Change<'_>, &str); 11] = [
        (&|c| c.version = 0, "version"),
        (&|c| c.tenant = "a b".into(), "tenant \"a b\""),
        (&|c| c.vm = Some(String::new()), "VM \"\""),
        (&|c| c.header_bytes = 13, "header_bytes is 13"),
        (&|c| c.programs = [None, None], "no direction"),
        (&|c| c.programs[1] = None, "check \"out\" is of direction egress"),
        (&|c| c.programs[0].as_mut().unwrap().objects.clear(), "number of objects"),
        (&duplicate, "two entries with one key"),
        (&|c| c.checks[1].name = "http-passes".into(), "two checks"),
        (&|c| c.checks[0].information = Some(vec![(256, 1)]), "field 256"),
        (&|c| c.checks[0].packet.truncate(13), "length of a check's packet"),
    ];
    for (f, text) in cases {
        let error = change(f);
        assert!(matches!(error, BundleError::Contents(_)) && error.to_string().contains(text), "{error}");
    }
    let huge = |c: &mut Contents| c.programs[1].as_mut().unwrap().objects = vec![vec![0; (4 << 20) + 1]];
    assert!(matches!(change(&huge), BundleError::Contents(Reason::Range { .. })));
}

#[test]
fn entries_are_part_of_a_programs_name() {
    let entry = |map: &str, key: &[u8]| Entry { map: map.into(), key: key.to_vec(), value: vec![1] };
    assert_eq!(program_digest([3; 32], &[]), [3; 32], "without entries, the linked program's digest");
    let names = [
        program_digest([3; 32], &[entry("a", b"b")]),
        program_digest([3; 32], &[entry("ab", b"")]),
        program_digest([3; 32], &[entry("a", b"c")]),
        program_digest([4; 32], &[entry("a", b"b")]),
        program_digest([3; 32], &[entry("a", b"b"), entry("a", b"c")]),
        program_digest([3; 32], &[entry("a", b"c"), entry("a", b"b")]),
    ];
    for (n, name) in names.iter().enumerate() {
        assert!(!names[..n].contains(name), "name {n} is another's, too");
    }
}

fn programs() -> impl Strategy<Value = BundledProgram> {
    let bytes = |most| proptest::collection::vec(any::<u8>(), 1..most);
    let entries = proptest::collection::btree_map(("[a-z]{1,8}", bytes(9)), bytes(9), 0..5);
    let objects = proptest::collection::vec(bytes(200), 1..3);
    (objects, proptest::option::of(bytes(50)), entries).prop_map(|(objects, p4info, entries)| {
        let entries = entries.into_iter().map(|((map, key), value)| Entry { map, key, value }).collect();
        BundledProgram { objects, p4info, entries }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn bundles_read_back_and_have_one_encoding(
        version in 1..=u64::MAX,
        vm in proptest::option::of("[a-z0-9._-]{1,64}"),
        ingress in programs(),
        secret in any::<[u8; 32]>(),
    ) {
        let mut contents = Contents { version, vm, ..contents() };
        contents.programs[0] = Some(ingress);
        let key = SigningKey::from_bytes(&secret);
        let file = key.sign(&contents).unwrap();
        prop_assert_eq!(&file, &key.sign(&contents).unwrap(), "the same contents give the same bytes");
        let read = Bundle::open(&file, &key.public()).unwrap();
        prop_assert_eq!(read.contents(), &contents);
    }

    #[test]
    fn any_change_of_any_bundle_is_refused(
        ingress in programs(), at in any::<prop::sample::Index>(), flip in 1..=u8::MAX,
    ) {
        let mut contents = contents();
        contents.programs[0] = Some(ingress);
        let mut file = key().sign(&contents).unwrap();
        let at = at.index(file.len());
        file[at] ^= flip;
        prop_assert!(open(&file).is_err(), "byte {}", at);
        prop_assert!(Unpinned::open(&file).is_err(), "byte {}", at);
    }
}
