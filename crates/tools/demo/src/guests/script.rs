//! The script with guests: phases, observations and claims.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use p4shield_testbed::process::last_lines;
use serde_json::Value;

use super::Parts;
use super::attack::{kill_p4vm, packets_out};
use super::inside::PLAN;
use super::scene::{PORT, Scene, Sides};
use crate::attack;
use crate::audit_output::{bypassed, words_of};
use crate::claim::Claims;
use crate::options::{DemoResult, Options};
use crate::report::{self, Facts};
use crate::scene::machine;
use crate::timeline::{Phase, Sample, Timeline};
use crate::traffic::Totals;

/// TCP memory above which the tenant sheds load. Linux 6 accounts it in steps of a MiB for each processor.
const THRESHOLD: u64 = 3 << 20;
/// Distance from it that ends filling and freeing: used memory fluctuates.
const MARGIN: u64 = 1 << 19;
/// Packets that the malicious cloud sends past the program.
const ROUND: u8 = 25;
/// Seconds for one step of emulated machines that share two cores.
const PATIENCE: u64 = 90;
/// Findings that a busy machine causes without an attack: packets miss their deadline, records are late.
const BUSY: [&str; 4] = ["withheld", "log_delayed", "log_stopped", "unrecorded"];

const SWITCH: &str = "Open vSwitch over DPDK with libp4shield_dpdk.so, vhost-user ports";

/// Runs the demonstration with guests.
///
/// # Errors
/// A part does not start, or the user interrupts. A claim that fails is a [`DemoResult`], not an error.
pub fn run(options: &Options, parts: &Parts) -> anyhow::Result<DemoResult> {
    report::prepare(&options.report)?;
    let played = play(options, parts);
    if played.is_err() {
        // A terminal interrupts every process, and the parts' ends are a consequence.
        options.check_interrupted()?;
    }
    let (timeline, claims) = played?;
    let facts = Facts {
        switch: SWITCH,
        compartment: options.compartment(),
        user_vm: "a QEMU guest, as is the client",
        established: PLAN.established,
        machine: machine(),
    };
    let page = report::write(&options.report, &facts, &timeline, &claims)?;
    Ok(DemoResult { held: claims.held(), page })
}

/// Plays the script, and removes everything that it made.
fn play(options: &Options, parts: &Parts) -> anyhow::Result<(Timeline, Claims)> {
    let mut stage = Stage::set(options, parts)?;
    stage.below()?;
    stage.above()?;
    stage.below_again()?;
    stage.bypass()?;
    stage.replay()?;
    stage.kill()?;
    stage.scene.check_parts()?;
    Ok((stage.timeline, stage.claims))
}

struct Stage<'a> {
    options: &'a Options,
    scene: Scene,
    timeline: Timeline,
    claims: Claims,
    start: Instant,
}

impl<'a> Stage<'a> {
    fn set(options: &'a Options, parts: &Parts) -> anyhow::Result<Self> {
        let say = options.say;
        say(&format!("switch: {SWITCH}; machine: {}", machine()));
        let scene = Scene::build(options, parts)?;
        let timeline = Timeline { threshold: THRESHOLD, samples: Vec::new(), phases: Vec::new() };
        let mut stage = Self { options, scene, timeline, claims: Claims::default(), start: Instant::now() };
        stage.scene.user_vm.start_agent(THRESHOLD)?;
        stage.until("the agent's information in the P4 VM", |scene| scene.is_known())?;
        let program = program_name()?;
        stage.scene.user_vm.serve(&format!("{program} {}", parts.server))?;
        stage.scene.client.connect(&format!("{program} {}", parts.client))?;
        stage.until("the first connection", |scene| scene.client.totals().accepted > 0)?;
        stage.scene.user_vm.start_auditor()?;
        say("agent, auditor and server run in the user VM");
        stage.until("the auditor's account of every packet", |scene| scene.user_vm.audit.is_certain())?;
        let _ = stage.scene.user_vm.audit.words();
        say(&Sample::heading());
        stage.start = Instant::now();
        Ok(stage)
    }

