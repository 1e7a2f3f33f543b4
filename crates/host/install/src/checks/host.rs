//! Checks of the switch's host: environment, configuration, users, confinement, daemon, running process.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use p4shield_config::{Config, FILE_VARIABLE, Placement};

use super::{PRELOAD, database};
use crate::finding::Finding;
use crate::systemd::{self, Service, Variable};
use crate::users::{self, Account};
use crate::{PreloadedAttachment, Root, Target, library, process, target};

/// The daemon's unit.
const DAEMON: &str = "p4shield.service";

/// What the checks need to know.
pub(crate) struct Host<'a> {
    pub(crate) root: &'a Root,
    pub(crate) kind: PreloadedAttachment,
    pub(crate) target: &'a Target,
    pub(crate) service: Option<&'a Service>,
    pub(crate) variables: &'a [Variable],
    pub(crate) program: Option<&'a Path>,
    pub(crate) library: &'a Path,
    pub(crate) config: &'a Path,
    pub(crate) database: Option<&'a Path>,
}

impl Host<'_> {
    /// Runs all checks.
    pub(crate) fn check(&self, findings: &mut Vec<Finding>) {
        findings.extend(self.environment());
        let config = self.configuration(findings);
        if config.as_ref().is_some_and(|c| c.placement == Placement::Inline) {
            findings.push(library::check_inline(self.root, self.library, self.target));
        }
        if self.service.is_some() {
            self.user(config.as_ref(), findings);
            findings.push(self.daemon());
        }
        findings.extend(self.confinement());
        if let (Some(socket), true) = (self.database, self.program.is_some_and(target::is_ovs)) {
            findings.extend(database::check(self.kind, socket));
        }
        if let (Target::Unit(unit), true) = (self.target, self.root.is_host()) {
            findings.extend(self.running(unit));
        }
    }

    /// Checks for files that override the drop-in's variables.
    fn environment(&self) -> Vec<Finding> {
        let ours =
            self.variables.iter().filter(|v| v.wins && [PRELOAD, FILE_VARIABLE].contains(&v.name.as_str()));
        let overriding = ours.map(|v| {
            let what = format!("{} sets {} after the drop-in and so overrides it", v.file.display(), v.name);
            let remedy =
                format!("remove it there; `p4shield attach` preserves an {PRELOAD} of the unit itself");
            Finding::problem("environment", what, remedy)
        });
        overriding.collect()
    }

    fn configuration(&self, findings: &mut Vec<Finding>) -> Option<Config> {
        const CHECK: &str = "configuration";
        let shown = self.config.display();
        let at = self.root.locate(self.config).unwrap_or_else(|_| self.config.to_owned());
        let config = match Config::load(&at) {
            Ok(config) => config,
            Err(error) => {
                let source = std::error::Error::source(&error).map(|s| format!(": {s}")).unwrap_or_default();
                let remedy = format!("correct it, and check it with `p4shield run --check --config {shown}`");
                findings.push(Finding::problem(CHECK, format!("{error}{source}"), remedy));
                return None;
            }
        };
        let (kind, wanted) = (config.attachment.name(), self.kind.word());
        findings.push(if config.attachment == self.kind.attachment() {
            Finding::good(CHECK, format!("{shown} is valid and has {} tenants", config.tenants.len()))
        } else {
            let what = format!("{shown} has attachment = \"{kind}\"");
            Finding::problem(CHECK, what, format!("write attachment = \"{wanted}\" there"))
        });
        Some(config)
    }

    /// Checks that the switch's user can read the configuration and connect to the daemon.
    fn user(&self, config: Option<&Config>, findings: &mut Vec<Finding>) {
        const CHECK: &str = "user";
        let Some(name) = self.user_name() else {
            findings.push(Finding::good(CHECK, "the switch runs as root"));
            return;
        };
        let Some(account) = users::find(self.root, &name) else {
            let what = format!("the switch's user {name} does not exist (no such user)");
            findings.push(Finding::problem(CHECK, what, "create the user, or change the switch's service"));
            return;
        };
        if account.uid == 0 {
            findings.push(Finding::good(CHECK, "the switch runs as root"));
            return;
        }
        if !self.readable(account) {
            let what = format!("{name} cannot read {}", self.config.display());
            let remedy = format!("run `chmod a+r {}`; keys are in other files", self.config.display());
            findings.push(Finding::problem(CHECK, what, remedy));
        }
        findings.extend(self.file_capabilities(&name));
        let Some(daemon) = config.map(|c| &c.daemon) else { return };
        let admitted = daemon.switch_uids.contains(&account.uid) || daemon.switch_gids.contains(&account.gid);
        findings.push(if admitted {
            Finding::good(CHECK, format!("the switch runs as {name}, which the daemon admits"))
        } else {
            let what = format!("the switch runs as {name}, which the daemon does not admit");
            let remedy =
                format!("write switch_uids = [{}] under [daemon] of {}", account.uid, self.config.display());
            Finding::problem(CHECK, what, remedy)
        });
    }

    /// Returns `USER` or `USER:GROUP` from the unit or the options of Open vSwitch's scripts; `None` for
    /// root.
    fn user_name(&self) -> Option<String> {
        let variable = |name: &str| {
            let last = self.variables.iter().rfind(|v| v.name == name)?;
            Some(last.value.clone()).filter(|v| !v.is_empty())
        };
        let option = || {
            let options = variable("OVS_CTL_OPTS").or_else(|| variable("OPTIONS"))?;
            let mut words = options.split_whitespace();
            words.find_map(|w| w.strip_prefix("--ovs-user=").map(|u| u.trim_matches('"').to_owned()))
        };
        let of_unit = self.service.and_then(Service::user).map(str::to_owned);
        option().or_else(|| variable("OVS_USER")).or_else(|| variable("OVS_USER_ID")).or(of_unit)
    }

    fn readable(&self, account: Account) -> bool {
        let meta = self.root.locate(self.config).and_then(std::fs::metadata);
        // A missing file has been reported already.
        let Ok(meta) = meta else { return true };
        let shift = match (meta.uid() == account.uid, meta.gid() == account.gid) {
            (true, _) => 6,
            (_, true) => 3,
            _ => 0,
        };
        meta.mode() >> shift & 4 != 0
    }

    /// Checks file capabilities, with which the linker ignores `LD_PRELOAD` unless root starts the program.
    fn file_capabilities(&self, user: &str) -> Option<Finding> {
        let at = self.root.locate(self.program?).ok()?;
        let length = rustix::fs::getxattr(&at, c"security.capability", &mut [0_u8; 64]).ok()?;
        (length > 0).then(|| {
            let shown = at.display();
            let what =
                format!("{shown} has file capabilities and {user} starts it: the linker ignores {PRELOAD}");
            let remedy =
                format!("run `setcap -r {shown}`, and grant them with AmbientCapabilities= in the unit");
            Finding::problem("secure-exec", what, remedy)
        })
    }

    fn daemon(&self) -> Finding {
        const CHECK: &str = "daemon";
        match Service::find(self.root, DAEMON) {
            Ok(service) => Finding::good(CHECK, format!("{DAEMON} is {}", service.file.display())),
            Err(_) => Finding::note(
                CHECK,
                format!("there is no {DAEMON}, so the daemon does not start before the switch"),
                "run `make install`, then `systemctl enable --now p4shield`",
            ),
        }
    }

    /// Checks for mandatory access control. Only a running switch shows whether it prevents the preload.
    fn confinement(&self) -> Vec<Finding> {
        const CHECK: &str = "confinement";
        let mut findings = Vec::new();
        let enforce = self.root.read(Path::new("/sys/fs/selinux/enforce")).unwrap_or_default();
        if enforce.trim() == "1" && self.service.is_some() {
            findings.push(Finding::note(
                CHECK,
                "SELinux is enforcing: a service that changes its domain at start ignores LD_PRELOAD \
                 unless the policy \
                 allows it",
                "see \"SELinux and AppArmor\" in docs/how-to/attach-dpdk.md; after the restart, --check \
                 reports whether \
                 the library is loaded",
            ));
        }
        let profiles =
            self.root.read(Path::new("/sys/kernel/security/apparmor/profiles")).unwrap_or_default();
        let name = self.program.and_then(Path::file_name).map(|n| n.to_string_lossy().into_owned());
        let confined = |line: &&str| {
            name.as_ref().is_some_and(|n| line.split(" (").next().is_some_and(|p| p.ends_with(n.as_str())))
        };
        if let Some(profile) = profiles.lines().find(confined) {
            findings.push(Finding::note(
                CHECK,
                format!("AppArmor confines the switch: {profile}"),
                "allow it to read library and configuration and to connect to the daemon's socket; see \
                 \"SELinux and \
                 AppArmor\" in docs/how-to/attach-dpdk.md",
            ));
        }
        findings
    }

    /// Checks the running switch.
    fn running(&self, unit: &str) -> Option<Finding> {
        const CHECK: &str = "running";
        let running = process::of_unit(unit, self.kind)?;
        let pid = running.pid;
        Some(if running.loaded {
            Finding::good(CHECK, format!("the switch (process {pid}) has loaded the library"))
        } else if running.secure == Some(true) {
            let what = format!(
                "the linker of the switch (process {pid}) ignored {PRELOAD} because of the kernel's AT_SECURE"
            );
            let remedy = "the cause is SELinux, AppArmor or file capabilities; see \"SELinux and \
                          AppArmor\" in \
                          docs/how-to/attach-dpdk.md";
            Finding::problem("secure-exec", what, remedy)
        } else {
            let what = format!("the switch (process {pid}) has not loaded the library");
            let remedy = if systemd::runs(self.root) {
                format!(
                    "after the installation, restart the switch at a suitable time: `systemctl restart \
                     {unit}`"
                )
            } else {
                "after the installation, restart the switch at a suitable time".into()
            };
            Finding::note(CHECK, what, remedy)
        })
    }
}
