//! Finds what is wrong with tenants, their files and wires; `switches` does so for switches: `roles` (ports
//! that are not mediated, bypassed or not seen) and `absent`.

use crate::config::{Attachment, Config, Tenant};
use crate::status::problem::{Problem, ProblemKind};
use crate::status::{DirectionStatus, HandshakeStatus, State, TenantStatus, VmStatus, WireStatus};
use p4shield_abi::FailPolicy;
use p4shield_seal::TenantKey;
use std::path::Path;

/// The remedy for a P4 VM that ends again and again, as a machine that an attacker has does.
const ENDS_AGAIN: &str = "; the daemon starts another one; if that ends, too, remove the tenant from the \
                          configuration, run `p4shield reload`, and report what it ended with to the tenant";

/// Returns what happens to packets while the P4 VM or program that should judge them does not run.
pub(crate) fn fail_policy(fail: FailPolicy) -> &'static str {
    match fail {
        FailPolicy::Drop => "the fail policy applies to its packets: they are dropped (fail = \"drop\")",
        FailPolicy::Pass => "the fail policy applies to its packets: they pass unjudged (fail = \"pass\")",
    }
}

/// Returns what is wrong with the tenants and their files, in the order of the configuration.
pub(crate) fn of_tenants(config: &Config, tenants: &[TenantStatus]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for status in tenants {
        let configured = config.tenant(&status.name).map(|(_, tenant)| tenant);
        problems.extend(of_tenant(status, configured));
        if let Some(tenant) = configured {
            problems.extend(absent_files(tenant, status.state));
        }
    }
    problems
}

/// Returns what is wrong with a tenant's P4 VM and VMs. Files are checked separately.
fn of_tenant(tenant: &TenantStatus, configured: Option<&Tenant>) -> Vec<Problem> {
    let name = &tenant.name;
    let mut problems = Vec::new();
    let mut add = |kind, text: String| problems.push(Problem::of_tenant(kind, name, text));
    let policy = fail_policy(configured.map_or(FailPolicy::Drop, |tenant| tenant.fail));
    if matches!(tenant.state, State::Starting | State::Restarting) {
        let why = tenant.error.as_deref().unwrap_or("the daemon is starting it");
        let remedy = if tenant.restarts > 0 { ENDS_AGAIN } else { "" };
        add(ProblemKind::P4vmDown, format!("its P4 VM does not run ({why}); {policy}{remedy}"));
    }
    if let Some(channels) = &tenant.channels {
        let remedy = "use fewer queues, or distribute the switches over more hosts";
        add(ProblemKind::NoChannel, format!("{channels}; {remedy}"));
    }
    if let Some(cores) = &tenant.cores {
        add(ProblemKind::CoreShared, cores.clone());
    }
    if let Some(inline) = &tenant.inline {
        add(ProblemKind::Inline, format!("{inline}; see the switch's log"));
    }
    if !tenant.missing.is_empty() {
        let missing = tenant.missing.join(", ");
        let remedy = "use a kernel that has it, and remove it from allow_missing";
        add(ProblemKind::SandboxMissing, format!("the sandbox lacks {missing}; {remedy}"));
    }
    for vm in &tenant.vms {
        let replaced = || configured.and_then(|tenant| replaced_key_file(tenant, vm));
        problems.extend(of_vm(name, vm, policy, replaced));
    }
    problems
}

