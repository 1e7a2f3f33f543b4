//! Files of keys and certificates, as `openssl` makes them.

use super::*;
use std::path::PathBuf;
use std::process::Command;

/// Makes a key of this kind with a certificate for itself, as `NAME.key` and `NAME.pem`.
fn make(folder: &Path, name: &str, kind: &[&str]) -> Controllers {
    let [key, certificate] = ["key", "pem"].map(|extension| folder.join(format!("{name}.{extension}")));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-nodes", "-subj", "/CN=switch", "-newkey"]).args(kind);
    openssl.arg("-keyout").arg(&key).arg("-out").arg(&certificate);
    let output = openssl.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let ca_certificate = certificate.clone();
    Controllers { ovsdb: None, openflow: None, private_key: key, certificate, ca_certificate }
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let one = make(folder.path(), "one", &["rsa:2048"]);
    let other = make(folder.path(), "other", &["rsa:2048"]);
    let tls = read(&one).unwrap();
    assert!(tls.private_key.contains("PRIVATE KEY") && !format!("{tls:?}").contains("PRIVATE"));
    let mixed = Controllers { private_key: other.private_key, ..one.clone() };
    let error = read(&mixed).unwrap_err().to_string();
    assert!(error.contains("other.key is not that of the certificate"), "{error}");
    // The form that openssl wrote before PKCS #8.
    let old = folder.path().join("old.key");
    let mut rsa = Command::new("openssl");
    rsa.args(["rsa", "-traditional", "-in"]).arg(&one.private_key).arg("-out").arg(&old);
    assert!(rsa.output().unwrap().status.success());
    assert!(std::fs::read_to_string(&old).unwrap().contains("BEGIN RSA PRIVATE KEY"));
    read(&Controllers { private_key: old, ..one }).unwrap();
}

#[test]
fn keys_on_elliptic_curves_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let files = make(folder.path(), "ec", &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    read(&files).unwrap();
}

#[test]
fn files_that_are_no_keys_or_certificates_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let files = make(folder.path(), "one", &["rsa:2048"]);
    let refused = |change: &dyn Fn(&mut Controllers)| {
        let mut files = files.clone();
        change(&mut files);
        read(&files).unwrap_err().to_string()
    };
    let garbage: PathBuf = folder.path().join("garbage");
    std::fs::write(&garbage, "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n").unwrap();
    let error = refused(&|files| files.private_key = files.certificate.clone());
    assert!(error.contains("one.pem has no unencrypted private key in PEM"), "{error}");
    let error = refused(&|files| files.certificate = garbage.clone());
    assert!(error.contains("garbage has no certificate in PEM"), "{error}");
    let error = refused(&|files| files.ca_certificate = files.private_key.clone());
    assert!(error.contains("one.key has no certificate in PEM"), "{error}");
    let error = refused(&|files| files.ca_certificate = "/dev/zero".into());
    assert!(error.contains("has no certificate in PEM"), "{error}");
    assert!(refused(&|files| files.private_key = "/none".into()).contains("cannot read /none"));
}

proptest::proptest! {
    #[test]
    fn no_file_causes_a_panic(text in ".*", key_bytes in proptest::collection::vec(0_u8.., 0..64)) {
        key(&text);
        if let Some(certificate) = first_of(&text) {
            may_belong(&certificate, &key_bytes);
        }
    }
}
