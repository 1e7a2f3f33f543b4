//! A policy in plain words.

use serde::Serialize;

use super::{Accepted, MinimumTcb, Policy, SevSnpPolicy, TdxPolicy};
use crate::tee::{Hex, Tee};

/// What a statement is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// The policy demands something.
    Demand,
    /// The policy leaves something open that an attacker may use.
    Warning,
}

/// A statement about a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Statement {
    /// The kind of machine that it is about; `None`: all.
    pub tee: Option<Tee>,
    /// Whether it is a demand or a warning.
    pub weight: Weight,
    /// The statement.
    pub text: String,
}

struct Statements {
    tee: Option<Tee>,
    list: Vec<Statement>,
}

impl Statements {
    fn say(&mut self, weight: Weight, text: impl Into<String>) {
        self.list.push(Statement { tee: self.tee, weight, text: text.into() });
    }

    fn demand(&mut self, text: impl Into<String>) {
        self.say(Weight::Demand, text);
    }

    fn warn(&mut self, text: impl Into<String>) {
        self.say(Weight::Warning, text);
    }

    /// States a demand, or the warning if it is not made.
    fn either(&mut self, demanded: bool, demand: &str, warning: &str) {
        if demanded { self.demand(demand) } else { self.warn(warning) }
    }

    /// States a list of accepted values, or the warning if any is accepted.
    fn accepted<const N: usize>(&mut self, what: &str, values: &Accepted<N>, warning: Option<&str>) {
        match (values, warning) {
            (Some(values), _) => {
                let values: Vec<_> = values.iter().map(|v| Hex(v).to_string()).collect();
                self.demand(format!("{what} is {}", values.join(", or ")));
            }
            (None, Some(warning)) => self.warn(warning),
            (None, None) => {}
        }
    }
}

impl Policy {
    /// Says in plain words what the policy demands, and what it leaves open.
    #[must_use]
    pub fn explain(&self) -> Vec<Statement> {
        let mut s = Statements { tee: None, list: Vec::new() };
        let tees: Vec<_> = self.tees().iter().map(|tee| tee.name()).collect();
        if !tees.is_empty() {
            s.demand(format!("the machine is of {}", tees.join(" or ")));
        }
        s.demand("the report is bound to the verifier's nonce, the machine's key and the tenant");
        if self.sample {
            s.tee = Some(Tee::Sample);
            s.warn(
                "a machine without a TEE is accepted, as \"not attested\": anyone can pretend to be that \
                 machine",
            );
        }
        if let Some(policy) = &self.sev_snp {
            s.tee = Some(Tee::SevSnp);
            sev_snp(policy, &mut s);
        }
        if let Some(policy) = &self.tdx {
            s.tee = Some(Tee::Tdx);
            tdx(policy, &mut s);
        }
        s.list
    }
}

fn sev_snp(p: &SevSnpPolicy, s: &mut Statements) {
    s.demand("the report is signed by a chip of AMD, whose certificate leads to the root in this version");
    s.accepted(
        "the measurement at launch",
        &p.measurements,
        Some("any measurement is accepted: the machine may run any software"),
    );
    s.accepted(
        "HOST_DATA",
        &p.host_data,
        Some("any HOST_DATA is accepted: the host chooses the configuration"),
    );
    s.accepted("the digest of the identity key", &p.id_key_digests, None);
    s.accepted("the digest of the author key", &p.author_key_digests, None);
    s.accepted("the family ID", &p.family_ids, None);
    s.accepted("the image ID", &p.image_ids, None);
    if p.minimum_tcb == MinimumTcb::default() {
        s.warn("any TCB is accepted: the host's firmware may have known holes");
    } else {
        let MinimumTcb { bootloader, tee, snp, microcode, fmc } = p.minimum_tcb;
        s.demand(format!(
            "the TCB at launch and now is at least bootloader {bootloader}, TEE {tee}, SNP {snp}, microcode \
             {microcode}, and FMC {fmc} if the chip has one"
        ));
    }
    let [major, minor, build] = p.minimum_firmware;
    if p.minimum_firmware != [0; 3] {
        s.demand(format!("the committed firmware is at least {major}.{minor}.{build}"));
    }
    if p.minimum_guest_svn > 0 {
        s.demand(format!("the guest's security version is at least {}", p.minimum_guest_svn));
    }
    s.demand(format!("the report was requested at VMPL {} or lower", p.highest_vmpl));
    s.either(!p.debug, "debugging is off", "debugging may be on: the host can read the machine's memory");
    s.either(
        !p.migration_agent,
        "no migration agent may be associated",
        "a migration agent is accepted: the machine may move to another host",
    );
    if !p.smt {
        s.demand("the host may not run the machine with SMT");
    }
    if p.vlek {
        s.warn("a key of the cloud provider (VLEK) may sign in place of the chip's own (VCEK)");
    } else {
        s.demand("the chip's own key (VCEK) signs, not one of the cloud provider (VLEK)");
    }
    match &p.crl {
        Some(lists) => s.demand(format!("no certificate is revoked, by {} revocation list(s)", lists.len())),
        None => s.warn("revocation is not checked: a revoked certificate is accepted"),
    }
}

fn tdx(p: &TdxPolicy, s: &mut Statements) {
    s.demand(
        "the quote is signed by a quoting enclave of Intel, whose certificate leads to the root in this \
         version",
    );
    s.demand(format!(
        "certificates and TCB are neither revoked nor expired, by {} file(s) of collateral",
        p.collateral.len()
    ));
    s.accepted("MRTD", &p.mrtd, Some("any MRTD is accepted: the machine may run any software"));
    for (register, values) in ["RTMR0", "RTMR1", "RTMR2", "RTMR3"].into_iter().zip(&p.rtmr) {
        s.accepted(register, values, None);
    }
    if p.rtmr.iter().take(3).any(Option::is_none) {
        s.warn(
            "RTMR0, RTMR1 and RTMR2 are not all listed: they measure configuration, kernel and command line",
        );
    }
    for (register, values) in ["RTMR0", "RTMR1", "RTMR2"].into_iter().zip(&p.rtmr) {
        // Linux before 6.9 leaves RTMR2 so, whatever command line and initial file system the host gives it.
        if values.iter().flatten().any(|value| *value == [0; 48]) {
            s.warn(format!(
                "{register} may be zeros: nothing was measured in it, so the host chooses what runs"
            ));
        }
    }
    s.accepted(
        "MRCONFIGID",
        &p.mr_config_id,
        Some("any MRCONFIGID is accepted: the host chooses the configuration"),
    );
    s.accepted("MROWNER", &p.mr_owner, None);
    s.accepted("MROWNERCONFIG", &p.mr_owner_config, None);
    let statuses: Vec<_> = p.tcb_statuses.iter().map(ToString::to_string).collect();
    let statuses = statuses.join(" or ");
    s.demand(format!("Intel's TCB status of the platform is {statuses}"));
    if statuses != "UpToDate" {
        s.warn("other TCB statuses than UpToDate are accepted: the host may have known holes");
    }
    if p.minimum_tee_tcb_svn != [0; 16] {
        s.demand(format!("TEE_TCB_SVN is at least {} in each byte", Hex(&p.minimum_tee_tcb_svn)));
    }
    if p.minimum_tcb_evaluation > 0 {
        s.demand(format!("Intel's TCB evaluation data number is at least {}", p.minimum_tcb_evaluation));
    }
    s.either(
        !p.debug,
        "debugging and profiling are off",
        "debugging may be on: the host can read the machine's memory",
    );
    s.demand("migration is off, no service TD is bound, and SEPT_VE_DISABLE is on");
}