/// `replaced` returns the VM's key file if it has another key than the P4 VM.
fn of_vm<'a>(
    tenant: &str,
    vm: &VmStatus,
    policy: &str,
    replaced: impl Fn() -> Option<&'a Path>,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (word, direction) in [("ingress", &vm.ingress), ("egress", &vm.egress)] {
        let mut add = |kind, text: String| {
            problems.push(Problem::of_vm(kind, (tenant, &vm.name), text).direction(word));
        };
        if let Some(error) = &direction.error {
            let text = format!(
                "the {word} program does not run ({error}); until one runs, {policy}; check it with \
                 `p4shield verify`, then run `p4shield program load {tenant} {} {word} FILE`",
                vm.name
            );
            add(ProblemKind::ProgramRefused, text);
        }
        if let Some(text) = late(direction) {
            add(ProblemKind::DeadlineMissed, text);
        }
        if let Some(text) = full(direction) {
            add(ProblemKind::QueueFull, text);
        }
    }
    if vm.keys.as_ref().is_some_and(|keys| keys.overdue) && vm.info.status == "forged" {
        let text = "its agent still used the previous key when the key's window ended, and programs read no \
                    information since; copy the key file to the VM, where the agent reads it at once";
        problems.push(Problem::of_vm(ProblemKind::KeyNotFollowed, (tenant, &vm.name), text));
        return problems;
    }
    if let Some(text) = vm.handshake.as_ref().and_then(no_session) {
        problems.push(Problem::of_vm(ProblemKind::HandshakeMissing, (tenant, &vm.name), text));
        return problems;
    }
    if vm.info.status == "forged"
        && let Some(path) = replaced()
    {
        let text = format!(
            "its information does not authenticate, and {} has another key than the P4 VM; run `p4shield \
             reload`, which rotates to the file's key",
            path.display()
        );
        problems.push(Problem::of_vm(ProblemKind::InfoForged, (tenant, &vm.name), text));
        return problems;
    }
    let (kind, remedy) = match vm.info.status.as_str() {
        "missing" => (ProblemKind::InfoMissing, "start `p4shield agent` in the VM"),
        "stale" => (
            ProblemKind::InfoStale,
            "check that `p4shield agent` still runs in the VM, and compare the clocks",
        ),
        "forged" => (
            ProblemKind::InfoForged,
            "check that the agent and key_file have the same key, tenant and VM name; if they have, an \
             attacker forges",
        ),
        "replayed" => (ProblemKind::InfoReplayed, "an attacker writes old information to the info page"),
        _ => return problems,
    };
    let text = match kind {
        ProblemKind::InfoMissing => {
            format!("a program reads its information, and none was ever published; {remedy}")
        }
        _ => format!("its information is {}; {remedy}", vm.info.status),
    };
    problems.push(Problem::of_vm(kind, (tenant, &vm.name), text));
    problems
}

/// Returns why a VM has no keys; none if it has a session.
fn no_session(handshake: &HandshakeStatus) -> Option<String> {
    let remedy = "programs have no information and there is no log until then; start `p4shield agent run \
                  --handshake-page` in the VM, or read its log";
    match (&handshake.session, &handshake.error) {
        (Some(_), _) => None,
        (None, Some(error)) => Some(format!("its agent and P4 VM do not agree on keys ({error}); {remedy}")),
        (None, None) => Some(format!("its agent has not agreed on keys with the P4 VM yet; {remedy}")),
    }
}

/// Returns the number of packets that had no verdict for this reason.
fn without_verdict(direction: &DirectionStatus, reason: &str) -> u64 {
    let counts = direction.dropped.iter().chain(&direction.let_through);
    counts.filter(|(r, _)| r == reason).map(|(_, n)| n).sum()
}

fn late(direction: &DirectionStatus) -> Option<String> {
    let packets = without_verdict(direction, "deadline");
    (packets > 0).then(|| {
        format!(
            "packets without a verdict at the deadline: {packets}, some in the last minutes; give the P4 VM \
             more time on a core (fewer busy processes beside it, cpu, cpu_percent), or raise the tenant's \
             deadline"
        )
    })
}

fn full(direction: &DirectionStatus) -> Option<String> {
    let packets = without_verdict(direction, "full");
    (packets > 0).then(|| {
        format!(
            "packets that found the queue or the channel full: {packets}, some in the last minutes; give the \
             P4 VM more time on a core, or raise the tenant's max_held and slots"
        )
    })
}

