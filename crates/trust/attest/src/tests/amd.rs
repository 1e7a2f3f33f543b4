//! A hierarchy like AMD's, whose keys the tests have.

use std::sync::OnceLock;

use p384::ecdsa::signature::Signer;
use p384::ecdsa::{Signature, SigningKey};
use rsa::RsaPrivateKey;
use rsa::sha2::Sha384;
use rsa::signature::{RandomizedSigner, SignatureEncoding};
use sev::firmware::guest::AttestationReport;
use sev::parser::ByteParser;
use x509_cert::Certificate as X509;
use x509_cert::TbsCertificate;
use x509_cert::crl::CertificateList;
use x509_cert::der::asn1::{BitString, OctetString};
use x509_cert::der::{Decode, DecodePem, Encode};
use x509_cert::spki::{ObjectIdentifier, SubjectPublicKeyInfoOwned};

use super::genuine::{at, data, milan_report};
use super::hierarchy::{Repeatable, certificate, revocation_list, serial};
use crate::UnixSeconds;
use crate::evidence::{CertificateKind, Evidence, EvidenceCertificate};
use crate::snp::certificate::Certificate;
use crate::snp::chain::{Product, Root, Roots};
use crate::tee::Tee;

/// Keys and certificates in the place of AMD's for Milan.
pub(super) struct Amd {
    root_key: RsaPrivateKey,
    authority_key: RsaPrivateKey,
    chip_key: SigningKey,
    pub(super) root: X509,
    pub(super) authority: X509,
}

/// The certificates and lists are made for this time.
pub(super) const NOW: &str = "2025-07-01T00:00:00Z";

pub(super) fn amd() -> &'static Amd {
    static AMD: OnceLock<Amd> = OnceLock::new();
    AMD.get_or_init(|| {
        let mut random = Repeatable(1);
        let root_key = RsaPrivateKey::new(&mut random, 2048).unwrap();
        let authority_key = RsaPrivateKey::new(&mut random, 2048).unwrap();
        let chip_key = SigningKey::random(&mut random);
        let genuine = |pem: &[u8]| X509::from_pem(pem).unwrap();
        let builtin_root = genuine(sev::certs::snp::builtin::milan::ARK);
        let builtin_authority = genuine(sev::certs::snp::builtin::milan::ASK);
        let by_root = |message: &[u8]| sign(&root_key, message);
        let root = certificate(&builtin_root, |tbs| set_key(tbs, &root_key), by_root);
        let authority = certificate(&builtin_authority, |tbs| set_key(tbs, &authority_key), by_root);
        Amd { root_key, authority_key, chip_key, root, authority }
    })
}

fn sign(key: &RsaPrivateKey, message: &[u8]) -> Vec<u8> {
    let key = rsa::pss::SigningKey::<Sha384>::new(key.clone());
    key.sign_with_rng(&mut Repeatable(2), message).to_vec()
}

fn set_key(tbs: &mut TbsCertificate, key: &RsaPrivateKey) {
    tbs.subject_public_key_info = SubjectPublicKeyInfoOwned::from_key(key.to_public_key()).unwrap();
}

/// Sets the value of one of AMD's extensions.
pub(super) fn set_extension(tbs: &mut TbsCertificate, oid: &str, value: &[u8]) {
    let oid = ObjectIdentifier::new(oid).unwrap();
    let extensions = tbs.extensions.as_mut().unwrap();
    let extension = extensions.iter_mut().find(|e| e.extn_id == oid).unwrap();
    extension.extn_value = OctetString::new(value).unwrap();
}

/// Sets the common name of a name.
pub(super) fn rename(name: &mut x509_cert::name::Name, from: &str, to: &str) {
    let text = name.to_string();
    assert!(text.contains(from), "{text}");
    *name = text.replace(from, to).parse().unwrap();
}

