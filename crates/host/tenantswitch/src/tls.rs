//! A switch's side of TLS: the files of the configuration, checked before the switch gets copies. Open
//! vSwitch itself listens with a wrong pair of them, and each handshake fails.

use crate::TopologyError;
use crate::order::Tls;
use p4shield_topology::Controllers;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use x509_cert::Certificate;
use x509_cert::der::DecodePem as _;
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::pem::decode_vec;

/// Longest file of a key or of certificates.
const MAX_PEM: u64 = 1 << 20;
/// Keys of RSA (RFC 8017, appendix A.1).
const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");

/// Reads the files.
///
/// # Errors
/// One cannot be read, is not what it should be, or key and certificate do not belong together.
pub(crate) fn read(files: &Controllers) -> Result<Tls, TopologyError> {
    let private_key = text(&files.private_key)?;
    let certificate = text(&files.certificate)?;
    let ca_certificate = text(&files.ca_certificate)?;
    let wrong = |path: &Path, what| TopologyError::NoPem { path: path.to_owned(), what };
    let key = key(&private_key).ok_or_else(|| wrong(&files.private_key, "unencrypted private key"))?;
    let own = first_of(&certificate).ok_or_else(|| wrong(&files.certificate, "certificate"))?;
    first_of(&ca_certificate).ok_or_else(|| wrong(&files.ca_certificate, "certificate"))?;
    if !may_belong(&own, &key) {
        let (key, certificate) = (files.private_key.clone(), files.certificate.clone());
        return Err(TopologyError::Keys { key, certificate });
    }
    Ok(Tls { private_key, certificate, ca_certificate })
}

fn text(path: &Path) -> Result<String, TopologyError> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_PEM).read_to_string(&mut text));
    read.map(|_| text).map_err(TopologyError::file("read", path))
}

/// Returns the first of the certificates in a file; `None` if they are none.
fn first_of(text: &str) -> Option<Certificate> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let from = text.get(text.find(BEGIN)?..)?;
    let one = from.get(..from.find(END)? + END.len())?;
    Certificate::from_pem(one).ok()
}

/// Returns a private key in DER, of a form that Open vSwitch reads.
fn key(text: &str) -> Option<Vec<u8>> {
    let (label, key) = decode_vec(text.trim_start().as_bytes()).ok()?;
    ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"].contains(&label).then_some(key)
}

/// Returns false if a certificate is another key's. A private key of RSA contains the modulus and the
/// exponent of the public one, one behind the other (RFC 8017, appendix A.1); other keys are not compared.
fn may_belong(certificate: &Certificate, key: &[u8]) -> bool {
    let public = &certificate.tbs_certificate.subject_public_key_info;
    let Some(sequence) = public.subject_public_key.as_bytes().filter(|_| public.algorithm.oid == RSA) else {
        return true;
    };
    // Without the sequence's tag and length, whose first byte says how many follow if it is 0x80 or more.
    let header = 2 + sequence.get(1).map_or(0, |length| usize::from(length.saturating_sub(0x80)));
    let numbers = sequence.get(header..).filter(|numbers| !numbers.is_empty());
    numbers.is_some_and(|numbers| key.windows(numbers.len()).any(|part| part == numbers))
}

#[cfg(test)]
mod tests;
