//! The script: phases, observations and claims.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use p4shield_testbed::process::last_lines;
use p4shield_testbed::{Guarded, Product};
use rustix::process::{Pid, Signal, kill_process};

use crate::audit_output::{bypassed, words_of};
use crate::auditor::Auditor;
use crate::claim::Claims;
use crate::options::{DemoResult, Options};
use crate::report::Facts;
use crate::scene::{Scene, TENANT, VM, VM_NAME, used_tcp_memory};
use crate::timeline::{Phase, Sample, Timeline};
use crate::traffic::{Client, Plan, Server, Totals};
use crate::{attack, report, scene};

/// The configuration.
const CONFIG: &str = include_str!("demo.toml");
/// What is different in the configuration if the P4 VM is a virtual machine: by emulation, a packet and a
/// check of information take some milliseconds.
const MACHINE: [[&str; 2]; 3] = [
    ["compartment = \"process\"", "compartment = \"vm\""],
    ["deadline = \"50ms\"", "deadline = \"200ms\"\nmemory = \"256MiB\""],
    ["age_limit = \"300ms\"", "age_limit = \"1s\""],
];
/// The age limits of the configuration: of a process, of a virtual machine.
const AGE_LIMIT: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(1)];
/// Seconds for the daemon to replace a killed P4 VM: a process, a virtual machine.
const REPLACEMENT: [u64; 2] = [10, 120];
/// Established connections, kept over the whole run.
const ESTABLISHED: usize = 8;
/// Connections that fill memory.
const HOARDERS: usize = 48;
/// Distance of the threshold above the TCP memory used at the start.
const MARGIN: u64 = 4 << 20;
/// Packets that the malicious cloud sends past the program.
const ROUND: u16 = 25;
/// Seconds after which an established connection without an answer counts as stalled, by the same: longer
/// than TCP's pauses before retransmissions, which a restart of the P4 VM may cause.
const ANSWER: [u64; 2] = [2, 60];

/// Runs the demonstration.
///
/// # Errors
/// A part does not start, or the user interrupts. A claim that fails is a [`DemoResult`], not an error.
pub fn run(options: &Options) -> anyhow::Result<DemoResult> {
    report::prepare(&options.report)?;
    let mut stage = Stage::set(options)?;
    stage.below()?;
    stage.above()?;
    stage.below_again()?;
    stage.bypass()?;
    stage.replay()?;
    stage.kill()?;
    stage.check_parts()?;
    let facts = Facts {
        switch: stage.scene.switch.name(),
        compartment: options.compartment(),
        user_vm: "a network namespace, as is the client",
        established: ESTABLISHED,
        machine: scene::machine(),
    };
    let page = report::write(&options.report, &facts, &stage.timeline, &stage.claims)?;
    Ok(DemoResult { held: stage.claims.held(), page })
}

/// Everything that runs. Fields are dropped in this order: traffic first, the scene last.
struct Stage<'a> {
    options: &'a Options,
    client: Client,
    server: Server,
    auditor: Auditor,
    agent: Guarded,
    product: Product,
    scene: Scene,
    timeline: Timeline,
    claims: Claims,
    start: Instant,
}

impl<'a> Stage<'a> {
    fn set(options: &'a Options) -> anyhow::Result<Self> {
        let say = options.say;
        let scene = Scene::build()?;
        say(&format!("switch: {}; machine: {}", scene.switch.name(), scene::machine()));
        let product = Product::start(Some(&scene.host), &options.program, &config(options.image.as_deref()))?;
        let threshold = used_tcp_memory()? + MARGIN;
        let kind = if options.image.is_some() { "virtual machine, process" } else { "process" };
        say(&format!("P4 VM: {kind} {}, program tcp_guard.p4", product.p4vm().unwrap_or_default()));
        let agent = product.agent(&scene.vm, [TENANT, VM_NAME], "eth0", threshold)?;
        let server = Server::start(&scene.vm, VM).context("cannot start the server in the user VM")?;
        let patience = Duration::from_secs(ANSWER[usize::from(options.image.is_some())]);
        // Two groups fill memory: for the script's second phase, and for the replay.
        let plan =
            Plan { established: ESTABLISHED, hoarders: HOARDERS, groups: 2, patience, ..Plan::default() };
        let client = Client::start(&scene.client, VM, plan).context("cannot open the first connections")?;
        let auditor = Auditor::start(&scene.vm, &product)?;
        say(&Sample::heading());
        let timeline = Timeline { threshold, samples: Vec::new(), phases: Vec::new() };
        Ok(Self {
            options,
            client,
            server,
            auditor,
            agent,
            product,
            scene,
            timeline,
            claims: Claims::default(),
            start: Instant::now(),
        })
    }