pub(super) fn of(x509: &X509) -> Certificate {
    Certificate::from_der(&x509.to_der().unwrap(), "certificate of a test").unwrap()
}

impl Amd {
    pub(super) fn roots(&self) -> Roots {
        let (root, authority) = (of(&self.root), of(&self.authority));
        Roots::of_test(Root { product: Product::Milan, root, authority })
    }

    /// Issues the authority's certificate anew.
    pub(super) fn authority(&self, edit: impl FnOnce(&mut TbsCertificate)) -> X509 {
        certificate(&self.authority, edit, |message| sign(&self.root_key, message))
    }

    /// Issues the certificate of a chip's key: a copy of the genuine one of the genuine report's chip.
    pub(super) fn vcek(&self, edit: impl FnOnce(&mut TbsCertificate)) -> X509 {
        let genuine = X509::from_der(&data("vcek_milan.der")).unwrap();
        let edit = |tbs: &mut TbsCertificate| {
            let point = self.chip_key.verifying_key().to_encoded_point(false);
            tbs.subject_public_key_info.subject_public_key = BitString::from_bytes(point.as_bytes()).unwrap();
            edit(tbs);
        };
        certificate(&genuine, edit, |message| sign(&self.authority_key, message))
    }

    /// Signs a copy of the genuine report.
    pub(super) fn report(&self, edit: impl FnOnce(&mut AttestationReport)) -> Vec<u8> {
        let mut report = AttestationReport::from_bytes(&milan_report()).unwrap();
        edit(&mut report);
        let mut bytes = report.to_bytes().unwrap().to_vec();
        let signature: Signature = self.chip_key.sign(&bytes[..0x2a0]);
        let (r, s) = signature.split_bytes();
        bytes[0x2a0..].fill(0);
        for (place, number) in [(0x2a0, r), (0x2a0 + 72, s)] {
            bytes[place..place + 48].copy_from_slice(&number);
            bytes[place..place + 48].reverse();
        }
        bytes
    }

    pub(super) fn evidence(&self, report: Vec<u8>, vcek: &X509) -> Evidence {
        let der = vcek.to_der().unwrap();
        let certificates = vec![EvidenceCertificate { kind: CertificateKind::Vcek, der }];
        Evidence { tee: Tee::SevSnp, report, certificates }
    }

    /// The root's revocation list.
    pub(super) fn root_list(&self, revoked: &[&X509]) -> CertificateList {
        self.root_list_of(revoked, at(NOW))
    }

    /// The root's revocation list of another time.
    pub(super) fn root_list_of(&self, revoked: &[&X509], issued: UnixSeconds) -> CertificateList {
        let by_root = |message: &[u8]| sign(&self.root_key, message);
        revocation_list(&self.root, &self.authority, revoked, issued, by_root)
    }

    /// The authority's revocation list.
    pub(super) fn authority_list(&self, revoked: &[&X509]) -> CertificateList {
        let by_authority = |message: &[u8]| sign(&self.authority_key, message);
        revocation_list(&self.authority, &self.authority, revoked, at(NOW), by_authority)
    }

    /// A list with the root's name that another key signed.
    pub(super) fn forged_root_list(&self) -> CertificateList {
        let by_authority = |message: &[u8]| sign(&self.authority_key, message);
        revocation_list(&self.root, &self.authority, &[], at(NOW), by_authority)
    }

    /// A key of a cloud provider (VLEK) and the authority (ASVK) that issued it. The key is the chip's.
    pub(super) fn vlek(&self) -> (X509, X509) {
        let asvk = self.authority(|tbs| {
            rename(&mut tbs.subject, "SEV-Milan", "SEV-VLEK-Milan");
            tbs.serial_number = serial(9);
        });
        let vlek = self.vcek(|tbs| {
            rename(&mut tbs.subject, "SEV-VCEK", "SEV-VLEK");
            tbs.issuer = asvk.tbs_certificate.subject.clone();
        });
        (vlek, asvk)
    }
}