    /// Waits until `reached` is true of what was read last.
    fn until(&mut self, what: &str, mut reached: impl FnMut(&Scene) -> bool) -> anyhow::Result<()> {
        let scene = &mut self.scene;
        let mut ended = false;
        let waited = self.options.wait(what, PATIENCE, || {
            scene.look().inspect_err(|_| ended = true)?;
            Ok(reached(scene))
        });
        waited.map_err(|error| {
            if ended || self.options.check_interrupted().is_err() {
                return error;
            }
            let (logs, run) = (self.scene.user_vm.logs(), self.scene.product.log_end("run"));
            let switch = last_lines(&self.scene.switch.said(), 5);
            anyhow!("{error:#}; agent and auditor said:\n{logs}\nthe daemon:\n{run}\nthe switch:\n{switch}")
        })
    }

    /// Runs a phase for `seconds` (a third of that if quick), takes samples, and returns the client's
    /// observations.
    fn watch(&mut self, name: &'static str, seconds: u64) -> anyhow::Result<Totals> {
        let from = self.start.elapsed().as_secs_f64();
        self.scene.look()?;
        let begin = self.scene.client.totals();
        let mut before = begin;
        for _ in 0..self.options.seconds(seconds) {
            let until = Instant::now() + Duration::from_secs(1);
            while Instant::now() < until {
                self.options.check_interrupted()?;
                self.scene.check_parts()?;
                std::thread::sleep(Duration::from_millis(50));
            }
            self.scene.look()?;
            let (after, used) = (self.scene.client.totals(), self.scene.user_vm.used());
            let at = self.start.elapsed().as_secs_f64();
            let sample = Sample::new(at, used, before, after, self.scene.user_vm.audit.words());
            (self.options.say)(&sample.row(THRESHOLD, PLAN.established));
            self.timeline.samples.push(sample);
            before = after;
        }
        let to = self.start.elapsed().as_secs_f64();
        match self.timeline.phases.last_mut() {
            Some(last) if last.name == name => last.to = to,
            _ => self.timeline.phases.push(Phase { name, from, to }),
        }
        Ok(before - begin)
    }

    fn claim(&mut self, says: &'static str, held: bool, observed: String) {
        (self.options.say)(&self.claims.check(says, held, observed).line());
    }

    /// Waits for packets in flight, so that a phase is measured by its own packets: two connection attempts
    /// end.
    fn settle(&mut self) -> anyhow::Result<()> {
        let attempts = |scene: &Scene| scene.client.totals().accepted + scene.client.totals().denied;
        self.scene.look()?;
        let before = attempts(&self.scene);
        self.until("the end of connection attempts", |scene| attempts(scene) > before + 1)
    }

    fn below(&mut self) -> anyhow::Result<()> {
        (self.options.say)("-- memory below the threshold");
        let dropped = self.scene.dropped_by_program();
        let seen = self.watch("below", 12)?;
        let dropped = self.scene.dropped_by_program() - dropped;
        self.claim(
            "below the threshold new connections are accepted",
            seen.accepted > 0 && dropped == 0,
            format!("{}; the program dropped {dropped} packets", seen.connections()),
        );
        Ok(())
    }

    fn above(&mut self) -> anyhow::Result<()> {
        (self.options.say)("-- the client fills the user VM's TCP memory");
        self.fill()?;
        self.settle()?;
        let dropped = self.scene.dropped_by_program();
        let seen = self.watch("above", 15)?;
        let dropped = self.scene.dropped_by_program() - dropped;
        self.claim(
            "above the threshold the program denies every new connection",
            seen.denied > 0 && seen.accepted == 0 && dropped > 0,
            format!("{}; the program dropped {dropped} packets", seen.connections()),
        );
        let stalled = self.scene.client.totals().stalled;
        self.claim(
            "established connections continue",
            seen.answered > 0 && stalled == 0,
            format!("{} answers, {stalled} of {} stalled", seen.answered, PLAN.established),
        );
        Ok(())
    }

