//! What each kind of TEE implements for the verifier.

use std::fmt::Debug;

use crate::claims::Claims;
use crate::evidence::Evidence;
use crate::refusal::Refusal;
use crate::tee::{ReportData, UnixSeconds};

/// Appraises evidence of one kind of TEE against a policy.
pub(crate) trait Appraise: Debug + Send + Sync {
    /// Accepts evidence that is genuine, bound to `expected`, and as the policy requires at the time `now`.
    fn appraise(
        &self,
        evidence: &Evidence,
        expected: &ReportData,
        now: UnixSeconds,
    ) -> Result<Claims, Refusal>;
}