    /// Runs a phase for `seconds` (a third of that if quick), takes samples, and returns the client's
    /// observations.
    fn watch(&mut self, name: &'static str, seconds: u64) -> anyhow::Result<Totals> {
        let seconds = self.options.seconds(seconds);
        let from = self.start.elapsed().as_secs_f64();
        let begin = self.client.totals();
        let mut before = begin;
        for _ in 0..seconds {
            let until = Instant::now() + Duration::from_secs(1);
            while Instant::now() < until {
                self.options.check_interrupted()?;
                self.check_parts()?;
                std::thread::sleep(Duration::from_millis(20));
            }
            let after = self.client.totals();
            let at = self.start.elapsed().as_secs_f64();
            let sample = Sample::new(at, used_tcp_memory()?, before, after, self.auditor.words());
            (self.options.say)(&sample.row(self.timeline.threshold, ESTABLISHED));
            self.timeline.samples.push(sample);
            before = after;
        }
        self.timeline.phases.push(Phase { name, from, to: self.start.elapsed().as_secs_f64() });
        Ok(self.client.totals() - begin)
    }

    /// Checks that every process still runs: otherwise a claim would describe another situation.
    fn check_parts(&mut self) -> anyhow::Result<()> {
        let parts = [
            ("the switch (ovs-vswitchd)", self.scene.switch.ended(), None),
            ("the host daemon (p4shield run)", self.product.ended(), Some("run")),
            ("the agent (p4shield agent)", self.agent.ended(), Some("agent")),
            ("the auditor (p4shield audit)", self.auditor.ended(), Some("audit")),
        ];
        for (part, ended, log) in parts {
            let Some(how) = ended else { continue };
            let words =
                log.map_or_else(|| last_lines(&self.scene.switch.log(), 5), |l| self.product.log_end(l));
            bail!("{part} ended during the demo ({how}); the end of its log:\n{words}");
        }
        Ok(())
    }

    fn claim(&mut self, says: &'static str, held: bool, observed: String) {
        (self.options.say)(&self.claims.check(says, held, observed).line());
    }

    /// Waits for packets in flight, so that a phase is measured by its own packets. A connection attempt
    /// takes up to half a second, and longer where other work delays the client: the one that began before
    /// ends.
    fn settle(&self) -> anyhow::Result<()> {
        std::thread::sleep(Duration::from_millis(800));
        let attempts = || self.client.totals().accepted + self.client.totals().denied;
        let before = attempts();
        Ok(p4shield_testbed::wait_until("the end of a connection attempt", 10, || attempts() > before)?)
    }

    /// Fills memory until it is well above the threshold: used memory fluctuates.
    fn fill(&mut self) -> anyhow::Result<()> {
        self.client.fill();
        let enough = self.timeline.threshold + MARGIN / 4;
        self.until("filling of TCP memory", |used| used > enough)
    }

    /// Frees memory until it is well below the threshold.
    fn empty(&mut self) -> anyhow::Result<()> {
        self.client.empty();
        self.server.release();
        let enough = self.timeline.threshold - MARGIN / 4;
        self.until("freeing of TCP memory", |used| used < enough)
    }

    fn until(&mut self, what: &str, reached: impl Fn(u64) -> bool) -> anyhow::Result<()> {
        let came = p4shield_testbed::wait_until(what, 20, || used_tcp_memory().is_ok_and(&reached));
        self.check_parts()?;
        came?;
        self.settle()
    }

    fn below(&mut self) -> anyhow::Result<()> {
        (self.options.say)("-- memory below the threshold");
        let seen = self.watch("below", 6)?;
        self.claim(
            "below the threshold every new connection is accepted",
            seen.accepted > 0 && seen.denied == 0,
            seen.connections(),
        );
        Ok(())
    }

    fn above(&mut self) -> anyhow::Result<()> {
        (self.options.say)("-- the client fills the VM's TCP memory");
        self.fill()?;
        let seen = self.watch("above", 9)?;
        self.claim(
            "above the threshold every new connection is denied",
            seen.denied > 0 && seen.accepted == 0,
            seen.connections(),
        );
        self.claim(
            "established connections continue",
            seen.answered > 0 && self.client.totals().stalled == 0,
            format!("{} answers, {} of {ESTABLISHED} stalled", seen.answered, self.client.totals().stalled),
        );
        Ok(())
    }

