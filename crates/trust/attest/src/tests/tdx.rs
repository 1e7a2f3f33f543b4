//! Each reason for which a quote of TDX is refused.

use dcap_qvl::quote::TDReport10;

use super::genuine::{NOW, TDX, at, data, policy, tdx, verify};
use super::hierarchy::time;
use super::intel::Intel;
use crate::appraise::Appraise;
use crate::evidence::Evidence;
use crate::tdx::{Collateral, Tdx};
use crate::tee::Hex;
use crate::verifier::claimed_report_data;
use crate::{Claims, Refusal, ReportData};

const ANY: &str = "[tdx]\nany_mrtd = true\ncollateral = [\"in the test\"]\n";

fn verifier(intel: &Intel, policy_text: &str, collateral: &[u8]) -> Tdx {
    let policy = policy(policy_text).tdx.unwrap();
    let collateral = vec![Collateral::from_file(collateral).unwrap()];
    Tdx { policy, root: intel.root(), collateral }
}

fn appraise(verifier: &Tdx, evidence: &Evidence) -> Result<Claims, Refusal> {
    let expected = claimed_report_data(&evidence.encode().unwrap())?;
    verifier.appraise(evidence, &expected, at(NOW))
}

/// Verifies evidence with a TDX policy that demands nothing else.
pub(super) fn bound(intel: &Intel, evidence: &Evidence, expected: &ReportData) -> Result<Claims, Refusal> {
    let collateral = intel.collateral(unchanged, &[], &[]);
    verifier(intel, ANY, &collateral).appraise(evidence, expected, at(NOW))
}

fn unchanged(text: &str) -> String {
    text.to_owned()
}

/// Appraises a quote that a platform of the test's hierarchy signed.
fn of_report(policy_text: &str, edit: impl FnOnce(&mut TDReport10)) -> Result<Claims, Refusal> {
    let intel = Intel::new();
    let collateral = intel.collateral(unchanged, &[], &[]);
    appraise(&verifier(&intel, policy_text, &collateral), &intel.quote(edit))
}

fn of_tcb_info(policy_text: &str, edit: impl FnOnce(&str) -> String) -> Result<Claims, Refusal> {
    let intel = Intel::new();
    let collateral = intel.collateral(edit, &[], &[]);
    appraise(&verifier(&intel, policy_text, &collateral), &intel.quote(|_| {}))
}

fn reason(result: Result<Claims, Refusal>) -> &'static str {
    result.map_or_else(|refusal| refusal.reason(), |_| "accepted")
}

#[test]
fn a_quote_of_the_tests_own_hierarchy_verifies_there_only() {
    assert_eq!(reason(of_report(ANY, |_| {})), "accepted");
    let intel = Intel::new();
    assert_eq!(reason(verify(TDX, &intel.quote(|_| {}), at(NOW))), "chain");
    let genuine = verifier(&intel, ANY, &data("tdx_quote_collateral.json"));
    assert_eq!(reason(appraise(&genuine, &tdx("tdx_quote"))), "chain");
    // Collateral of the other hierarchy is no better.
    assert_eq!(reason(appraise(&genuine, &intel.quote(|_| {}))), "quote");
}

#[test]
fn a_td_under_debugging_or_profiling_is_refused() {
    for bit in [0, 4, 5, 6] {
        let debug = |r: &mut TDReport10| r.td_attributes[0] |= 1 << bit;
        assert!(matches!(of_report(ANY, debug), Err(Refusal::Debug(_))), "bit {bit}");
        assert_eq!(reason(of_report(&format!("{ANY}debug = true"), debug)), "accepted", "bit {bit}");
    }
}

#[test]
fn a_td_that_may_migrate_is_refused() {
    assert!(matches!(of_report(ANY, |r| r.td_attributes[3] |= 1 << 5), Err(Refusal::Migration(_))));
    assert!(matches!(of_report(ANY, |r| r.td_attributes[2] |= 1 << 1), Err(Refusal::Migration(_))));
    // Exceptions that the host injects are as bad.
    assert_eq!(reason(of_report(ANY, |r| r.td_attributes[3] = 0)), "property");
    assert_eq!(reason(of_report(ANY, |r| r.td_attributes[4] = 1)), "quote");
}

#[test]
fn each_register_is_compared_with_its_list() {
    let with = |key: &str, listed: u8| {
        let any = if key == "mrtd" { "" } else { "any_mrtd = true\n" };
        let value = Hex(&[listed; 48]).to_string();
        let text = format!("[tdx]\n{any}{key} = [\"{value}\"]\ncollateral = [\"in the test\"]\n");
        of_report(&text, |r| {
            (r.mr_td, r.rt_mr0, r.rt_mr1, r.rt_mr2, r.rt_mr3) = ([1; 48], [1; 48], [1; 48], [1; 48], [1; 48]);
            (r.mr_config_id, r.mr_owner, r.mr_owner_config) = ([1; 48], [1; 48], [1; 48]);
        })
    };
    for (key, refusal) in [
        ("mrtd", "measurement"),
        ("rtmr0", "measurement"),
        ("rtmr1", "measurement"),
        ("rtmr2", "measurement"),
        ("rtmr3", "measurement"),
        ("mr_config_id", "host_data"),
        ("mr_owner", "identity"),
        ("mr_owner_config", "identity"),
    ] {
        assert_eq!(reason(with(key, 1)), "accepted", "{key}");
        assert_eq!(reason(with(key, 2)), refusal, "{key}");
    }
}

