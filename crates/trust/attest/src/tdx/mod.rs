//! Intel TDX: quotes and collateral.
//!
//! `dcap-qvl` verifies quotes, certificates, revocation lists and collateral, and judges the TCB. This module
//! adds what the policy demands, refuses bytes of a quote that nothing signs, and finds the reason of a
//! refusal. See the decision `docs/decisions/036-attestation.md`.

mod collateral;
mod quote;

use dcap_qvl::quote::{Report, TDReport10};
use dcap_qvl::verify::QuoteVerifier;
use dcap_qvl::{QuoteClaims, QuotePolicy};

use crate::appraise::Appraise;
use crate::claims::{Attested, Claims};
use crate::evidence::Evidence;
use crate::policy::{Accepted, TdxPolicy};
use crate::refusal::Refusal;
use crate::tee::{Hex, ReportData, Tee, UnixSeconds};

pub(crate) use collateral::Collateral;
use quote::Quote;

/// The root of Intel's certificates for quotes: "Intel SGX Root CA", valid until the end of 2049.
const INTEL_ROOT: &[u8] = include_bytes!("../../roots/intel-sgx-root.der");

/// The root that a verifier trusts. Only [`TdxRoot::of_intel`] makes one, except in the tests of this crate.
#[derive(Clone, Debug)]
pub(crate) struct TdxRoot(Vec<u8>);

impl TdxRoot {
    /// A root whose key a test has.
    #[cfg(test)]
    pub(crate) const fn of_test(der: Vec<u8>) -> Self {
        Self(der)
    }

    pub(crate) fn of_intel() -> Self {
        Self(INTEL_ROOT.to_vec())
    }
}

/// Appraises quotes of TDX.
#[derive(Debug)]
pub(crate) struct Tdx {
    pub(crate) policy: TdxPolicy,
    pub(crate) root: TdxRoot,
    pub(crate) collateral: Vec<Collateral>,
}

/// Returns the report data that a quote claims.
pub(crate) fn claimed_report_data(quote: &[u8]) -> Option<ReportData> {
    Some(ReportData::new(Quote::parse(quote).ok()?.td_report()?.report_data))
}

impl Tdx {
    /// Has `dcap-qvl` verify the quote with collateral of its platform.
    fn verify(&self, quote: &Quote, now: UnixSeconds) -> Result<QuoteClaims, Refusal> {
        let fmspc = quote.fmspc()?;
        let collateral = self.collateral.iter().find(|c| c.is_of(&fmspc));
        let collateral =
            collateral.ok_or_else(|| Refusal::NoCollateral { fmspc: Hex(&fmspc).to_string() })?;
        let chain = quote.certificates(&self.root.0)?;
        collateral.check_validity(&chain, now)?;
        collateral.check_revocation(&chain)?;
        let verifier = QuoteVerifier::new(self.root.0.clone()).allow_debug(true);
        // Whether debugging is allowed and which TCB is good enough is for the policy, below.
        let anything = QuotePolicy::claims_only(now.0);
        verifier.verify_with_policy(quote.bytes(), collateral.as_dcap(), now.0, &anything).map_err(|error| {
            let (whole, cause) = (format!("{error:#}"), error.root_cause().to_string());
            refusal(whole, &cause)
        })
    }
}

/// Finds the reason why `dcap-qvl` refuses a quote, which it gives in words only. The tests cause most
/// of them; words that another version changes make a refusal of another kind, never an acceptance.
fn refusal(whole: String, cause: &str) -> Refusal {
    match cause {
        "TD migration is enabled" => Refusal::Migration("TD attribute MIGRATABLE"),
        "SERVTD_EXT is enabled" | "Invalid MR service TD" => Refusal::Migration("a service TD is bound"),
        "SEPT_VE_DISABLE is not enabled" => Refusal::Property {
            property: "the host can inject exceptions (TD attribute SEPT_VE_DISABLE is off)".to_owned(),
            remedy: "start the machine with sept-ve-disable=on",
        },
        "TCB status is invalid: Revoked" => {
            Refusal::Revoked { certificate: "TCB level of the platform".to_owned() }
        }
        "No matching TCB level found" => Refusal::OldTcb {
            component: "the platform's TCB".to_owned(),
            found: "below every level that Intel lists".to_owned(),
            minimum: "a listed level".to_owned(),
        },
        "ISV enclave report signature is invalid" => Refusal::Signature { what: "quote" },
        "Signature is invalid for qe_report in quote" | "QE report hash mismatch" => {
            Refusal::Signature { what: "quoting enclave's report" }
        }
        "CertRevoked" => Refusal::Revoked { certificate: "certificate of the platform".to_owned() },
        _ => Refusal::Quote(whole),
    }
}

