//! The auditor, started as a user starts it.

use std::io::{BufRead, BufReader};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use p4shield_testbed::{Guarded, NetNs, Product};
use serde_json::Value;

use crate::audit_output::AuditOutput;
use crate::scene::{TENANT, VM_NAME};

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
        let compared = || auditor.locked(|s| s.comparisons() > 1);
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
        self.locked(AuditOutput::words)
    }

    /// Returns the findings since the last call.
    pub(crate) fn take_findings(&self) -> Vec<Value> {
        self.locked(AuditOutput::take_findings)
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

/// Reads the auditor's output to its end.
fn read_output(lines: impl BufRead, output: &Mutex<AuditOutput>) {
    for line in lines.lines().map_while(Result::ok) {
        output.lock().unwrap_or_else(PoisonError::into_inner).read(&line);
    }
}
