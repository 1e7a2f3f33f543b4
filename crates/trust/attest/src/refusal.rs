//! Refusals: why a verifier does not accept evidence.

use crate::tee::{Tee, UnixSeconds};

/// Reason why a verifier refuses evidence, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The bytes are no evidence.
    #[error("the evidence is malformed: {0}; request it again from an attester of this version")]
    Malformed(String),
    /// The policy accepts other TEEs.
    #[error("the evidence is of {found}; the policy accepts {accepted}: run the machine on such hardware")]
    WrongTee {
        /// What the evidence is of.
        found: String,
        /// What the policy accepts.
        accepted: String,
    },
    /// A sample where the policy demands a TEE.
    #[error(
        "the evidence is a sample, which is not attested, and the policy demands {accepted}: run the machine \
         on such hardware; `sample = true` in the policy gives up attestation"
    )]
    DowngradeToSample {
        /// What the policy accepts.
        accepted: String,
    },
    /// No certificate for the key that signed the report.
    #[error(
        "no certificate of the {key} that signed the report is at hand: configure the host to pass its \
         certificates on, or fetch it from AMD's key distribution service and name it in the policy \
         (sev-snp.endorsements)"
    )]
    NoCertificate {
        /// VCEK or VLEK.
        key: &'static str,
    },
    /// A key of a kind that the policy does not accept.
    #[error("the report is signed with {found}: {remedy}")]
    SigningKey {
        /// The kind of key.
        found: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A certificate does not lead to the manufacturer's root.
    #[error("the {certificate} does not lead to {root}: {why}; the evidence is forged or damaged")]
    Chain {
        /// The certificate.
        certificate: String,
        /// The root that this version contains.
        root: &'static str,
        /// What is wrong.
        why: String,
    },
    /// The time of verification is after the end of validity.
    #[error("the {what} expired at {end}: fetch a current one, and check the verifier's clock")]
    Expired {
        /// The certificate, list or collateral.
        what: String,
        /// The end of its validity.
        end: UnixSeconds,
    },
    /// The time of verification is before the beginning of validity.
    #[error("the {what} is not valid before {begin}: check the verifier's clock")]
    NotYetValid {
        /// The certificate, list or collateral.
        what: String,
        /// The beginning of its validity.
        begin: UnixSeconds,
    },
    /// The manufacturer revoked a certificate.
    #[error("the manufacturer revoked the {certificate}: this machine's reports prove nothing any more")]
    Revoked {
        /// The certificate.
        certificate: String,
    },
    /// The policy names no usable revocation list of an issuer.
    #[error(
        "no revocation list of {issuer} is at hand: fetch it from AMD's key distribution service and name it \
         in the policy (sev-snp.crl)"
    )]
    NoRevocationList {
        /// The issuer.
        issuer: String,
    },
    /// The policy names no collateral of the platform.
    #[error(
        "no collateral of platform {fmspc} is at hand: fetch it from Intel or a PCCS and name it in the \
         policy (tdx.collateral)"
    )]
    NoCollateral {
        /// The platform's family, model and stepping.
        fmspc: String,
    },
    /// A signature is wrong.
    #[error("the signature of the {what} is wrong: the evidence is forged or damaged")]
    Signature {
        /// What is signed.
        what: &'static str,
    },
    /// Intel's rules for quotes, certificates and collateral are not met.
    #[error("the quote does not verify: {0}; the evidence or the collateral is forged or damaged")]
    Quote(String),
    /// The report is of another exchange.
    #[error(
        "the report is bound to something else: a stale nonce, another key, or another tenant; it is \
         replayed or relayed from another machine"
    )]
    OtherBinding,
    /// The certificate is of another chip or of other firmware than the report.
    #[error("the {field} of the report is {found}, of the certificate {certified}: they are of two machines")]
    OtherChip {
        /// What differs.
        field: &'static str,
        /// In the report.
        found: String,
        /// In the certificate.
        certified: String,
    },
    /// The software of the machine is another.
    #[error(
        "{register} is {found}, which the policy does not list: the machine started other software; compare \
         the image, or add its measurement to the policy"
    )]
    Measurement {
        /// The register.
        register: &'static str,
        /// Its value.
        found: String,
    },
    /// What the host bound to the machine at launch is something else.
    #[error(
        "{field} is {found}, which the policy does not list: the host started the machine with another \
         configuration"
    )]
    HostData {
        /// The field.
        field: &'static str,
        /// Its value.
        found: String,
    },
    /// An identity that the policy lists is another.
    #[error("{field} is {found}, which the policy does not list: the image is of another origin")]
    Identity {
        /// The field.
        field: &'static str,
        /// Its value.
        found: String,
    },
    /// The host may read the machine's memory.
    #[error("the machine was started for debugging ({0}), so the host can read its memory: start it without")]
    Debug(&'static str),
    /// The machine may move to another host.
    #[error(
        "the machine may migrate ({0}), so its memory may leave this host: start it without a migration agent"
    )]
    Migration(&'static str),
    /// The firmware of the host is too old.
    #[error("{component} is {found}; the policy demands {minimum} or newer: update the host's firmware")]
    OldTcb {
        /// The component of the trusted computing base.
        component: String,
        /// Its version.
        found: String,
        /// The policy's minimum.
        minimum: String,
    },
    /// Intel's judgement of the platform is one that the policy does not accept.
    #[error(
        "the platform's TCB status is {status} ({advisories}); the policy accepts {accepted}: update the host"
    )]
    TcbStatus {
        /// The status.
        status: String,
        /// Intel's advisories.
        advisories: String,
        /// What the policy accepts.
        accepted: String,
    },
    /// A property of the machine that the policy forbids.
    #[error("{property}, which the policy forbids: {remedy}")]
    Property {
        /// The property.
        property: String,
        /// What to do.
        remedy: &'static str,
    },
}

impl Refusal {
    pub(crate) fn malformed(why: impl Into<String>) -> Self {
        Self::Malformed(why.into())
    }

    pub(crate) fn wrong_tee(found: Tee, accepted: String) -> Self {
        match found {
            Tee::Sample => Self::DowngradeToSample { accepted },
            _ => Self::WrongTee { found: found.to_string(), accepted },
        }
    }

    /// Returns a word for scripts that does not change.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::WrongTee { .. } => "wrong_tee",
            Self::DowngradeToSample { .. } => "downgrade_to_sample",
            Self::NoCertificate { .. } => "no_certificate",
            Self::SigningKey { .. } => "signing_key",
            Self::Chain { .. } => "chain",
            Self::Expired { .. } => "expired",
            Self::NotYetValid { .. } => "not_yet_valid",
            Self::Revoked { .. } => "revoked",
            Self::NoRevocationList { .. } => "no_revocation_list",
            Self::NoCollateral { .. } => "no_collateral",
            Self::Signature { .. } => "signature",
            Self::Quote(_) => "quote",
            Self::OtherBinding => "other_binding",
            Self::OtherChip { .. } => "other_chip",
            Self::Measurement { .. } => "measurement",
            Self::HostData { .. } => "host_data",
            Self::Identity { .. } => "identity",
            Self::Debug(_) => "debug",
            Self::Migration(_) => "migration",
            Self::OldTcb { .. } => "old_tcb",
            Self::TcbStatus { .. } => "tcb_status",
            Self::Property { .. } => "property",
        }
    }
}
