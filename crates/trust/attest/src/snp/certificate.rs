//! A certificate of AMD's hierarchy, and the extensions that name a chip and its TCB.

use std::fmt;

use sev::certs::snp as sevsnp;
use sev::certs::snp::Verifiable;
use x509_cert::Certificate as X509;
use x509_cert::der::asn1::OctetStringRef;
use x509_cert::der::{Decode, Encode};
use x509_cert::spki::ObjectIdentifier;

use crate::refusal::Refusal;
use crate::tee::UnixSeconds;

/// AMD's extensions: the security version of a component, of which the next number names one.
const TCB: &str = "1.3.6.1.4.1.3704.1.3.";
/// AMD's extension with the number of a chip.
const HARDWARE_ID: &str = "1.3.6.1.4.1.3704.1.4";
/// The common name in X.509.
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// The security versions that a certificate names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CertifiedTcb {
    pub(crate) bootloader: u8,
    pub(crate) tee: u8,
    pub(crate) snp: u8,
    pub(crate) microcode: u8,
    /// Only chips from Turin on have one.
    pub(crate) fmc: Option<u8>,
}

impl fmt::Display for CertifiedTcb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bootloader, tee, snp, microcode, fmc } = self;
        write!(f, "bootloader {bootloader}, TEE {tee}, SNP {snp}, microcode {microcode}")?;
        fmc.map_or(Ok(()), |fmc| write!(f, ", FMC {fmc}"))
    }
}

/// A certificate in its one encoding.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    x509: X509,
    sev: sevsnp::Certificate,
    name: String,
}

impl Certificate {
    /// Reads a certificate in DER. `what` names it in a refusal.
    pub(crate) fn from_der(der: &[u8], what: &str) -> Result<Self, Refusal> {
        let x509 = X509::from_der(der)
            .map_err(|e| Refusal::malformed(format!("the {what} is no certificate: {e}")))?;
        // `sev` verifies the signature of what it encodes again, so anything else would be without a
        // signature.
        if x509.to_der().ok().as_deref() != Some(der)
            || x509.signature_algorithm != x509.tbs_certificate.signature
        {
            return Err(Refusal::malformed(format!("the {what} is not in its only encoding")));
        }
        let name = common_name(&x509.tbs_certificate.subject);
        Ok(Self { sev: x509.clone().into(), x509, name })
    }

    /// Reads a certificate in PEM or DER.
    pub(crate) fn from_file(bytes: &[u8], what: &str) -> Result<Self, Refusal> {
        use x509_cert::der::DecodePem;
        if !bytes.starts_with(b"-----BEGIN") {
            return Self::from_der(bytes, what);
        }
        let x509 = X509::from_pem(bytes).ok().and_then(|c| c.to_der().ok());
        Self::from_der(&x509.unwrap_or_default(), what)
    }

    /// Returns the common name of its subject.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the common name of its issuer.
    pub(crate) fn issuer_name(&self) -> String {
        common_name(&self.x509.tbs_certificate.issuer)
    }

    pub(crate) fn x509(&self) -> &X509 {
        &self.x509
    }

    /// The form that `sev` verifies with.
    pub(crate) fn as_sev(&self) -> &sevsnp::Certificate {
        &self.sev
    }

    /// Returns whether this is the certificate of a VCEK or VLEK.
    pub(crate) fn certifies(&self, key: &str) -> bool {
        self.name.strip_prefix("SEV-") == Some(key)
    }

    /// Verifies that `issuer` issued this certificate.
    pub(crate) fn verify_issued_by(&self, issuer: &Self) -> Result<(), String> {
        if self.x509.tbs_certificate.issuer != issuer.x509.tbs_certificate.subject {
            return Err(format!("its issuer is {}, not {}", self.issuer_name(), issuer.name));
        }
        let signed = (issuer.as_sev(), self.as_sev()).verify();
        signed.map_err(|_| format!("{} did not sign it", issuer.name))
    }

    /// Checks the time of its validity.
    pub(crate) fn check_validity(&self, now: UnixSeconds) -> Result<(), Refusal> {
        let validity = &self.x509.tbs_certificate.validity;
        let begin = UnixSeconds(validity.not_before.to_unix_duration().as_secs());
        let end = UnixSeconds(validity.not_after.to_unix_duration().as_secs());
        check_period(&format!("certificate {}", self.name), begin, Some(end), now)
    }

    fn extension(&self, oid: &str) -> Option<&[u8]> {
        let oid = ObjectIdentifier::new(oid).ok()?;
        let extensions = self.x509.tbs_certificate.extensions.as_ref()?;
        let mut found = extensions.iter().filter(|e| e.extn_id == oid);
        let value = found.next()?.extn_value.as_bytes();
        // An extension that stands there twice says nothing.
        found.next().is_none().then_some(value)
    }

    fn version(&self, component: u8) -> Option<u8> {
        u8::from_der(self.extension(&format!("{TCB}{component}"))?).ok()
    }

    /// Returns the security versions that the key is derived from.
    pub(crate) fn tcb(&self) -> Option<CertifiedTcb> {
        Some(CertifiedTcb {
            bootloader: self.version(1)?,
            tee: self.version(2)?,
            snp: self.version(3)?,
            microcode: self.version(8)?,
            fmc: self.version(9),
        })
    }

    /// Returns the number of the chip; a VLEK has none.
    pub(crate) fn hardware_id(&self) -> Option<&[u8]> {
        let value = self.extension(HARDWARE_ID)?;
        // The value is the number itself, or an octet string with it.
        match OctetStringRef::from_der(value) {
            Ok(inner) if value.len() != 64 => Some(inner.as_bytes()),
            _ => Some(value),
        }
    }
}

fn common_name(name: &x509_cert::name::Name) -> String {
    let mut attributes = name.0.iter().flat_map(|rdn| rdn.0.iter());
    let value = attributes.find(|a| a.oid == COMMON_NAME).map(|a| a.value.value());
    String::from_utf8_lossy(value.unwrap_or_default()).into_owned()
}

/// Checks that `now` is within a period, both ends included.
pub(crate) fn check_period(
    what: &str,
    begin: UnixSeconds,
    end: Option<UnixSeconds>,
    now: UnixSeconds,
) -> Result<(), Refusal> {
    if now < begin {
        return Err(Refusal::NotYetValid { what: what.to_owned(), begin });
    }
    match end {
        Some(end) if now > end => Err(Refusal::Expired { what: what.to_owned(), end }),
        _ => Ok(()),
    }
}
