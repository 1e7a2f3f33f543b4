//! Sample evidence, for machines without a TEE. It proves nothing: whoever made it can make any other.

use crate::appraise::Appraise;
use crate::attester::{AttestError, Attester};
use crate::claims::{Attested, Claims};
use crate::evidence::Evidence;
use crate::refusal::Refusal;
use crate::tee::{ReportData, Tee, UnixSeconds};

/// First bytes of a sample, which say what it is to a reader of the file.
const HEADER: &[u8; 29] = b"p4shield sample: not attested";

/// Makes samples. Only an operator's explicit choice creates one; no detection returns it.
#[derive(Clone, Copy, Debug)]
pub struct SampleAttester;

impl Attester for SampleAttester {
    fn tee(&self) -> Tee {
        Tee::Sample
    }

    fn evidence(&self, report_data: &ReportData) -> Result<Evidence, AttestError> {
        let report = [HEADER.as_slice(), report_data.as_bytes()].concat();
        Ok(Evidence { tee: Tee::Sample, report, certificates: Vec::new() })
    }
}

/// Returns the report data of a sample.
pub(crate) fn report_data(report: &[u8]) -> Option<ReportData> {
    let data = report.strip_prefix(HEADER)?;
    Some(ReportData::new(data.try_into().ok()?))
}

/// Accepts samples, for a policy that names them.
#[derive(Debug)]
pub(crate) struct Sample;

impl Appraise for Sample {
    fn appraise(
        &self,
        evidence: &Evidence,
        expected: &ReportData,
        _: UnixSeconds,
    ) -> Result<Claims, Refusal> {
        if !evidence.certificates.is_empty() {
            return Err(Refusal::malformed("a sample has no certificates"));
        }
        let data = report_data(&evidence.report).ok_or_else(|| Refusal::malformed("it is not a sample"))?;
        if data != *expected {
            return Err(Refusal::OtherBinding);
        }
        Ok(Claims {
            attested: Attested::No,
            measurement: Vec::new(),
            host_data: Vec::new(),
            tcb: String::new(),
        })
    }
}
