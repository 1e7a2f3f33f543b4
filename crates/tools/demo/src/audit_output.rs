//! The output of `p4shield audit --json`: one object per line, a finding or a comparison, each with `words`.

use serde_json::Value;

/// The auditor's output so far.
#[derive(Debug, Default)]
pub(crate) struct AuditOutput {
    standing: String,
    unread: Vec<String>,
    findings: Vec<Value>,
    comparisons: u64,
    is_certain: bool,
    compared: u64,
}

impl AuditOutput {
    /// Takes a line of the auditor. Ignores what is no object of it.
    pub(crate) fn read(&mut self, line: &str) {
        let Ok(value) = serde_json::from_str::<Value>(line) else { return };
        if value.get("finding").is_some() {
            self.unread.push(value["words"].as_str().unwrap_or_default().to_owned());
            self.findings.push(value);
        } else if value["event"] == "standing" {
            self.compared = both(&value, "verified").iter().filter_map(|v| v.as_u64()).sum();
            self.standing = standing(&value, self.compared);
            self.comparisons += 1;
            self.is_certain = both(&value, "aligned").iter().all(|v| **v == true);
        }
    }

    /// Returns the number of comparisons.
    pub(crate) const fn comparisons(&self) -> u64 {
        self.comparisons
    }

    /// Returns whether the last comparison accounts for every packet of both directions.
    pub(crate) const fn is_certain(&self) -> bool {
        self.is_certain
    }

    /// Returns how many packets of both directions the last comparison had compared.
    pub(crate) const fn compared(&self) -> u64 {
        self.compared
    }

    /// Returns the findings since the last call; without any, the state of the audit.
    pub(crate) fn words(&mut self) -> String {
        let unread = std::mem::take(&mut self.unread);
        if unread.is_empty() { self.standing.clone() } else { unread.join("; ") }
    }

    /// Returns the findings since [`Self::take_findings`], which stay.
    pub(crate) fn findings(&self) -> &[Value] {
        &self.findings
    }

    /// Returns the findings since the last call.
    pub(crate) fn take_findings(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.findings)
    }
}

/// Returns the text of findings.
pub(crate) fn words_of(findings: &[Value]) -> String {
    let words: Vec<&str> = findings.iter().filter_map(|f| f["words"].as_str()).collect();
    if words.is_empty() { "the auditor found nothing".into() } else { words.join("; ") }
}

/// Returns how many packets bypassed the program by these findings.
pub(crate) fn bypassed(findings: &[Value]) -> u64 {
    let bypasses = findings.iter().filter(|f| f["finding"] == "bypassed");
    bypasses.filter_map(|f| f["packets"].as_u64()).sum()
}

fn both<'v>(value: &'v Value, key: &str) -> [&'v Value; 2] {
    [&value["ingress"][key], &value["egress"][key]]
}

/// Returns the state of the audit, short enough for a table.
fn standing(value: &Value, compared: u64) -> String {
    let both = |key: &str| both(value, key);
    if both("suspicious").iter().any(|v| **v == true) {
        "checking a difference".into()
    } else if both("has_findings").iter().any(|v| **v == true) {
        "findings above".into()
    } else if both("aligned").iter().all(|v| **v == true) {
        format!("every packet went through ({compared} compared)")
    } else {
        "not yet certain".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_and_comparisons_are_distinguished() {
        let mut output = AuditOutput::default();
        for line in [
            "{\"event\":\"standing\"}",
            "rubbish",
            "{\"finding\":\"bypassed\",\"packets\":3,\"words\":\"3 round\"}",
        ] {
            output.read(line);
        }
        assert_eq!((output.comparisons, output.findings.len(), output.words()), (1, 1, "3 round".to_owned()));
        assert_eq!(bypassed(output.findings()), 3);
        assert_eq!((output.take_findings().len(), output.take_findings().len()), (1, 0));
    }

    #[test]
    fn an_audit_is_certain_if_both_directions_are_aligned() {
        let mut output = AuditOutput::default();
        output.read(r#"{"event":"standing","ingress":{"aligned":true},"egress":{"aligned":false}}"#);
        assert!(!output.is_certain());
        output.read(
            r#"{"event":"standing","ingress":{"aligned":true,"verified":3},"egress":{"aligned":true}}"#,
        );
        assert!(output.is_certain());
        assert_eq!(output.words(), "every packet went through (3 compared)");
    }
}
