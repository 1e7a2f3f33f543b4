//! Revocation lists of AMD.

use rsa::pss::{Signature, VerifyingKey};
use rsa::sha2::Sha384;
use rsa::signature::Verifier;
use x509_cert::crl::CertificateList;
use x509_cert::der::referenced::OwnedToRef;
use x509_cert::der::{Decode, Encode};
use x509_cert::spki::ObjectIdentifier;

use super::certificate::{Certificate, check_period};
use crate::refusal::Refusal;
use crate::tee::UnixSeconds;

/// The algorithm RSASSA-PSS, with which AMD signs.
const RSA_PSS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.10");
/// Extensions of a list that do not change what its entries mean: its number, and its issuer's key.
const KNOWN: [ObjectIdentifier; 2] =
    [ObjectIdentifier::new_unwrap("2.5.29.20"), ObjectIdentifier::new_unwrap("2.5.29.35")];

/// A list of the certificates that an issuer revoked.
#[derive(Clone, Debug)]
pub(crate) struct RevocationList(CertificateList);

impl RevocationList {
    /// Reads a list in DER, as AMD publishes it.
    pub(crate) fn from_file(bytes: &[u8]) -> Result<Self, String> {
        CertificateList::from_der(bytes).map(Self).map_err(|e| {
            format!("it is no revocation list in DER ({e}); convert one in PEM with openssl crl -outform der")
        })
    }

    /// Returns whether the list names this issuer.
    pub(crate) fn is_of(&self, issuer: &Certificate) -> bool {
        self.0.tbs_cert_list.issuer == issuer.x509().tbs_certificate.subject
    }

    /// Returns when the issuer made the list.
    pub(crate) fn issued(&self) -> UnixSeconds {
        UnixSeconds(self.0.tbs_cert_list.this_update.to_unix_duration().as_secs())
    }

    /// Verifies that `issuer` signed the list, that it is current, and that it names none of `certificates`,
    /// which the same issuer issued.
    pub(crate) fn check(
        &self,
        issuer: &Certificate,
        certificates: &[&Certificate],
        now: UnixSeconds,
    ) -> Result<(), Refusal> {
        let what = format!("revocation list of {}", issuer.name());
        let list = &self.0.tbs_cert_list;
        if !self.is_signed_by(issuer) {
            return Err(Refusal::Signature { what: "revocation list" });
        }
        let Some(end) = list.next_update else {
            return Err(Refusal::malformed(format!("the {what} does not say until when it is valid")));
        };
        check_period(&what, self.issued(), Some(UnixSeconds(end.to_unix_duration().as_secs())), now)?;
        let extensions = list.crl_extensions.iter().flatten();
        if extensions.clone().any(|e| e.critical && !KNOWN.contains(&e.extn_id)) {
            return Err(Refusal::malformed(format!("the {what} has an unknown critical extension")));
        }
        let revoked = |c: &&&Certificate| {
            let serial = &c.x509().tbs_certificate.serial_number;
            list.revoked_certificates.iter().flatten().any(|entry| entry.serial_number == *serial)
        };
        match certificates.iter().find(revoked) {
            Some(certificate) => {
                Err(Refusal::Revoked { certificate: format!("certificate {}", certificate.name()) })
            }
            None => Ok(()),
        }
    }

    fn is_signed_by(&self, issuer: &Certificate) -> bool {
        let list = &self.0;
        if list.signature_algorithm != list.tbs_cert_list.signature || list.signature_algorithm.oid != RSA_PSS
        {
            return false;
        }
        let key = issuer.x509().tbs_certificate.subject_public_key_info.owned_to_ref();
        let (Ok(key), Ok(signature), Ok(signed)) = (
            rsa::RsaPublicKey::try_from(key),
            Signature::try_from(list.signature.raw_bytes()),
            list.tbs_cert_list.to_der(),
        ) else {
            return false;
        };
        VerifyingKey::<Sha384>::new(key).verify(&signed, &signature).is_ok()
    }
}
