//! The host around the switch: environment, configuration, users, confinement, the daemon, the running process.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use p4shield_config::{Config, FILE_VARIABLE, Placement};

use super::{PRELOAD, database};
use crate::finding::Finding;
use crate::systemd::{self, Service, Variable};
use crate::users::{self, Account};
use crate::{Kind, Root, Target, library, process, target};

/// The daemon's unit.
const DAEMON: &str = "p4shield.service";

/// What is known so far.
pub(crate) struct Host<'a> {
    pub(crate) root: &'a Root,
    pub(crate) kind: Kind,
    pub(crate) target: &'a Target,
    pub(crate) service: Option<&'a Service>,
    pub(crate) variables: &'a [Variable],
    pub(crate) program: Option<&'a Path>,
    pub(crate) library: &'a Path,
    pub(crate) config: &'a Path,
    pub(crate) database: Option<&'a Path>,
}

impl Host<'_> {
    /// Looks at all of it.
    pub(crate) fn look(&self, findings: &mut Vec<Finding>) {
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

    /// Others that set our variables after us.
    fn environment(&self) -> Vec<Finding> {
        let ours =
            self.variables.iter().filter(|v| v.wins && [PRELOAD, FILE_VARIABLE].contains(&v.name.as_str()));
        let told = ours.map(|v| {
            let what = format!("{} sets {} after us, and the last one wins", v.file.display(), v.name);
            let remedy = format!("take it out there: `p4shield attach` keeps an {PRELOAD} of the unit's own");
            Finding::problem("environment", what, remedy)
        });
        told.collect()
    }

    fn configuration(&self, findings: &mut Vec<Finding>) -> Option<Config> {
        const CHECK: &str = "configuration";
        let shown = self.config.display();
        let at = self.root.locate(self.config).unwrap_or_else(|_| self.config.to_owned());
        let config = match Config::load(&at) {
            Ok(config) => config,
            Err(error) => {
                let source = std::error::Error::source(&error).map(|s| format!(": {s}")).unwrap_or_default();
                let remedy = format!("write it, and try it with `p4shield run --check --config {shown}`");
                findings.push(Finding::problem(CHECK, format!("{error}{source}"), remedy));
                return None;
            }
        };
        let (kind, wanted) = (config.attachment.name(), self.kind.word());
        findings.push(if config.attachment == self.kind.attachment() {
            Finding::good(CHECK, format!("{shown} is right, with {} tenants", config.tenants.len()))
        } else {
            let what = format!("{shown} says attachment = \"{kind}\"");
            Finding::problem(CHECK, what, format!("write attachment = \"{wanted}\" there"))
        });
        Some(config)
    }

    /// The user that the switch runs as: it has to read the configuration and to reach the daemon.
    fn user(&self, config: Option<&Config>, findings: &mut Vec<Finding>) {
        const CHECK: &str = "user";
        let Some(name) = self.user_name() else {
            findings.push(Finding::good(CHECK, "the switch runs as root"));
            return;
        };
        let Some(account) = users::find(self.root, &name) else {
            let what = format!("the switch is to run as {name}, and there is no such user");
            findings.push(Finding::problem(CHECK, what, "make the user, or change the switch's service"));
            return;
        };
        if account.uid == 0 {
            findings.push(Finding::good(CHECK, "the switch runs as root"));
            return;
        }
        if !self.readable(account) {
            let what = format!("{name} cannot read {}", self.config.display());
            let remedy = format!("`chmod a+r {}`; keys are in files of their own", self.config.display());
            findings.push(Finding::problem(CHECK, what, remedy));
        }
        findings.extend(self.file_capabilities(&name));
        let Some(daemon) = config.map(|c| &c.daemon) else { return };
        let admitted = daemon.switch_uids.contains(&account.uid) || daemon.switch_gids.contains(&account.gid);
        findings.push(if admitted {
            Finding::good(CHECK, format!("the switch runs as {name}, whom the daemon admits"))
        } else {
            let what = format!("the switch runs as {name}, whom the daemon does not admit");
            let remedy =
                format!("write switch_uids = [{}] under [daemon] of {}", account.uid, self.config.display());
            Finding::problem(CHECK, what, remedy)
        });
    }

    /// `USER` or `USER:GROUP`, as the unit or Open vSwitch's scripts have it; none for root.
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
        // What is missing was told before.
        let Ok(meta) = meta else { return true };
        let shift = match (meta.uid() == account.uid, meta.gid() == account.gid) {
            (true, _) => 6,
            (_, true) => 3,
            _ => 0,
        };
        meta.mode() >> shift & 4 != 0
    }

    /// A program that gains capabilities by its file is not trusted with `LD_PRELOAD` unless root starts it.
    fn file_capabilities(&self, user: &str) -> Option<Finding> {
        let at = self.root.locate(self.program?).ok()?;
        let length = rustix::fs::getxattr(&at, c"security.capability", &mut [0_u8; 64]).ok()?;
        (length > 0).then(|| {
            let shown = at.display();
            let what = format!(
                "{shown} has capabilities of its own and {user} starts it: the linker ignores {PRELOAD}"
            );
            let remedy = format!("`setcap -r {shown}`, and give them by AmbientCapabilities= of the unit");
            Finding::problem("secure-exec", what, remedy)
        })
    }

    fn daemon(&self) -> Finding {
        const CHECK: &str = "daemon";
        match Service::find(self.root, DAEMON) {
            Ok(service) => Finding::good(CHECK, format!("{DAEMON} is {}", service.file.display())),
            Err(_) => Finding::note(
                CHECK,
                format!("there is no {DAEMON}: nobody starts the daemon before the switch"),
                "`make install` brings it; then `systemctl enable --now p4shield`",
            ),
        }
    }

    /// What mandatory access control may forbid. Whether it does, only a running switch shows.
    fn confinement(&self) -> Vec<Finding> {
        const CHECK: &str = "confinement";
        let mut findings = Vec::new();
        let enforce = self.root.read(Path::new("/sys/fs/selinux/enforce")).unwrap_or_default();
        if enforce.trim() == "1" && self.service.is_some() {
            findings.push(Finding::note(
                CHECK,
                "SELinux enforces: services that change their domain at start ignore LD_PRELOAD unless the policy lets \
                 them keep it",
                "see \"SELinux and AppArmor\" in docs/how-to/attach-dpdk.md; after the restart, --check tells whether it was loaded",
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
                "let it read library and configuration and connect to the daemon's socket; \"SELinux and AppArmor\" in \
                 docs/how-to/attach-dpdk.md has the lines",
            ));
        }
        findings
    }

    /// The switch that runs now.
    fn running(&self, unit: &str) -> Option<Finding> {
        const CHECK: &str = "running";
        let running = process::of_unit(unit, self.kind)?;
        let pid = running.pid;
        Some(if running.loaded {
            Finding::good(CHECK, format!("the switch (process {pid}) has loaded the library"))
        } else if running.secure == Some(true) {
            let what = format!("the kernel had the linker of the switch (process {pid}) ignore {PRELOAD}");
            let remedy = "it is SELinux, AppArmor, or capabilities of the file; see \"SELinux and AppArmor\" in docs/how-to/attach-dpdk.md";
            Finding::problem("secure-exec", what, remedy)
        } else {
            let what = format!("the switch (process {pid}) has not loaded the library");
            let remedy = if systemd::runs(self.root) {
                format!("once it is installed, restart it when that suits: `systemctl restart {unit}`")
            } else {
                "once it is installed, restart it when that suits".into()
            };
            Finding::note(CHECK, what, remedy)
        })
    }
}
