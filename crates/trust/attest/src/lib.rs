//! Evidence of trusted execution environments (TEEs), and the policies that it is verified against.
//!
//! The words are those of RFC 9334 (RATS). An *attester* runs in a machine and has its hardware sign a
//! report. A *verifier* elsewhere appraises this *evidence* against its *policy*, and states *claims*, or a
//! [`Refusal`].
//!
//! * [`Attester`]: [`ConfigfsTsm`] asks the kernel, for SEV-SNP and TDX; [`SampleAttester`] is for machines
//!   without a TEE, and never chosen by itself.
//! * [`Evidence`]: a report with its certificates, in a bounded encoding of its own.
//! * [`Policy`]: a TOML file; [`Policy::explain`] says in plain words what it demands and what it leaves
//!   open.
//! * [`Verifier`]: a policy with its files. It has no network and no clock: certificates, revocation lists
//!   and collateral are files, and the time is an argument.
//! * [`ReportData`]: what a report is bound to. The caller computes it on both sides.
//!
//! Each kind of TEE is a module behind the trait `Appraise`: `snp`, `tdx`, `sample`. The roots of AMD and
//! Intel are part of this crate; no policy, argument or environment variable adds another.
//!
//! The outcome of a sample is [`Attested::No`], whose text is "not attested".

#![forbid(unsafe_code)]

mod appraise;
mod attester;
mod claims;
mod configfs;
mod evidence;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod policy;
mod refusal;
mod sample;
mod snp;
mod tdx;
mod tee;
mod verifier;

pub use attester::{AttestError, Attester};
pub use claims::{Attested, Claims};
pub use configfs::{CONFIGFS, ConfigfsTsm};
pub use evidence::{CertificateKind, Evidence, EvidenceCertificate, EvidenceTooLong, MAX_EVIDENCE};
pub use policy::{MAX_POLICY, Policy, PolicyError, Problem, Statement, Weight};
pub use refusal::Refusal;
pub use sample::SampleAttester;
pub use tee::{ReportData, ReportDataError, Tee, TimeError, UnixSeconds};
pub use verifier::{Verifier, claimed_report_data};

#[cfg(test)]
mod tests;