#[test]
fn an_old_tcb_is_refused() {
    // The genuine quote has TEE_TCB_SVN 06010300...
    let minimum = |digits: &str| format!("{ANY}minimum_tee_tcb_svn = \"{digits}{}\"", "00".repeat(12));
    assert_eq!(reason(of_report(&minimum("06010300"), |_| {})), "accepted");
    for newer in ["07010300", "06020300", "06010400", "06010301"] {
        assert_eq!(reason(of_report(&minimum(newer), |_| {})), "old_tcb", "{newer}");
    }
    // Below every level that Intel lists: a test's quote, and a genuine one of an outdated platform.
    assert_eq!(reason(of_report(ANY, |r| r.tee_tcb_svn = [0; 16])), "old_tcb");
    assert_eq!(reason(verify(TDX, &tdx("tdx_quote_outdated"), at("2026-03-01T00:00:00Z"))), "old_tcb");
    // Intel's newest judgement is number 17 in this collateral.
    assert_eq!(reason(of_report(&format!("{ANY}minimum_tcb_evaluation = 17"), |_| {})), "accepted");
    assert_eq!(reason(of_report(&format!("{ANY}minimum_tcb_evaluation = 18"), |_| {})), "old_tcb");
}

#[test]
fn a_tcb_status_that_the_policy_does_not_accept_is_refused() {
    let status = |status: &str| {
        let new = format!("\"tcbStatus\":\"{status}\"");
        move |json: &str| json.replace("\"tcbStatus\":\"UpToDate\"", &new)
    };
    let all = |text: &str, s: &str| reason(of_tcb_info(text, status(s)));
    assert_eq!(all(ANY, "UpToDate"), "accepted");
    assert_eq!(all(ANY, "OutOfDate"), "tcb_status");
    let accepts = format!("{ANY}tcb_statuses = [\"UpToDate\", \"OutOfDate\"]");
    assert_eq!(all(&accepts, "OutOfDate"), "accepted");
    // No policy accepts a revoked TCB.
    assert_eq!(all(&accepts, "Revoked"), "revoked");
}

#[test]
fn revoked_platforms_and_issuers_are_refused() {
    let intel = Intel::new();
    let with =
        |collateral: Vec<u8>| reason(appraise(&verifier(&intel, ANY, &collateral), &intel.quote(|_| {})));
    assert_eq!(with(intel.collateral(unchanged, &[&intel.platform], &[])), "revoked");
    assert_eq!(with(intel.collateral(unchanged, &[], &[&intel.issuer])), "revoked");
    assert_eq!(with(intel.collateral(unchanged, &[&intel.issuer], &[])), "accepted");
}

#[test]
fn expired_collateral_and_certificates_are_refused() {
    // The genuine collateral is valid from 2025-06-19T10:32:27Z until 2025-07-19T10:00:35Z, exclusively.
    let at = |now| reason(verify(TDX, &tdx("tdx_quote"), at(now)));
    assert_eq!(at("2025-07-19T10:00:34Z"), "accepted");
    assert_eq!(at("2025-07-19T10:00:35Z"), "expired");
    assert_eq!(at("2025-06-19T10:32:26Z"), "not_yet_valid");
    let of_period = |begin: u64, end: u64| {
        let intel = Intel::with_platform(|tbs| {
            tbs.validity.not_before = time(begin);
            tbs.validity.not_after = time(end);
        });
        let collateral = intel.collateral(unchanged, &[], &[]);
        reason(appraise(&verifier(&intel, ANY, &collateral), &intel.quote(|_| {})))
    };
    let now = super::genuine::at(NOW).0;
    assert_eq!(of_period(now, now), "accepted");
    assert_eq!(of_period(now - 9, now - 1), "expired");
    assert_eq!(of_period(now + 1, now + 9), "not_yet_valid");
}

#[test]
fn collateral_of_another_platform_does_not_serve() {
    let text = "[tdx]\nany_mrtd = true\ncollateral = [\"tdx_quote_outdated_collateral.json\"]";
    let refusal = verify(text, &tdx("tdx_quote"), at(NOW)).unwrap_err();
    assert_eq!(refusal, Refusal::NoCollateral { fmspc: "b0c06f000000".to_owned() });
    // Unsigned collateral, which says that every TCB is good.
    let intel = Intel::new();
    let mut made: serde_json::Value = serde_json::from_slice(&intel.collateral(unchanged, &[], &[])).unwrap();
    let levels = made["tcb_info"].as_str().unwrap().replace("OutOfDate", "UpToDate");
    made["tcb_info"] = levels.into();
    let forged = verifier(&intel, ANY, made.to_string().as_bytes());
    assert_eq!(reason(appraise(&forged, &intel.quote(|_| {}))), "quote");
}