    fn below_again(&mut self) -> anyhow::Result<()> {
        (self.options.say)("-- memory is freed");
        self.empty()?;
        self.settle()?;
        let seen = self.watch("freed", 12)?;
        self.claim(
            "when memory is freed new connections are accepted again",
            seen.accepted > 0,
            seen.connections(),
        );
        let (mut certain, mut left) = (false, 20);
        while !certain && left > 0 {
            self.watch("freed", 1)?;
            certain = self.scene.user_vm.audit.is_certain();
            left -= 1;
        }
        let findings = self.scene.user_vm.audit.take_findings();
        let blames = findings.iter().any(|f| !BUSY.iter().any(|kind| f["finding"] == *kind));
        let words = self.scene.user_vm.audit.words();
        let observed = match findings.len() {
            0 => words,
            _ => format!("{}; {} packets compared", words_of(&findings), self.scene.user_vm.audit.compared()),
        };
        self.claim("the auditor in the user VM confirms every packet so far", certain && !blames, observed);
        Ok(())
    }

    fn bypass(&mut self) -> anyhow::Result<()> {
        (self.options.say)("-- attack: the cloud has its switch send packets past the program");
        // While the cloud changes its configuration, a packet may be judged twice.
        self.scene.client.rest(true)?;
        self.watch("bypass", 6)?;
        self.scene.judge_at(self.options, Sides::Receive)?;
        self.watch("bypass", 3)?;
        let _ = self.scene.user_vm.audit.take_findings();
        packets_out(&self.scene.switch, PORT, ROUND)?;
        let (mut counted, mut left) = (0, 60);
        while counted < u64::from(ROUND) && left > 0 {
            self.watch("bypass", 1)?;
            counted = bypassed(self.scene.user_vm.audit.findings());
            left -= 1;
        }
        // It might count more.
        self.watch("bypass", 9)?;
        let findings = self.scene.user_vm.audit.take_findings();
        self.claim(
            "the auditor counts exactly the packets that bypassed the program",
            bypassed(&findings) == u64::from(ROUND),
            format!("{ROUND} packets sent: {}", words_of(&findings)),
        );
        self.scene.judge_at(self.options, Sides::Both)?;
        self.scene.client.rest(false)?;
        self.settle()
    }

    fn replay(&mut self) -> anyhow::Result<()> {
        (self.options.say)(
            "-- attack: memory fills while the cloud replays information from when it was low",
        );
        let _ = self.scene.user_vm.audit.take_findings();
        let page = self.scene.product.at("vm.info");
        let earlier = std::fs::read(&page).context("cannot read the info page")?;
        let [accepted, before] = ["accepted", "replayed"].map(|counter| self.scene.info(counter));
        self.until("newer information in the P4 VM", |scene| {
            scene.info("accepted") >= accepted + attack::NEWER
        })?;
        let is_over = AtomicBool::new(false);
        let (seen, replay) = std::thread::scope(|scope| {
            let attack = scope.spawn(|| attack::replay(&page, &earlier, &is_over));
            let seen = self.deny_unknown();
            is_over.store(true, Ordering::Relaxed);
            (seen, attack.join().unwrap_or_else(|e| std::panic::resume_unwind(e)))
        });
        replay.context("cannot write the info page")?;
        let (seen, dropped) = seen?;
        let replayed = self.scene.info("replayed") - before;
        self.claim(
            "the P4 VM detects replayed information",
            replayed > 0,
            format!("the P4 VM refused {replayed} replayed publications"),
        );
        self.claim(
            "the program denies new connections instead of trusting replayed information",
            seen.denied > 0 && seen.accepted == 0 && dropped > 0,
            format!("{}; the program dropped {dropped} packets", seen.connections()),
        );
        self.empty()?;
        self.until("the agent's information in the P4 VM", |scene| scene.is_known())?;
        let refused = |findings: &[Value]| findings.iter().any(|f| f["finding"] == "info_refused");
        let mut left = 30;
        while !refused(self.scene.user_vm.audit.findings()) && left > 0 {
            self.watch("replay", 1)?;
            left -= 1;
        }
        let findings = self.scene.user_vm.audit.take_findings();
        self.claim("the auditor reports the replay", refused(&findings), words_of(&findings));
        self.settle()
    }

