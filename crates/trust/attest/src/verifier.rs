//! The verifier: a policy with everything that evidence is verified with.

use std::io::Read;
use std::path::Path;

use crate::appraise::Appraise;
use crate::claims::Claims;
use crate::evidence::Evidence;
use crate::policy::{Policy, PolicyError};
use crate::refusal::Refusal;
use crate::sample::{self, Sample};
use crate::snp::certificate::Certificate;
use crate::snp::chain::Roots;
use crate::snp::{self, RevocationList, SevSnp};
use crate::tdx::{self, Collateral, Tdx, TdxRoot};
use crate::tee::{ReportData, Tee, UnixSeconds};

/// Most bytes of a file that a policy names.
const MAX_FILE: u64 = 8 << 20;

/// Verifies evidence against one policy, without network and without clock. It trusts the roots of AMD and
/// Intel that are part of this version, and no other.
#[derive(Debug)]
pub struct Verifier {
    appraisers: Vec<(Tee, Box<dyn Appraise>)>,
}

impl Verifier {
    /// Reads the files that a policy names: revocation lists, certificates, collateral.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or is not what the policy says.
    pub fn new(policy: &Policy) -> Result<Self, PolicyError> {
        let mut appraisers: Vec<(Tee, Box<dyn Appraise>)> = Vec::new();
        if let Some(snp) = &policy.sev_snp {
            let roots = Roots::of_amd().map_err(|e| unusable(Path::new("AMD's roots"), e.to_string()))?;
            appraisers.push((Tee::SevSnp, Box::new(sev_snp(snp, roots)?)));
        }
        if let Some(policy) = &policy.tdx {
            appraisers.push((Tee::Tdx, Box::new(of_tdx(policy, TdxRoot::of_intel())?)));
        }
        if policy.sample {
            appraisers.push((Tee::Sample, Box::new(Sample)));
        }
        Ok(Self { appraisers })
    }

    /// Verifies encoded evidence, which has to be bound to `expected`, at the time `now`.
    ///
    /// # Errors
    ///
    /// The evidence is refused.
    pub fn verify(
        &self,
        evidence: &[u8],
        expected: &ReportData,
        now: UnixSeconds,
    ) -> Result<Claims, Refusal> {
        let evidence = Evidence::decode(evidence)?;
        match self.appraisers.iter().find(|(tee, _)| *tee == evidence.tee) {
            Some((_, appraiser)) => appraiser.appraise(&evidence, expected, now),
            None => Err(Refusal::wrong_tee(evidence.tee, self.accepted())),
        }
    }

    fn accepted(&self) -> String {
        let names: Vec<_> = self.appraisers.iter().map(|(tee, _)| tee.name()).collect();
        names.join(" or ")
    }
}

/// Returns the report data that encoded evidence claims, without verifying anything. For tools that look at
/// stored evidence; a verifier in an exchange computes the report data itself.
///
/// # Errors
///
/// The evidence is malformed.
pub fn claimed_report_data(evidence: &[u8]) -> Result<ReportData, Refusal> {
    let evidence = Evidence::decode(evidence)?;
    let claimed = match evidence.tee {
        Tee::SevSnp => snp::claimed_report_data(&evidence.report),
        Tee::Tdx => tdx::claimed_report_data(&evidence.report),
        Tee::Sample => sample::report_data(&evidence.report),
    };
    claimed.ok_or_else(|| Refusal::malformed(format!("its report is not of {}", evidence.tee)))
}

pub(crate) fn sev_snp(policy: &crate::policy::SevSnpPolicy, roots: Roots) -> Result<SevSnp, PolicyError> {
    let list = |path: &std::path::PathBuf| {
        RevocationList::from_file(&read(path)?).map_err(|why| unusable(path, why))
    };
    let crl = policy.crl.as_ref().map(|paths| paths.iter().map(list).collect()).transpose()?;
    let certificate = |path: &std::path::PathBuf| {
        let name = "certificate in the file";
        Certificate::from_file(&read(path)?, name).map_err(|e| unusable(path, e.to_string()))
    };
    let endorsements = policy.endorsements.iter().map(certificate).collect::<Result<_, _>>()?;
    Ok(SevSnp { policy: policy.clone(), roots, crl, endorsements })
}

pub(crate) fn of_tdx(policy: &crate::policy::TdxPolicy, root: TdxRoot) -> Result<Tdx, PolicyError> {
    let collateral =
        |path: &std::path::PathBuf| Collateral::from_file(&read(path)?).map_err(|why| unusable(path, why));
    let collateral = policy.collateral.iter().map(collateral).collect::<Result<_, _>>()?;
    Ok(Tdx { policy: policy.clone(), root, collateral })
}

fn read(path: &Path) -> Result<Vec<u8>, PolicyError> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes))
        .map_err(|source| PolicyError::Read { file: path.to_owned(), source })?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(unusable(path, format!("it has more than {} MiB", MAX_FILE >> 20)));
    }
    Ok(bytes)
}

fn unusable(path: &Path, why: String) -> PolicyError {
    PolicyError::Endorsement { file: path.to_owned(), why }
}