    fn below_again(&mut self) -> anyhow::Result<()> {
        (self.options.say)("-- memory is freed");
        self.empty()?;
        let seen = self.watch("freed", 6)?;
        self.claim(
            "when memory is freed new connections are accepted again",
            seen.accepted > 0 && seen.denied == 0,
            seen.connections(),
        );
        let findings = self.auditor.take_findings();
        self.claim(
            "the auditor confirms every packet so far",
            findings.is_empty(),
            if findings.is_empty() { self.auditor.words() } else { words_of(&findings) },
        );
        Ok(())
    }

    fn bypass(&mut self) -> anyhow::Result<()> {
        (self.options.say)("-- attack: the cloud sends packets past the program");
        attack::bypass(&self.scene.host, &self.scene.vm, ROUND)
            .context("cannot send packets past the program")?;
        self.watch("bypass", 9)?;
        let findings = self.auditor.take_findings();
        self.claim(
            "the auditor counts the packets that bypassed the program",
            bypassed(&findings) == u64::from(ROUND),
            words_of(&findings),
        );
        Ok(())
    }

    fn replay(&mut self) -> anyhow::Result<()> {
        (self.options.say)(
            "-- attack: memory fills while the cloud replays information from when it was low",
        );
        let page = self.product.at("vm.info");
        let earlier = std::fs::read(&page).context("cannot read the info page")?;
        let [accepted, before] = ["accepted", "replayed"].map(|counter| self.info(counter));
        let limit = ANSWER[usize::from(self.options.image.is_some())];
        self.options.wait("newer information in the P4 VM", limit, || {
            Ok(self.info("accepted") >= accepted + attack::NEWER)
        })?;
        let is_over = AtomicBool::new(false);
        let (seen, replay) = std::thread::scope(|scope| {
            let attack = scope.spawn(|| attack::replay(&page, &earlier, &is_over));
            let seen = self.fill().and_then(|()| {
                // The last information from before the attack counts until then.
                std::thread::sleep(AGE_LIMIT[usize::from(self.options.image.is_some())]);
                self.settle()?;
                self.watch("replay", 6)
            });
            is_over.store(true, Ordering::Relaxed);
            (seen, attack.join().unwrap_or_else(|e| std::panic::resume_unwind(e)))
        });
        replay.context("cannot write the info page")?;
        let seen = seen?;
        let replayed = self.info("replayed") - before;
        self.claim(
            "the P4 VM detects replayed information",
            replayed > 0,
            format!("the P4 VM refused {replayed} replayed publications"),
        );
        self.claim(
            "the program denies new connections instead of trusting replayed information",
            seen.denied > 0 && seen.accepted == 0,
            seen.connections(),
        );
        self.empty()?;
        self.watch("fresh", 3)?;
        Ok(())
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        (self.options.say)("-- attack: the cloud kills the P4 VM");
        let _ = self.auditor.take_findings();
        let Some(old) = self.product.p4vm() else {
            self.claim("the P4 VM can be killed", false, "none is running".into());
            return Ok(());
        };
        if let Some(pid) = Pid::from_raw(old) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let limit = REPLACEMENT[usize::from(self.options.image.is_some())];
        let healed = p4shield_testbed::wait_until("restart of the P4 VM", limit, || {
            self.product.p4vm().is_some_and(|new| new != old)
        });
        self.claim(
            "the daemon replaces a killed P4 VM; the switch keeps running",
            healed.is_ok(),
            format!("process {old}, then {}", self.product.p4vm().unwrap_or_default()),
        );
        // TCP repeats a segment after ever longer pauses, and the next may come that long after the outage.
        let answered = self.client.totals().answered;
        let limit = ANSWER[usize::from(self.options.image.is_some())];
        let _ = p4shield_testbed::wait_until("an answer", limit, || self.client.totals().answered > answered);
        self.settle()?;
        let seen = self.watch("killed", 9)?;
        self.claim(
            "afterwards new connections are accepted and established ones continue",
            seen.accepted > 0 && seen.answered > 0 && self.client.totals().stalled == 0,
            format!("{}, {} stalled", seen.connections(), self.client.totals().stalled),
        );
        let findings = self.auditor.take_findings();
        self.claim(
            "the auditor reports the P4 VM's restart",
            findings.iter().any(|f| f["finding"] == "restarted"),
            words_of(&findings),
        );
        Ok(())
    }

    /// Returns one of the P4 VM's counters of information about the VM.
    fn info(&self, counter: &str) -> u64 {
        self.product.status()["tenants"][0]["vms"][0]["info"][counter].as_u64().unwrap_or(0)
    }
}

/// Returns the configuration.
fn config(image: Option<&Path>) -> String {
    let Some(image) = image else { return CONFIG.to_owned() };
    let text = MACHINE.iter().fold(CONFIG.to_owned(), |text, [from, to]| text.replace(from, to));
    format!("{text}\n[machine]\nimage = \"{}\"\n", image.display())
}