    /// Fills memory while the P4 VM gets no new information. Returns the client's observations from when that
    /// from before has expired, and the packets that the program dropped.
    fn deny_unknown(&mut self) -> anyhow::Result<(Totals, u64)> {
        self.fill()?;
        self.until("the end of the information from before", |scene| !scene.is_known())?;
        self.settle()?;
        let dropped = self.scene.dropped_by_program();
        let seen = self.watch("replay", 9)?;
        Ok((seen, self.scene.dropped_by_program() - dropped))
    }

    /// Fills memory until it is well above the threshold: used memory fluctuates.
    fn fill(&mut self) -> anyhow::Result<()> {
        self.scene.client.fill()?;
        self.until("filling of TCP memory", |scene| scene.user_vm.used() > THRESHOLD + MARGIN)
    }

    /// Frees memory until it is well below the threshold.
    fn empty(&mut self) -> anyhow::Result<()> {
        self.scene.client.empty()?;
        self.scene.user_vm.release()?;
        self.until("freeing of TCP memory", |scene| scene.user_vm.used() < THRESHOLD - MARGIN)
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        (self.options.say)("-- attack: the cloud kills the P4 VM");
        let _ = self.scene.user_vm.audit.take_findings();
        let Some(old) = self.scene.product.p4vm() else {
            self.claim("the P4 VM can be killed", false, "none is running".into());
            return Ok(());
        };
        let killed = kill_p4vm(old)?;
        let mut left = 2 * PATIENCE;
        let is_new = |pid: Option<i32>| pid.is_some_and(|new| new != old);
        while !is_new(self.scene.product.p4vm()) && left > 0 {
            self.watch("killed", 1)?;
            left -= 1;
        }
        let new = self.scene.product.p4vm();
        self.claim(
            "the daemon replaces a killed P4 VM; switch and guests keep running",
            is_new(new),
            format!("killed {killed}; then process {}", new.unwrap_or_default()),
        );
        // TCP repeats a segment after ever longer pauses, and the next may come that long after the outage.
        let before = self.scene.client.totals();
        self.until("a new connection and an answer", |scene| {
            let since = scene.client.totals() - before;
            since.accepted > 0 && since.answered > 0
        })?;
        let seen = self.watch("restored", 9)?;
        let stalled = self.scene.client.totals().stalled;
        self.claim(
            "afterwards new connections are accepted and established ones continue",
            seen.accepted > 0 && seen.answered > 0 && stalled == 0,
            format!("{}, {stalled} stalled", seen.connections()),
        );
        let restarted = |findings: &[Value]| findings.iter().any(|f| f["finding"] == "restarted");
        let mut left = 30;
        while !restarted(self.scene.user_vm.audit.findings()) && left > 0 {
            self.watch("restored", 1)?;
            left -= 1;
        }
        let findings = self.scene.user_vm.audit.take_findings();
        self.claim("the auditor reports the P4 VM's restart", restarted(&findings), words_of(&findings));
        Ok(())
    }
}

/// Returns the name of this program's file, which the guests have in `/bin`.
fn program_name() -> anyhow::Result<String> {
    let own = std::env::current_exe()?;
    Ok(own.file_name().unwrap_or_default().to_string_lossy().into_owned())
}