impl Appraise for Tdx {
    fn appraise(
        &self,
        evidence: &Evidence,
        expected: &ReportData,
        now: UnixSeconds,
    ) -> Result<Claims, Refusal> {
        if !evidence.certificates.is_empty() {
            return Err(Refusal::malformed("a quote of TDX carries its certificates itself"));
        }
        let quote = Quote::parse(&evidence.report)?;
        if quote.td_report().is_none() {
            return Err(Refusal::WrongTee { found: "SGX".to_owned(), accepted: Tee::Tdx.to_string() });
        }
        let claims = self.verify(&quote, now)?;
        let wrong = || Refusal::malformed("the quote is of no TD");
        let report = claims.report.as_td10().ok_or_else(wrong)?;
        if ReportData::new(report.report_data) != *expected {
            return Err(Refusal::OtherBinding);
        }
        self.check_registers(report)?;
        self.check_tcb(&claims, report)?;
        let statuses = claims.tcb.status.to_string();
        Ok(Claims {
            attested: Attested::By(Tee::Tdx),
            measurement: report.mr_td.to_vec(),
            host_data: report.mr_config_id.to_vec(),
            tcb: format!("TCB status {statuses}, TEE_TCB_SVN {}", Hex(&report.tee_tcb_svn)),
        })
    }
}

impl Tdx {
    fn check_registers(&self, report: &TDReport10) -> Result<(), Refusal> {
        // Bits 0 to 7 of the attributes: the TD is under debugging or profiling.
        if report.td_attributes[0] != 0 && !self.policy.debug {
            return Err(Refusal::Debug("TD attributes 0 to 7"));
        }
        let p = &self.policy;
        let measured: [(&'static str, &Accepted<48>, &[u8; 48]); 5] = [
            ("MRTD", &p.mrtd, &report.mr_td),
            ("RTMR0", &p.rtmr[0], &report.rt_mr0),
            ("RTMR1", &p.rtmr[1], &report.rt_mr1),
            ("RTMR2", &p.rtmr[2], &report.rt_mr2),
            ("RTMR3", &p.rtmr[3], &report.rt_mr3),
        ];
        for (register, accepted, value) in measured {
            if !accepts(accepted, value) {
                return Err(Refusal::Measurement { register, found: Hex(value).to_string() });
            }
        }
        if !accepts(&p.mr_config_id, &report.mr_config_id) {
            let found = Hex(&report.mr_config_id).to_string();
            return Err(Refusal::HostData { field: "MRCONFIGID", found });
        }
        let owners = [
            ("MROWNER", &p.mr_owner, &report.mr_owner),
            ("MROWNERCONFIG", &p.mr_owner_config, &report.mr_owner_config),
        ];
        for (field, accepted, value) in owners {
            if !accepts(accepted, value) {
                return Err(Refusal::Identity { field, found: Hex(value).to_string() });
            }
        }
        Ok(())
    }

    fn check_tcb(&self, claims: &QuoteClaims, report: &TDReport10) -> Result<(), Refusal> {
        let p = &self.policy;
        if !p.tcb_statuses.contains(&claims.tcb.status) {
            let accepted: Vec<_> = p.tcb_statuses.iter().map(ToString::to_string).collect();
            return Err(Refusal::TcbStatus {
                status: claims.tcb.status.to_string(),
                advisories: match claims.tcb.advisory_ids.join(", ") {
                    none if none.is_empty() => "no advisory".to_owned(),
                    some => some,
                },
                accepted: accepted.join(" or "),
            });
        }
        let now = match &claims.report {
            Report::TD15(_) | Report::TD15Ex(_) => claims.report.as_td15().map(|td| td.tee_tcb_svn2),
            _ => None,
        };
        for svn in [Some(report.tee_tcb_svn), now].into_iter().flatten() {
            if svn.iter().zip(&p.minimum_tee_tcb_svn).any(|(found, minimum)| found < minimum) {
                return Err(Refusal::OldTcb {
                    component: "TEE_TCB_SVN".to_owned(),
                    found: Hex(&svn).to_string(),
                    minimum: Hex(&p.minimum_tee_tcb_svn).to_string(),
                });
            }
        }
        if claims.tcb.eval_data_number < p.minimum_tcb_evaluation {
            return Err(Refusal::OldTcb {
                component: "Intel's TCB evaluation data number".to_owned(),
                found: claims.tcb.eval_data_number.to_string(),
                minimum: p.minimum_tcb_evaluation.to_string(),
            });
        }
        Ok(())
    }
}

fn accepts(accepted: &Accepted<48>, value: &[u8; 48]) -> bool {
    accepted.as_ref().is_none_or(|list| list.contains(value))
}
