//! The tenant's attestation policy, as the handshake asks it.

use std::path::Path;
use std::sync::Arc;

use p4shield_attest::{Attested, Policy, ReportData, UnixSeconds, Verifier};
use p4shield_handshake::{Judge, JudgeError, Judgement};

use crate::error::AgentError;

/// Judges a P4 VM's evidence.
pub(super) struct PolicyJudge {
    verifier: Verifier,
    accepts_samples: bool,
}

impl PolicyJudge {
    /// Reads a policy and the files that it names.
    pub(super) fn load(path: &Path) -> Result<Self, AgentError> {
        let policy = Policy::load(path)?;
        Ok(Self { verifier: Verifier::new(&policy)?, accepts_samples: policy.accepts_samples() })
    }

    /// Whether the policy accepts a P4 VM that no hardware attests.
    pub(super) const fn accepts_samples(&self) -> bool {
        self.accepts_samples
    }
}

impl From<PolicyJudge> for Arc<dyn Judge> {
    fn from(judge: PolicyJudge) -> Self {
        Arc::new(judge)
    }
}

impl Judge for PolicyJudge {
    fn judge(&self, evidence: &[u8], report_data: &[u8; 64], unix_s: u64) -> Result<Judgement, JudgeError> {
        let verified = self.verifier.verify(evidence, &ReportData::new(*report_data), UnixSeconds(unix_s));
        let claims = verified.map_err(|refusal| JudgeError(refusal.to_string()))?;
        Ok(match claims.attested {
            Attested::By(_) => Judgement::Attested(claims.to_string()),
            Attested::No => Judgement::NotAttested,
        })
    }
}
