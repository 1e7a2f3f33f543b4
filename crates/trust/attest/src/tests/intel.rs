//! A hierarchy like Intel's, whose keys the tests have.

use dcap_qvl::quote::{AuthData, Data, Quote, Report, TDReport10};
use dcap_qvl::{QuoteCollateralV3, intel};
use p256::ecdsa::signature::Signer;
use p256::ecdsa::{Signature, SigningKey};
use parity_scale_codec::Encode as _;
use rsa::sha2::{Digest, Sha256};
use x509_cert::Certificate as X509;
use x509_cert::TbsCertificate;
use x509_cert::crl::{CertificateList, RevokedCert};
use x509_cert::der::asn1::BitString;
use x509_cert::der::{Decode, Encode, EncodePem};

use super::genuine::{data, tdx};
use super::hierarchy::certificate;
use crate::evidence::Evidence;
use crate::tdx::TdxRoot;

/// Keys and certificates in the place of Intel's, of the platform of the genuine quote.
pub(super) struct Intel {
    root_key: SigningKey,
    issuer_key: SigningKey,
    platform_key: SigningKey,
    attestation_key: SigningKey,
    collateral_key: SigningKey,
    root: X509,
    pub(super) issuer: X509,
    pub(super) platform: X509,
    collateral_signer: X509,
    genuine: QuoteCollateralV3,
}

fn raw(key: &SigningKey, message: &[u8]) -> Vec<u8> {
    let signature: Signature = key.sign(message);
    signature.to_bytes().to_vec()
}

fn der(key: &SigningKey, message: &[u8]) -> Vec<u8> {
    let signature: Signature = key.sign(message);
    signature.to_der().as_bytes().to_vec()
}

fn public(key: &SigningKey) -> Vec<u8> {
    key.verifying_key().to_sec1_point(false).as_bytes().to_vec()
}

fn issue(
    genuine: &X509,
    key: &SigningKey,
    issuer: &SigningKey,
    edit: impl FnOnce(&mut TbsCertificate),
) -> X509 {
    let edit = |tbs: &mut TbsCertificate| {
        tbs.subject_public_key_info.subject_public_key = BitString::from_bytes(&public(key)).unwrap();
        edit(tbs);
    };
    certificate(genuine, edit, |message| der(issuer, message))
}

fn pem(certificates: &[&X509]) -> String {
    certificates.iter().map(|c| c.to_pem(x509_cert::der::pem::LineEnding::LF).unwrap()).collect()
}

impl Intel {
    /// Makes a hierarchy. `edit` changes the certificate of the platform.
    pub(super) fn with_platform(edit: impl FnOnce(&mut TbsCertificate)) -> Self {
        let key = |n: u8| SigningKey::from_slice(&[n; 32]).unwrap();
        let (root_key, issuer_key, platform_key) = (key(1), key(2), key(3));
        let quote = Quote::parse(&tdx("tdx_quote").report).unwrap();
        let chain = intel::extract_cert_chain(&quote).unwrap();
        let [platform, issuer, root] = [0, 1, 2].map(|n| X509::from_der(&chain[n]).unwrap());
        let genuine: QuoteCollateralV3 = serde_json::from_slice(&data("tdx_quote_collateral.json")).unwrap();
        let signer = &X509::load_pem_chain(genuine.tcb_info_issuer_chain.as_bytes()).unwrap()[0];
        let collateral_key = key(5);
        Self {
            root: issue(&root, &root_key, &root_key, |_| {}),
            issuer: issue(&issuer, &issuer_key, &root_key, |_| {}),
            platform: issue(&platform, &platform_key, &issuer_key, edit),
            collateral_signer: issue(signer, &collateral_key, &root_key, |_| {}),
            attestation_key: key(4),
            collateral_key,
            root_key,
            issuer_key,
            platform_key,
            genuine,
        }
    }

    pub(super) fn new() -> Self {
        Self::with_platform(|_| {})
    }

    pub(super) fn root(&self) -> TdxRoot {
        TdxRoot::of_test(self.root.to_der().unwrap())
    }

    /// Signs a copy of the genuine quote.
    pub(super) fn quote(&self, edit: impl FnOnce(&mut TDReport10)) -> Evidence {
        let genuine = tdx("tdx_quote");
        let mut quote = Quote::parse(&genuine.report).unwrap();
        match &mut quote.report {
            Report::TD10(report) => edit(report),
            other => panic!("the genuine quote has {other:?}"),
        }
        let signed = quote.encode()[..quote.signed_length()].to_vec();
        let AuthData::V4(auth) = &mut quote.auth_data else { panic!("the genuine quote has version 4") };
        auth.ecdsa_attestation_key.copy_from_slice(&public(&self.attestation_key)[1..]);
        auth.ecdsa_signature.copy_from_slice(&raw(&self.attestation_key, &signed));
        let qe = &mut auth.qe_report_data;
        let hash = Sha256::digest([&auth.ecdsa_attestation_key, qe.qe_auth_data.data.as_slice()].concat());
        // The last 64 bytes of the quoting enclave's report are its report data.
        qe.qe_report[320..352].copy_from_slice(&hash);
        qe.qe_report_signature.copy_from_slice(&raw(&self.platform_key, &qe.qe_report));
        let chain = pem(&[&self.platform, &self.issuer, &self.root]);
        qe.certification_data.body = Data::new(chain.into_bytes());
        Evidence { report: quote.encode(), ..genuine }
    }

    /// Signs a copy of the genuine collateral, with an edited TCB info and edited lists of revoked
    /// certificates.
    pub(super) fn collateral(
        &self,
        tcb_info: impl FnOnce(&str) -> String,
        revoked_platforms: &[&X509],
        revoked_issuers: &[&X509],
    ) -> Vec<u8> {
        let genuine = &self.genuine;
        let mut made = genuine.clone();
        let chain = pem(&[&self.collateral_signer, &self.root]);
        (made.tcb_info_issuer_chain, made.qe_identity_issuer_chain) = (chain.clone(), chain);
        made.pck_crl_issuer_chain = pem(&[&self.issuer, &self.root]);
        made.tcb_info = tcb_info(&genuine.tcb_info);
        made.tcb_info_signature = raw(&self.collateral_key, made.tcb_info.as_bytes());
        made.qe_identity_signature = raw(&self.collateral_key, genuine.qe_identity.as_bytes());
        made.pck_crl = list(&genuine.pck_crl, &self.issuer_key, revoked_platforms);
        made.root_ca_crl = list(&genuine.root_ca_crl, &self.root_key, revoked_issuers);
        serde_json::to_vec(&made).unwrap()
    }
}

fn list(genuine: &[u8], key: &SigningKey, revoked: &[&X509]) -> Vec<u8> {
    let mut list = CertificateList::from_der(genuine).unwrap();
    let entry = |certificate: &&X509| RevokedCert {
        serial_number: certificate.tbs_certificate.serial_number.clone(),
        revocation_date: list.tbs_cert_list.this_update,
        crl_entry_extensions: None,
    };
    let entries: Vec<_> = revoked.iter().map(entry).collect();
    list.tbs_cert_list.revoked_certificates = (!entries.is_empty()).then_some(entries);
    let signature = der(key, &list.tbs_cert_list.to_der().unwrap());
    list.signature = BitString::from_bytes(&signature).unwrap();
    list.to_der().unwrap()
}