/// Returns a tenant's key and pages that are configured and do not exist.
fn absent_files(tenant: &Tenant, state: State) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (key_file, vm) in tenant.key_files() {
        let Some((path, why)) = absent(key_file) else { continue };
        let text = format!(
            "its key file {path} is absent ({why}), so its P4 VM cannot start; restore the file, or write a \
             new key with `p4shield keygen` for this host and the tenant's VMs"
        );
        problems.push(match vm {
            Some(vm) => Problem::of_vm(ProblemKind::KeyAbsent, (&tenant.name, vm), text),
            None => Problem::of_tenant(ProblemKind::KeyAbsent, &tenant.name, text),
        });
    }
    let remedy = match state {
        State::Running => "restart the daemon, which creates it again",
        _ => "free the path; the daemon tries again until then",
    };
    for (_, vm) in tenant.numbered_vms() {
        let handshake = vm.handshake.as_ref().map(|h| &*h.page);
        let pages = [
            ("info page", "agent", vm.info_page.as_deref()),
            ("log page", "auditor", vm.log_page.as_deref()),
            ("handshake page", "agent", handshake),
        ];
        for (what, user, page) in pages {
            if let Some((path, why)) = page.and_then(absent) {
                let text = format!("its {what} {path} is absent ({why}), so no {user} can open it; {remedy}");
                problems.push(Problem::of_vm(ProblemKind::PageAbsent, (&tenant.name, &vm.name), text));
            }
        }
    }
    problems
}

/// Returns why there is no file at this path, with the path; `None` if there is one.
fn absent(path: &Path) -> Option<(String, String)> {
    let why = match std::fs::metadata(path) {
        Ok(file) if file.is_file() => return None,
        Ok(_) => "something else is there".to_owned(),
        Err(e) => e.to_string(),
    };
    Some((path.display().to_string(), why))
}

/// Returns the interfaces of wires that are not attached, and the VMs without a wire.
pub(crate) fn of_wires(config: &Config, wires: &[WireStatus]) -> Vec<Problem> {
    if config.attachment != Attachment::Wire {
        return Vec::new();
    }
    let names = |vm: p4shield_abi::VmRef| {
        let tenant = config.tenants.get(usize::from(vm.tenant))?;
        Some((tenant.name.as_str(), tenant.vms.get(usize::from(vm.vm))?.name.as_str()))
    };
    let mut problems = Vec::new();
    for wire in wires {
        let configured = config.wires.iter().find(|w| w.vm_interface == wire.name);
        let owner = configured.and_then(|w| names(w.vm)).unwrap_or_default();
        for side in [&wire.vm, &wire.switch].into_iter().filter(|side| !side.up) {
            let why = side.remark.as_deref().unwrap_or("the daemon is attaching it");
            let text = format!(
                "it is not attached ({why}), so the wire carries no packet; if it is absent, create it or \
                 correct its name in [[wire]]"
            );
            let problem = Problem::of_vm(ProblemKind::InterfaceDown, owner, text);
            problems.push(problem.at("interface", &side.interface));
        }
    }
    // A VM that programs may judge has a wire, which came with its switch.
    if config.topology.is_some() {
        return problems;
    }
    let has_wire = |tenant: usize, vm: usize| {
        config.wires.iter().any(|w| (usize::from(w.vm.tenant), usize::from(w.vm.vm)) == (tenant, vm))
    };
    for (t, tenant) in config.numbered_tenants() {
        for (_, vm) in tenant.numbered_vms().filter(|(v, _)| !has_wire(t, *v)) {
            let text = "no [[wire]] belongs to it, so no packet at its interface is judged; add a [[wire]] \
                        with this tenant and vm";
            problems.push(Problem::of_vm(ProblemKind::VmWithoutPort, (&tenant.name, &vm.name), text));
        }
    }
    problems
}

/// Returns the VM's key file, if it has another key than the VM's P4 VM.
pub(crate) fn replaced_key_file<'a>(tenant: &'a Tenant, vm: &VmStatus) -> Option<&'a Path> {
    let running = &vm.keys.as_ref()?.key;
    let configured = tenant.vms.iter().find(|configured| configured.name == vm.name)?;
    let path = tenant.key_file_of(configured)?;
    // A file that is refused is a problem of its own.
    let on_disk = TenantKey::load(path).ok()?;
    (on_disk.id().to_string() != *running).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::problem::lines;
    use crate::status::{InfoStatus, SideStatus};

    const TEXT: &str = r#"
