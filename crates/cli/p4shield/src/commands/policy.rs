//! `p4shield policy`.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Subcommand;
use p4shield_attest::{
    Attested, Claims, Policy, PolicyError, Refusal, ReportData, Statement, Tee, UnixSeconds, Verifier,
    Weight, claimed_report_data,
};
use p4shield_console::{Exit, Refused, input, output};
use serde::Serialize;

/// Explain attestation policies, and try them on stored evidence
///
/// A policy says which machines a tenant trusts: of which TEE, with which software, firmware and host.
/// docs/how-to/attestation-policy.md has the steps, docs/reference/attestation-policy.md every key.
///
/// Example: p4shield policy check alice.toml
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Check(Check),
}

/// Say in plain words what a policy demands, or whether it accepts stored evidence
///
/// Reads the policy and the files that it names. Warnings name what the policy leaves open. With
/// --evidence, verifies evidence as a verifier does, without network.
///
/// Examples:
///
///   p4shield policy check alice.toml
///   p4shield policy check alice.toml --evidence web.evidence
///   p4shield policy check alice.toml --evidence web.evidence --at 2026-01-31T12:00:00Z
///
/// Exit code 3 if the policy or the evidence is refused; the error names reason and remedy.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
struct Check {
    /// The policy file
    policy: PathBuf,
    /// A file with evidence
    #[arg(long, value_name = "FILE")]
    evidence: Option<PathBuf>,
    /// What the evidence has to be bound to, in hexadecimal; without it, the binding is not checked
    #[arg(long, value_name = "HEX", requires = "evidence")]
    report_data: Option<ReportData>,
    /// The time of verification in UTC, such as 2026-01-31T12:00:00Z; default: now
    #[arg(long, value_name = "TIME", requires = "evidence")]
    at: Option<UnixSeconds>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    policy: &'a Path,
    tees: Vec<Tee>,
    samples: bool,
    statements: Vec<Statement>,
    #[serde(skip_serializing_if = "Option::is_none")]
    evidence: Option<Verification>,
}

#[derive(Serialize)]
struct Verification {
    accepted: bool,
    /// "attested by ...", "not attested", or the refusal's reason for scripts.
    status: String,
    attested: bool,
    binding_checked: bool,
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    measurement: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcb: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<String>,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let Command::Check(check) = self.command;
        check.run()
    }
}

impl Check {
    fn run(self) -> anyhow::Result<Exit> {
        let policy = Policy::load(&self.policy).map_err(error)?;
        let verifier = Verifier::new(&policy).map_err(error)?;
        let now = self.at.unwrap_or_else(|| SystemTime::now().into());
        let result = match &self.evidence {
            Some(file) => Some(self.verify(&verifier, &input::bytes(file)?, now)),
            None => None,
        };
        if self.json {
            let refused = matches!(result, Some(Err(_)));
            output::json(&Report {
                policy: &self.policy,
                tees: policy.tees(),
                samples: policy.accepts_samples(),
                statements: policy.explain(),
                evidence: result.map(|result| self.verification(result, now)),
            })?;
            return Ok(if refused { Exit::Refused } else { Exit::Done });
        }
        match result {
            None => explain(&policy),
            Some(Ok(claims)) => {
                output::line(format_args!("accepted at {now}: {claims}"));
                if self.report_data.is_none() {
                    output::note(
                        "the binding of the evidence is not checked: it may be replayed; use --report-data",
                    );
                }
            }
            Some(Err(refusal)) => return Err(Refused(refusal.to_string()).into()),
        }
        Ok(Exit::Done)
    }

    fn verify(&self, verifier: &Verifier, evidence: &[u8], now: UnixSeconds) -> Result<Claims, Refusal> {
        let expected = self.report_data.map_or_else(|| claimed_report_data(evidence), Ok)?;
        verifier.verify(evidence, &expected, now)
    }

    fn verification(&self, result: Result<Claims, Refusal>, now: UnixSeconds) -> Verification {
        let mut verification = Verification {
            accepted: result.is_ok(),
            status: String::new(),
            attested: false,
            binding_checked: self.report_data.is_some(),
            time: now.to_string(),
            measurement: None,
            host_data: None,
            tcb: None,
            refusal: None,
        };
        match result {
            Ok(claims) => {
                verification.status = claims.attested.to_string();
                verification.attested = claims.attested != Attested::No;
                if verification.attested {
                    verification.measurement = Some(hex::encode(claims.measurement));
                    verification.host_data = Some(hex::encode(claims.host_data));
                    verification.tcb = Some(claims.tcb);
                }
            }
            Err(refusal) => {
                verification.status = refusal.reason().to_owned();
                verification.refusal = Some(refusal.to_string());
            }
        }
        verification
    }
}

fn explain(policy: &Policy) {
    for Statement { tee, weight, text } in policy.explain() {
        let tee = tee.map_or("all", Tee::name);
        let weight = if weight == Weight::Warning { "warning: " } else { "" };
        output::line(format_args!("{tee:8} {weight}{text}"));
    }
}

/// A file that cannot be read is the machine's fault, all else the policy's.
fn error(error: PolicyError) -> anyhow::Error {
    match error {
        PolicyError::Read { .. } => error.into(),
        _ => Refused::because(&error).into(),
    }
}
