//! Intel's collateral for the platforms of one kind: TCB levels, the quoting enclave's identity, revocation
//! lists.

use dcap_qvl::QuoteCollateralV3;
use serde::Deserialize;
use x509_cert::Certificate as X509;
use x509_cert::crl::CertificateList;
use x509_cert::der::Decode;

use crate::refusal::Refusal;
use crate::snp::certificate::check_period;
use crate::tee::{UnixSeconds, from_hex};

/// The part of Intel's signed JSON that this module reads; `dcap-qvl` verifies its signature.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Signed {
    issue_date: String,
    next_update: String,
    #[serde(default)]
    fmspc: String,
}

/// Collateral that is not verified yet.
#[derive(Clone, Debug)]
pub(crate) struct Collateral {
    dcap: QuoteCollateralV3,
    fmspc: [u8; 6],
    periods: Vec<(&'static str, UnixSeconds, Option<UnixSeconds>)>,
    root_list: CertificateList,
    platform_list: CertificateList,
}

impl Collateral {
    /// Reads the JSON of `dcap-qvl`, as PCCS clients write it.
    pub(crate) fn from_file(bytes: &[u8]) -> Result<Self, String> {
        let mut dcap: QuoteCollateralV3 =
            serde_json::from_slice(bytes).map_err(|e| format!("it is no collateral of TDX: {e}"))?;
        // The quote's own chain is the one that is checked.
        dcap.pck_certificate_chain = None;
        let (tcb, begin, end) = signed("TCB info", &dcap.tcb_info)?;
        let (_, qe_begin, qe_end) = signed("identity of the quoting enclave", &dcap.qe_identity)?;
        let fmspc = from_hex(&tcb.fmspc).ok_or_else(|| "its TCB info names no platform".to_owned())?;
        let list = |what, der: &[u8]| {
            CertificateList::from_der(der).map_err(|e| format!("its revocation list of {what}: {e}"))
        };
        let root_list = list("the root", &dcap.root_ca_crl)?;
        let platform_list = list("the platforms", &dcap.pck_crl)?;
        let period = |what, list: &CertificateList| {
            let seconds = |time: x509_cert::time::Time| time.to_unix_duration().as_secs();
            // `dcap-qvl` takes a list for expired at the moment of its next update already.
            let last = list.tbs_cert_list.next_update.map(|end| UnixSeconds(seconds(end).saturating_sub(1)));
            (what, UnixSeconds(seconds(list.tbs_cert_list.this_update)), last)
        };
        let periods = vec![
            ("TCB info", begin, Some(end)),
            ("identity of the quoting enclave", qe_begin, Some(qe_end)),
            period("revocation list of Intel's root", &root_list),
            period("revocation list of the platforms", &platform_list),
        ];
        Ok(Self { dcap, fmspc, periods, root_list, platform_list })
    }

    pub(super) fn is_of(&self, fmspc: &[u8; 6]) -> bool {
        self.fmspc == *fmspc
    }

    pub(super) const fn as_dcap(&self) -> &QuoteCollateralV3 {
        &self.dcap
    }

    /// Checks that the collateral and the quote's certificates are valid now, as `dcap-qvl` does, to name the
    /// one that is not.
    pub(super) fn check_validity(&self, chain: &[X509; 3], now: UnixSeconds) -> Result<(), Refusal> {
        for (what, begin, end) in &self.periods {
            check_period(what, *begin, *end, now)?;
        }
        let names = [
            "certificate of the platform",
            "certificate of the platform's issuer",
            "certificate of the root",
        ];
        for (what, certificate) in names.into_iter().zip(chain) {
            let validity = &certificate.tbs_certificate.validity;
            let begin = UnixSeconds(validity.not_before.to_unix_duration().as_secs());
            let end = UnixSeconds(validity.not_after.to_unix_duration().as_secs());
            check_period(what, begin, Some(end), now)?;
        }
        Ok(())
    }

    /// Checks that no list names a certificate of the quote, as `dcap-qvl` does, to name the one that is
    /// revoked.
    pub(super) fn check_revocation(&self, chain: &[X509; 3]) -> Result<(), Refusal> {
        let [platform, issuer, root] = chain;
        for (what, list, certificate) in [
            ("certificate of the platform", &self.platform_list, platform),
            ("certificate of the platform's issuer", &self.root_list, issuer),
            ("certificate of the root", &self.root_list, root),
        ] {
            let mut entries = list.tbs_cert_list.revoked_certificates.iter().flatten();
            if entries.any(|entry| entry.serial_number == certificate.tbs_certificate.serial_number) {
                return Err(Refusal::Revoked { certificate: what.to_owned() });
            }
        }
        Ok(())
    }
}

fn signed(what: &str, json: &str) -> Result<(Signed, UnixSeconds, UnixSeconds), String> {
    let signed: Signed = serde_json::from_str(json).map_err(|e| format!("its {what}: {e}"))?;
    let time = |text: &str| text.parse::<UnixSeconds>().map_err(|e| format!("its {what}: {e}"));
    let (begin, end) = (time(&signed.issue_date)?, time(&signed.next_update)?);
    Ok((signed, begin, end))
}
