//! `p4shield policy check` on policies and on genuine evidence.

use std::path::{Path, PathBuf};

use crate::common::{code, p4shield, stderr, stdout};
use p4shield_attest::{
    Attester, CertificateKind, Evidence, EvidenceCertificate, ReportData, SampleAttester, Tee,
};
use serde_json::Value;

/// Where the genuine evidence is.
fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../trust/attest/tests/data").join(name)
}

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        let report = std::fs::read_to_string(data("report_milan.hex")).unwrap();
        let pairs = report.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        let report = pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
        let der = std::fs::read(data("vcek_milan.der")).unwrap();
        let certificates = vec![EvidenceCertificate { kind: CertificateKind::Vcek, der }];
        files.evidence("milan", &Evidence { tee: Tee::SevSnp, report, certificates });
        let report = std::fs::read(data("tdx_quote")).unwrap();
        files.evidence("tdx", &Evidence { tee: Tee::Tdx, report, certificates: Vec::new() });
        files.evidence("sample", &SampleAttester.evidence(&ReportData::new([7; 64])).unwrap());
        files
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn evidence(&self, name: &str, evidence: &Evidence) {
        std::fs::write(self.path(name), evidence.encode().unwrap()).unwrap();
    }

    fn policy(&self, text: &str) -> String {
        std::fs::write(self.path("policy.toml"), text).unwrap();
        self.path("policy.toml")
    }
}

const MILAN: &str = "[sev-snp]\nany_measurement = true\nunchecked_revocation = true\n";
const AT: [&str; 2] = ["--at", "2025-07-01T00:00:00Z"];

fn json(arguments: &[&str]) -> (i32, Value) {
    let out = p4shield(&[arguments, &["--json"]].concat());
    (code(&out), serde_json::from_str(&stdout(&out)).unwrap_or_else(|e| panic!("{e}: {}", stderr(&out))))
}

