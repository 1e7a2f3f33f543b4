//! Evidence: what an attester sends to a verifier, and its encoding.

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;
use crate::tee::Tee;

/// Most bytes of encoded evidence.
pub const MAX_EVIDENCE: usize = 64 << 10;
/// Most certificates that go with a report.
const MAX_CERTIFICATES: usize = 4;
/// First bytes of the encoding, which distinguish a file with evidence from others.
const MAGIC: [u8; 4] = *b"P4EV";
/// Version of the encoding.
const VERSION: u8 = 1;

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CertificateKind {
    /// AMD's key of one chip and TCB (VCEK).
    Vcek,
    /// AMD's key for a cloud provider (VLEK).
    Vlek,
    /// The authority that issued the VLEK (ASVK).
    Asvk,
}

/// A certificate that goes with a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceCertificate {
    /// What it is for.
    pub kind: CertificateKind,
    /// The certificate in DER.
    pub der: Vec<u8>,
}

/// Evidence about a machine: a report that its hardware signed, and what comes with it. Nothing in it is
/// trusted before a [`Verifier`](crate::Verifier) has accepted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The kind of TEE that the evidence claims to be of.
    pub tee: Tee,
    /// The report (SEV-SNP), quote (TDX) or sample.
    pub report: Vec<u8>,
    /// Certificates for SEV-SNP.
    pub certificates: Vec<EvidenceCertificate>,
}

#[derive(Serialize, Deserialize)]
struct Encoded {
    magic: [u8; 4],
    version: u8,
    tee: Tee,
    report: Vec<u8>,
    certificates: Vec<EvidenceCertificate>,
}

/// Reason why evidence cannot be encoded.
#[derive(Debug, thiserror::Error)]
#[error(
    "evidence of {bytes} bytes and {certificates} certificates exceeds {MAX_EVIDENCE} and {MAX_CERTIFICATES}"
)]
pub struct EvidenceTooLong {
    bytes: usize,
    certificates: usize,
}

impl Evidence {
    /// Encodes it.
    ///
    /// # Errors
    ///
    /// It is longer than a verifier accepts.
    pub fn encode(&self) -> Result<Vec<u8>, EvidenceTooLong> {
        let Self { tee, report, certificates } = self.clone();
        let number = certificates.len();
        let encoded = Encoded { magic: MAGIC, version: VERSION, tee, report, certificates };
        let bytes = postcard::to_stdvec(&encoded).unwrap_or_default();
        if bytes.is_empty() || bytes.len() > MAX_EVIDENCE || number > MAX_CERTIFICATES {
            return Err(EvidenceTooLong { bytes: bytes.len(), certificates: number });
        }
        Ok(bytes)
    }

    /// Decodes evidence of at most [`MAX_EVIDENCE`] bytes. Each evidence has one encoding, and no other bytes
    /// decode to it. Entry point of fuzzing.
    ///
    /// # Errors
    ///
    /// The bytes are not exactly one evidence.
    pub fn decode(bytes: &[u8]) -> Result<Self, Refusal> {
        if bytes.len() > MAX_EVIDENCE {
            return Err(Refusal::malformed(format!("it has more than {MAX_EVIDENCE} bytes")));
        }
        if !bytes.starts_with(&MAGIC) {
            return Err(Refusal::malformed("it does not begin with \"P4EV\""));
        }
        if bytes.get(MAGIC.len()) != Some(&VERSION) {
            return Err(Refusal::malformed(format!("its encoding is not version {VERSION}")));
        }
        let Ok((encoded, [])) = postcard::take_from_bytes::<Encoded>(bytes) else {
            return Err(Refusal::malformed("it is cut off, or bytes are left over"));
        };
        if encoded.certificates.len() > MAX_CERTIFICATES {
            return Err(Refusal::malformed(format!("it has more than {MAX_CERTIFICATES} certificates")));
        }
        if postcard::to_stdvec(&encoded).ok().as_deref() != Some(bytes) {
            return Err(Refusal::malformed("it is not in the shortest encoding"));
        }
        let Encoded { tee, report, certificates, .. } = encoded;
        Ok(Self { tee, report, certificates })
    }

    /// Returns the certificate of a kind.
    pub(crate) fn certificate(&self, kind: CertificateKind) -> Result<Option<&[u8]>, Refusal> {
        let mut found = self.certificates.iter().filter(|c| c.kind == kind);
        match (found.next(), found.next()) {
            (_, Some(_)) => Err(Refusal::malformed("it has two certificates of a kind")),
            (first, None) => Ok(first.map(|c| c.der.as_slice())),
        }
    }
}
