//! What both hierarchies of test certificates need: repeatable random numbers, and copies of genuine
//! certificates.

use rsa::rand_core::{CryptoRng, Error, RngCore};
use x509_cert::Certificate as X509;
use x509_cert::TbsCertificate;
use x509_cert::crl::{CertificateList, RevokedCert, TbsCertList};
use x509_cert::der::Encode;
use x509_cert::der::asn1::{BitString, UtcTime};
use x509_cert::serial_number::SerialNumber;
use x509_cert::time::Time;

use crate::tee::UnixSeconds;

/// Numbers that are the same in each run. Keys made of them protect nothing.
pub(super) struct Repeatable(pub(super) u64);

impl RngCore for Repeatable {
    fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    fn next_u64(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let number = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&number[..chunk.len()]);
        }
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        self.fill_bytes(bytes);
        Ok(())
    }
}

impl CryptoRng for Repeatable {}

/// Copies a genuine certificate, edits the copy, and signs it.
pub(super) fn certificate(
    genuine: &X509,
    edit: impl FnOnce(&mut TbsCertificate),
    sign: impl Fn(&[u8]) -> Vec<u8>,
) -> X509 {
    let mut copy = genuine.clone();
    edit(&mut copy.tbs_certificate);
    let signature = sign(&copy.tbs_certificate.to_der().unwrap());
    copy.signature = BitString::from_bytes(&signature).unwrap();
    copy
}

/// Makes the revocation list of an issuer, which begins a day before and ends a day after `now`.
pub(super) fn revocation_list(
    issuer: &X509,
    algorithm_of: &X509,
    revoked: &[&X509],
    now: UnixSeconds,
    sign: impl Fn(&[u8]) -> Vec<u8>,
) -> CertificateList {
    let entry = |certificate: &&X509| RevokedCert {
        serial_number: certificate.tbs_certificate.serial_number.clone(),
        revocation_date: time(now.0 - 86_400),
        crl_entry_extensions: None,
    };
    let entries: Vec<_> = revoked.iter().map(entry).collect();
    let list = TbsCertList {
        version: x509_cert::Version::V2,
        signature: algorithm_of.signature_algorithm.clone(),
        issuer: issuer.tbs_certificate.subject.clone(),
        this_update: time(now.0 - 86_400),
        next_update: Some(time(now.0 + 86_400)),
        revoked_certificates: (!entries.is_empty()).then_some(entries),
        crl_extensions: None,
    };
    let signature = BitString::from_bytes(&sign(&list.to_der().unwrap())).unwrap();
    CertificateList { signature_algorithm: list.signature.clone(), tbs_cert_list: list, signature }
}

pub(super) fn time(seconds: u64) -> Time {
    let since = std::time::Duration::from_secs(seconds);
    Time::UtcTime(UtcTime::from_unix_duration(since).unwrap())
}

pub(super) fn serial(number: u8) -> SerialNumber {
    SerialNumber::new(&[number]).unwrap()
}