#[test]
fn a_policy_is_explained_in_plain_words() {
    let files = Files::new();
    let policy = files.policy(MILAN);
    let out = p4shield(&["policy", "check", &policy]);
    assert_eq!(code(&out), 0, "{}", stderr(&out));
    let text = stdout(&out);
    for line in [
        "all      the machine is of sev-snp",
        "sev-snp  debugging is off",
        "sev-snp  warning: any measurement is accepted: the machine may run any software",
        "sev-snp  warning: revocation is not checked",
    ] {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
    let (exit, value) = json(&["policy", "check", &policy]);
    assert_eq!((exit, &value["tees"][0], &value["samples"]), (0, &"sev-snp".into(), &false.into()));
    let statements = value["statements"].as_array().unwrap();
    assert_eq!(statements.len(), text.lines().count());
    assert!(statements.iter().any(|s| s["weight"] == "warning" && s["tee"] == "sev-snp"));
}

#[test]
fn genuine_evidence_is_verified_at_the_time_given() {
    let files = Files::new();
    let collateral = data("tdx_quote_collateral.json");
    let policy = files.policy(&format!("{MILAN}[tdx]\nany_mrtd = true\ncollateral = [{collateral:?}]\n"));
    for (name, attested) in [("milan", "attested by sev-snp"), ("tdx", "attested by tdx")] {
        let evidence = files.path(name);
        let check = ["policy", "check", policy.as_str(), "--evidence", evidence.as_str()];
        let out = p4shield(&[&check[..], &AT].concat());
        assert_eq!(code(&out), 0, "{}", stderr(&out));
        assert!(
            stdout(&out).contains(&format!("accepted at 2025-07-01T00:00:00Z: {attested}")),
            "{}",
            stdout(&out)
        );
        assert!(stderr(&out).contains("binding of the evidence is not checked"), "{}", stderr(&out));
        let (exit, value) = json(&[&check[..], &AT].concat());
        let found = &value["evidence"];
        assert_eq!((exit, &found["accepted"], &found["status"]), (0, &true.into(), &attested.into()));
        assert_eq!((&found["attested"], &found["binding_checked"]), (&true.into(), &false.into()));
        // Another time, and another binding.
        let late = [&check[..], &["--at", "2045-01-01T00:00:00Z"]].concat();
        assert_eq!(code(&p4shield(&late)), 3);
        let (exit, value) = json(&late);
        assert_eq!((exit, &value["evidence"]["status"]), (3, &"expired".into()));
        let other = "00".repeat(64);
        let (exit, value) = json(&[&check[..], &AT, &["--report-data", &other]].concat());
        assert_eq!((exit, &value["evidence"]["status"]), (3, &"other_binding".into()));
        assert_eq!(value["evidence"]["binding_checked"], true);
    }
}

#[test]
fn a_sample_is_not_attested_in_text_and_json() {
    let files = Files::new();
    let evidence = files.path("sample");
    let refused = p4shield(&["policy", "check", &files.policy(MILAN), "--evidence", &evidence]);
    assert_eq!(code(&refused), 3);
    assert!(stderr(&refused).contains("a sample, which is not attested"), "{}", stderr(&refused));
    let policy = files.policy("sample = true");
    let data = "07".repeat(64);
    let check = ["policy", "check", &policy, "--evidence", &evidence, "--report-data", &data];
    let out = p4shield(&check);
    assert_eq!(code(&out), 0, "{}", stderr(&out));
    assert!(stdout(&out).contains(": not attested: sample evidence proves nothing"), "{}", stdout(&out));
    let (exit, value) = json(&check);
    assert_eq!((exit, &value["evidence"]["status"]), (0, &"not attested".into()));
    assert_eq!(
        (&value["evidence"]["attested"], &value["evidence"]["accepted"]),
        (&false.into(), &true.into())
    );
    assert_eq!(value["evidence"].get("measurement"), None);
    let explained = stdout(&p4shield(&["policy", "check", &policy]));
    assert!(explained.contains("sample   warning: a machine without a TEE is accepted, as \"not attested\""));
}

#[test]
fn bad_policies_and_files_are_refused_with_a_reason() {
    let files = Files::new();
    for (text, exit, reason) in [
        ("", 3, "the policy accepts no machine"),
        ("[sev-snp]\nmesurements = []", 3, "2:1: unknown field `mesurements`"),
        ("[sev-snp]\nany_measurement = true\ncrl = [\"absent.crl\"]", 1, "absent.crl"),
        ("[sev-snp]\nany_measurement = true\ncrl = [\"policy.toml\"]", 3, "no revocation list in DER"),
        ("[tdx]\nany_mrtd = true\ncollateral = [\"policy.toml\"]", 3, "no collateral of TDX"),
        (
            "[sev-snp]\nany_measurement = true\nunchecked_revocation = true\nendorsements = \
             [\"policy.toml\"]",
            3,
            "no certificate",
        ),
    ] {
        let out = p4shield(&["policy", "check", &files.policy(text)]);
        assert_eq!(code(&out), exit, "{text:?}: {}", stderr(&out));
        assert!(stderr(&out).contains(reason), "{text:?}: {}", stderr(&out));
    }
    assert_eq!(code(&p4shield(&["policy", "check", "/nonexistent/policy.toml"])), 1);
    let policy = files.policy(MILAN);
    let out = p4shield(&["policy", "check", &policy, "--evidence", &policy]);
    assert_eq!(
        (code(&out), stderr(&out).contains("does not begin with \"P4EV\"")),
        (3, true),
        "{}",
        stderr(&out)
    );
    for wrong in [["--at", "yesterday"], ["--report-data", "0f"]] {
        let words =
            [&["policy", "check", policy.as_str(), "--evidence", policy.as_str()], &wrong[..]].concat();
        assert_eq!(code(&p4shield(&words)), 2, "{wrong:?}");
    }
}
