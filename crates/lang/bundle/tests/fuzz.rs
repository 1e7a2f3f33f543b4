//! The fuzz targets' entry points, under a seeded campaign.

mod common;

use p4shield_bundle::fuzz;

#[test]
fn damaged_bundles_never_panic() {
    p4shield_testbed::campaign(&[common::file()], fuzz::bundle);
}

#[test]
fn any_contents_of_the_signer_are_survived() {
    p4shield_testbed::campaign(&[common::file()[112..].to_vec()], fuzz::signed_contents);
}

#[test]
fn any_text_is_survived() {
    let key = common::key().public().to_string().into_bytes();
    let manifest = b"version = 1\ntenant = \"a\"\n[ingress]\nobjects = [\"a.o\"]\n[[check]]\nname = \"c\"\n\
        direction = \"ingress\"\npacket = \"00ff\"\nexpect = \"drop\"\n";
    p4shield_testbed::campaign(&[key, manifest.to_vec()], fuzz::text);
}