[[tenant]]
name = "alice"
key_file = "alice.key"
[[tenant.vm]]
name = "web"
addresses = ["10.0.0.1"]
info_page = "web.info"
log_page = "web.log"
[[tenant.vm]]
name = "db"
addresses = ["10.0.0.2"]
[[wire]]
vm_interface = "tap-web"
switch_interface = "sw-web"
tenant = "alice"
vm = "web"
"#;

    fn kinds(problems: &[Problem]) -> Vec<ProblemKind> {
        problems.iter().map(|p| p.kind).collect()
    }

    #[test]
    fn each_fault_of_a_tenant_has_a_remedy() {
        let info = InfoStatus { status: "missing".into(), ..InfoStatus::default() };
        let egress = DirectionStatus {
            error: Some("refused".into()),
            dropped: vec![("deadline".into(), 3), ("full".into(), 1)],
            let_through: vec![("deadline".into(), 4)],
            ..DirectionStatus::default()
        };
        let vm = VmStatus { name: "web".into(), info, egress, ..VmStatus::default() };
        let tenant = TenantStatus {
            name: "alice".into(),
            missing: vec!["landlock".into()],
            channels: Some("2 lanes have no channel".into()),
            cores: Some("cpu = 3 is a core on which the switch polls".into()),
            vms: vec![vm],
            ..TenantStatus::default()
        };
        let text = TEXT.replacen("name =", "fail = \"pass\"\nname =", 1);
        let config = Config::parse(Path::new("/p4shield.toml"), &text).unwrap();
        let advice = lines(&of_tenant(&tenant, config.tenant("alice").map(|(_, tenant)| tenant)));
        for part in [
            "the fail policy applies to its packets: they pass unjudged",
            "fewer queues",
            "allow_missing",
            "program load alice web egress",
            "p4shield agent",
            "cpu = 3",
            "at the deadline: 7",
            "channel full: 1",
        ] {
            assert!(advice.iter().any(|a| a.contains(part)), "{part}: {advice:?}");
        }
        let fine = TenantStatus { state: State::Running, ..TenantStatus::default() };
        assert_eq!(of_tenant(&fine, None), []);
    }

    #[test]
    fn absent_keys_and_pages_are_problems_of_their_owner() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let config = Config::parse(&at("p4shield.toml"), TEXT).unwrap();
        let status = TenantStatus { name: "alice".into(), state: State::Running, ..TenantStatus::default() };
        let found = || of_tenants(&config, std::slice::from_ref(&status));
        let expected = [ProblemKind::KeyAbsent, ProblemKind::PageAbsent, ProblemKind::PageAbsent];
        assert_eq!(kinds(&found()), expected);
        assert_eq!((found()[1].tenant.as_deref(), found()[1].vm.as_deref()), (Some("alice"), Some("web")));
        for name in ["alice.key", "web.info"] {
            std::fs::write(at(name), "").unwrap();
        }
        std::fs::create_dir(at("web.log")).unwrap();
        let left = found();
        assert_eq!(kinds(&left), [ProblemKind::PageAbsent]);
        assert!(left[0].text.contains("web.log") && left[0].text.contains("something else"), "{left:?}");
    }

    #[test]
    fn absent_interfaces_and_missing_wires_name_their_vm() {
        let config = Config::parse(Path::new("p4shield.toml"), TEXT).unwrap();
        let side = |name: &str, up| SideStatus { interface: name.into(), up, ..SideStatus::default() };
        let wire = WireStatus {
            name: "tap-web".into(),
            vm: SideStatus { remark: Some("there is no interface".into()), ..side("tap-web", false) },
            switch: side("sw-web", true),
        };
        let found = of_wires(&config, &[wire]);
        assert_eq!(kinds(&found), [ProblemKind::InterfaceDown, ProblemKind::VmWithoutPort]);
        assert_eq!(found[0].subject, "tenant alice, VM web, interface tap-web");
        assert_eq!(found[0].port.as_deref(), Some("tap-web"));
        assert_eq!(found[1].vm.as_deref(), Some("db"));
    }
}
