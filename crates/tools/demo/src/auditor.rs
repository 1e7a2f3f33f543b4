//! The auditor, started as a user starts it.

use std::io::{BufRead, BufReader};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use p4shield_testbed::{Guarded, NetNs, Product};
use serde_json::Value;

use crate::scene::{TENANT, VM_NAME};

/// The auditor's output so far.
#[derive(Debug, Default)]
struct AuditOutput {
    standing: String,
    unread: Vec<String>,
    findings: Vec<Value>,
    comparisons: u64,
}

/// The auditor in the user VM.
#[derive(Debug)]
pub(crate) struct Auditor {
    process: Guarded,
    output: Arc<Mutex<AuditOutput>>,
    reader: Option<JoinHandle<()>>,
}

impl Auditor {
    /// Starts the auditor and waits for its first comparison.
    pub(crate) fn start(vm: &NetNs, product: &Product) -> anyhow::Result<Self> {
        let mut audit = product.auditor(vm, [TENANT, VM_NAME], "eth0")?;
        audit.args([
            "--hold-ms",
            "50",
            "--expect-age-limit",
            "1000",
            "--expect-egress",
            "none",
            "--expect-ingress",
        ]);
        let mut process = Guarded::spawn(audit.arg(product.at("program.o")).stdout(Stdio::piped()))?;
        let output = Arc::new(Mutex::new(AuditOutput::default()));
        let reader = process.child().stdout.take().map(|out| {
            let output = Arc::clone(&output);
            std::thread::spawn(move || read_output(BufReader::new(out), &output))
        });
        let auditor = Self { process, output, reader };
        let compared = || auditor.locked(|s| s.comparisons > 1);
        product.await_part("first comparison of the auditor", "audit", compared)?;
        Ok(auditor)
    }

    fn locked<R>(&self, f: impl FnOnce(&mut AuditOutput) -> R) -> R {
        f(&mut self.output.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the exit status if the process has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.process.ended()
    }

    /// Returns the findings since the last call; without any, the state of the audit.
    pub(crate) fn words(&self) -> String {
        self.locked(|s| {
            let unread = std::mem::take(&mut s.unread);
            if unread.is_empty() { s.standing.clone() } else { unread.join("; ") }
        })
    }

    /// Returns the findings since the last call.
    pub(crate) fn take_findings(&self) -> Vec<Value> {
        self.locked(|s| std::mem::take(&mut s.findings))
    }
}

impl Drop for Auditor {
    fn drop(&mut self) {
        self.process.stop();
        if let Some(r) = self.reader.take() {
            let _ = r.join();
        }
    }
}

/// Reads `p4shield audit --json`: one object per line, a finding or a comparison, each with `words`.
fn read_output(lines: impl BufRead, output: &Mutex<AuditOutput>) {
    for line in lines.lines().map_while(Result::ok) {
        let Ok(value) = serde_json::from_str::<Value>(&line) else { continue };
        let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
        if value.get("finding").is_some() {
            output.unread.push(value["words"].as_str().unwrap_or_default().to_owned());
            output.findings.push(value);
        } else if value["event"] == "standing" {
            output.standing = standing(&value);
            output.comparisons += 1;
        }
    }
}

/// Returns the state of the audit, short enough for a table.
fn standing(value: &Value) -> String {
    let both = |key: &str| [&value["ingress"][key], &value["egress"][key]];
    if both("suspicious").iter().any(|v| **v == true) {
        "checking a difference".into()
    } else if both("has_findings").iter().any(|v| **v == true) {
        "findings above".into()
    } else if both("aligned").iter().all(|v| **v == true) {
        let compared: u64 = both("verified").iter().filter_map(|v| v.as_u64()).sum();
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
        let output = Mutex::new(AuditOutput::default());
        let text = "{\"event\":\"standing\"}\nrubbish\n\
                    {\"finding\":\"bypassed\",\"packets\":3,\"words\":\"3 round\"}\n";
        read_output(text.as_bytes(), &output);
        let output = output.into_inner().unwrap();
        assert_eq!(
            (output.comparisons, output.findings.len(), output.unread),
            (1, 1, vec!["3 round".to_owned()])
        );
        assert_eq!(output.findings[0]["packets"], 3);
    }
}
