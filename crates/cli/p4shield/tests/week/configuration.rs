//! The configuration of a cloud, and what an operator changes in it.

/// What connects the machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attachment {
    Xsk,
    Dpdk,
    Wire,
}

impl Attachment {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Xsk => "xsk",
            Self::Dpdk => "dpdk",
            Self::Wire => "wire",
        }
    }

    /// The name of a machine's port in the configuration.
    pub(crate) fn port(self, interface: &str) -> String {
        if self == Self::Dpdk { format!("net_af_packet_{interface}") } else { interface.to_owned() }
    }
}

/// Returns the next random number, less than `n`.
pub(crate) fn below(random: &mut u64, n: u64) -> u64 {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*random >> 33) % n
}

/// What an operator may change; db is bob's and never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Configuration {
    /// Milliseconds. On a busy machine a P4 VM has no core for half a second and more.
    pub(crate) deadline: u32,
    pub(crate) fail: &'static str,
    pub(crate) max_held: u32,
    pub(crate) program: usize,
    pub(crate) alias: bool,
    pub(crate) app: bool,
    pub(crate) carol: bool,
    pub(crate) uplink: bool,
    pub(crate) budget: u32,
    /// Whether alice's P4 VM is a virtual machine.
    pub(crate) machine: bool,
}

impl Configuration {
    pub(crate) const START: Self = Self {
        deadline: 10_000,
        fail: "drop",
        max_held: 4096,
        program: 0,
        alias: false,
        app: false,
        carol: false,
        uplink: false,
        budget: 100_000,
        machine: false,
    };

    /// Changes one thing at random; returns whether alice's P4 VM must restart for it.
    pub(crate) fn change(&mut self, random: &mut u64, gentle: bool) -> bool {
        let mut below = |n| below(random, n);
        match below(if gentle { 8 } else { 9 }) {
            0 => self.deadline = 9_500 + below(500) as u32,
            1 => self.fail = if self.fail == "drop" { "pass" } else { "drop" },
            2 => self.max_held = 512 << below(4),
            3 => self.program = 1 - self.program,
            4 => self.alias = !self.alias,
            5 => self.app = !self.app,
            6 => self.carol = !self.carol,
            7 => self.uplink = !self.uplink,
            _ => {
                self.budget += 1;
                return true;
            }
        }
        false
    }

    pub(crate) fn text(&self, attachment: Attachment) -> String {
        let tenant = |name: &str, settings: &str| {
            format!("[[tenant]]\nname = \"{name}\"\ndeadline = \"500ms\"\n{settings}")
                .replace(if settings.contains("deadline") { "deadline = \"500ms\"\n" } else { "\0" }, "")
        };
        let vm = |name: &str, addresses: &str, program: usize| {
            format!(
                "[[tenant.vm]]\nname = \"{name}\"\naddresses = [{addresses}]\n\
                 ingress = [\"program{program}.o\"]\negress = [\"program0.o\"]\n"
            )
        };
        let Self { deadline, fail, max_held, program, budget, .. } = self;
        let mut text = format!(
            "attachment = \"{}\"\n[daemon]\nsocket = \"p4shield.sock\"\nattach_socket = \"attach.sock\"\n",
            attachment.name()
        );
        text += "[machine]\nimage = \"closed/image\"\n";
        // The others lose nothing: their P4 VMs answer also if they have no core for a while.
        text += &tenant("bob", "deadline = \"10s\"\n");
        text += &vm("db", "\"10.9.6.3\"", 0);
        let compartment = if self.machine { "compartment = \"vm\"\nmemory = \"256MiB\"\n" } else { "" };
        if self.carol {
            text += &tenant("carol", "fail = \"pass\"\n");
            text += &vm("mail", "\"10.9.6.4\"", 1);
        }
        text += &tenant(
            "alice",
            &format!(
                "deadline = \"{deadline}ms\"\nfail = \"{fail}\"\nmax_held = {max_held}\nbudget = {budget}\n\
                 {compartment}"
            ),
        );
        let alias = if self.alias { "\"10.9.6.1\", \"10.9.6.101\"" } else { "\"10.9.6.1\"" };
        text += &vm("web", alias, *program);
        if self.app {
            text += &vm("app", "\"10.9.6.2\"", *program);
        }
        let mut ends = vec![("b0", "bob", "db"), ("a0", "alice", "web")];
        ends.extend(self.app.then_some(("a1", "alice", "app")));
        ends.extend(self.carol.then_some(("d0", "carol", "mail")));
        for (interface, tenant, vm) in ends {
            text += &match attachment {
                Attachment::Wire => format!(
                    "[[wire]]\nvm_interface = \"{interface}\"\nswitch_interface = \"{interface}-sw\"\n"
                ),
                _ => format!("[[port]]\nname = \"{}\"\n", attachment.port(interface)),
            };
            text += &format!("tenant = \"{tenant}\"\nvm = \"{vm}\"\n");
        }
        if attachment != Attachment::Wire {
            let others = [("c0", true), ("a1", !self.app), ("d0", !self.carol)];
            for (interface, _) in others.into_iter().filter(|(_, listed)| *listed) {
                let role = if interface == "c0" && self.uplink { "uplink" } else { "shared" };
                let name = attachment.port(interface);
                text += &format!("[[port]]\nname = \"{name}\"\nrole = \"{role}\"\n");
            }
        }
        text
    }
}
