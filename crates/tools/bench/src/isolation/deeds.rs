//! The deeds of an adversary. Each goes on until the measurement is over, counts its acts, and says what
//! became of them.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use p4shield_io::afxdp::{AfxdpConfig, AfxdpPorts};
use p4shield_switch::PacketIo as _;
use p4shield_testbed::process::last_lines;
use p4shield_testbed::{Guarded, NetNs};
use rustix::process::{Pid, Signal};

use super::processes;
use super::traffic::{Deed, Meter, paced};
use crate::cores;
use crate::fixture::hosts::INTERFACE;

/// Time between two looks. The looks take time of the core that the victim's senders have.
const LOOK: Duration = Duration::from_millis(50);
/// Beginning of the name of Open vSwitch's program; that with DPDK has more.
const SWITCH: &str = "ovs-vswitchd";
/// Bytes that a memory bomb takes at once.
const STEP: u64 = 16 << 20;
/// The program of both bombs; `perl-base` is on every Debian, and compartments see the host's `/usr`.
const PERL: &str = "/usr/bin/perl";

/// Packets that are sent one after the other, and again, from a namespace.
pub(super) fn stream<'w>(ns: &'w NetNs, frames: Vec<Vec<u8>>, rate: u32) -> Deed<'w> {
    Box::new(move |meter| {
        ns.inside(|| flood(&frames, rate, meter))?;
        Ok(format!("{} packets", meter.acts()))
    })
}

fn flood(frames: &[Vec<u8>], rate: u32, meter: &Meter) -> anyhow::Result<()> {
    let mut port = AfxdpPorts::open(&AfxdpConfig::new([INTERFACE]))?;
    let mut frames = frames.iter().cycle();
    paced(rate, meter, |_| {
        let frame = frames.next().context("an attack has packets")?;
        meter.add(port.send(0, frame).into());
        Ok(port.flush()?)
    })
}

/// Two deeds at once. The acts are those of both.
pub(super) fn both<'w>(one: Deed<'w>, other: Deed<'w>) -> Deed<'w> {
    Box::new(move |meter| {
        std::thread::scope(|scope| {
            let one = scope.spawn(|| one(meter));
            let second = other(meter)?;
            let first = one.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
            Ok([first, second].join(", "))
        })
    })
}

/// Longest time for the second start of a switch that is killed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Kills the compartment of this user as soon as its switch runs, each time, and twice at least. A P4 switch
/// is its only process.
pub(super) fn kill<'w>(user: u32, is_p4_switch: bool) -> Deed<'w> {
    Box::new(move |meter| {
        cores::pin(cores::two()[0]);
        let start = Instant::now();
        // The daemon may have no core to start it again.
        while !meter.is_over() || (meter.acts() < 2 && start.elapsed() < PATIENCE) {
            let found = processes::of(user)?;
            let runs = is_p4_switch || found.iter().any(|p| p.program.starts_with(SWITCH));
            let first = found.iter().find(|p| p.is_first).filter(|_| runs);
            // The kernel ends the others of its namespace with it.
            meter.add(first.is_some_and(|p| processes::signal(p.pid, user, Signal::KILL)).into());
            std::thread::sleep(LOOK);
        }
        Ok(format!("killed {} times", meter.acts()))
    })
}

/// Stops all processes of a P4 VM's user, also those that are started in their place. They are killed at the
/// end: they could not end by themselves.
pub(super) fn stop<'w>(user: u32) -> Deed<'w> {
    Box::new(move |meter| {
        cores::pin(cores::two()[0]);
        let (end, mut stopped) = (End::of(user)?, BTreeSet::new());
        while !meter.is_over() {
            for process in processes::of(user)? {
                let number = process.pid.as_raw_pid();
                if !stopped.contains(&number) && processes::signal(process.pid, user, Signal::STOP) {
                    meter.add(stopped.insert(number).into());
                }
            }
            std::thread::sleep(LOOK);
        }
        drop(end);
        Ok(format!("{} processes stopped", stopped.len()))
    })
}

/// Kills all processes of a user when it is dropped, and also if this process ends before.
struct End(Child);

impl End {
    fn of(user: u32) -> anyhow::Result<Self> {
        let mut shell = Command::new("sh");
        // It reads until the pipe closes. Ctrl-C reaches its process group only.
        shell.args(["-c", "cat; exec pkill -KILL -U \"$0\""]).arg(user.to_string()).process_group(0);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(shell.spawn().context("cannot start `sh`")?))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Writes rubbish into all memory that a P4 VM's user shares with others, again and again. An act is one pass
/// over the memory of a process.
pub(super) fn scribble<'w>(user: u32) -> Deed<'w> {
    Box::new(move |meter| {
        cores::pin(cores::two()[0]);
        let (mut bytes, mut passes, mut rubbish) = (0, 0_u64, rubbish());
        while !meter.is_over() {
            for process in processes::of(user)? {
                // It ends by what is written.
                let written = deface(process.pid, &rubbish).unwrap_or(0);
                bytes += written;
                passes += u64::from(written > 0);
            }
            rubbish.rotate_left(1);
            std::thread::sleep(LOOK);
        }
        meter.add(passes);
        Ok(format!("{} MiB written in {passes} passes", bytes >> 20))
    })
}

/// Writes into the shared memory of a process as itself may. Returns the number of bytes.
fn deface(pid: Pid, rubbish: &[u8]) -> std::io::Result<u64> {
    let folder = PathBuf::from(format!("/proc/{}", pid.as_raw_pid()));
    let memory = OpenOptions::new().write(true).open(folder.join("mem"))?;
    let mut bytes = 0;
    for (from, to) in shared(&std::fs::read_to_string(folder.join("maps"))?) {
        for at in (from..to).step_by(rubbish.len()) {
            let part = &rubbish[..rubbish.len().min((to - at) as usize)];
            bytes += memory.write_at(part, at)? as u64;
        }
    }
    Ok(bytes)
}

/// Returns the addresses of memory that a process may write and others see.
fn shared(maps: &str) -> Vec<(u64, u64)> {
    let range = |line: &str| {
        let mut words = line.split_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let [from, to] = [from, to].map(|text| u64::from_str_radix(text, 16).ok());
        (words.next()? == "rw-s").then_some((from?, to?))
    };
    maps.lines().filter_map(range).collect()
}

fn rubbish() -> Vec<u8> {
    (0..1 << 16).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// The script of the memory bomb in a compartment that may have so many bytes: prints a character for each
/// step. It ends itself at twice that, since it would take the machine's where no cgroup limits it.
pub(super) fn memory_script(allowed: u64) -> String {
    let (steps, step) = (2 * allowed / STEP, STEP);
    format!("$| = 1; for (1..{steps}) {{ push @all, 'x' x {step}; print '.' }}")
}

/// Runs memory bombs in a compartment, one after the other. An act is a step.
pub(super) fn memory<'w>(mut bomb: Bomb, user: u32, allowed: u64) -> Deed<'w> {
    Box::new(move |meter| {
        cores::pin(cores::two()[0]);
        let (mut most, mut ends) = (0, Vec::new());
        while !meter.is_over() {
            let mut run = bomb.start()?;
            let mut steps = 0;
            while !meter.is_over() {
                let now = std::fs::metadata(&bomb.output).map_or(0, |file| file.len());
                meter.add(now.saturating_sub(steps));
                steps = now;
                if let Some(status) = run.ended() {
                    ends.push(if status.success() { "itself".to_owned() } else { bomb.why(status) });
                    break;
                }
                std::thread::sleep(LOOK);
            }
            most = most.max(steps * STEP);
        }
        ends.dedup();
        let ended = if ends.is_empty() { "the measurement".into() } else { ends.join("; ") };
        let (most, allowed, group) = (most >> 20, allowed >> 20, cgroup(user));
        Ok(format!("at most {most} MiB at once, where {allowed} are allowed, ended by {ended}; {group}"))
    })
}

/// The script of the fork bomb: each process forks without end.
pub(super) const FORK_SCRIPT: &str = "for (;;) { fork }";
/// The same with a session for each process: Linux divides a core by sessions.
pub(super) const SESSION_SCRIPT: &str =
    "use POSIX; for (;;) { my $child = fork; POSIX::setsid() if defined $child && !$child }";

/// Runs a fork bomb in a compartment of this user. An act is a process beyond those of before.
pub(super) fn forks<'w>(mut bomb: Bomb, user: u32) -> Deed<'w> {
    Box::new(move |meter| {
        cores::pin(cores::two()[0]);
        let before = processes::of(user)?.len() as u64;
        let mut run = bomb.start()?;
        while !meter.is_over() {
            let more = (processes::of(user)?.len() as u64).saturating_sub(before);
            meter.add(more.saturating_sub(meter.acts()));
            std::thread::sleep(LOOK);
        }
        let ended = run.ended().map(|status| format!(", ended by {}", bomb.why(status)));
        let allowed = processes::of(user)?.first().and_then(|p| limit(p.pid)).unwrap_or_default();
        let (most, ended, group) = (meter.acts(), ended.unwrap_or_default(), cgroup(user));
        Ok(format!("at most {most} processes more, where {allowed} are allowed{ended}; {group}"))
    })
}

/// Says whether a compartment of this user has limits of its own, beside those of its processes.
fn cgroup(user: u32) -> &'static str {
    let of = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok();
    let first = processes::of(user).ok().and_then(|found| found.into_iter().find(|p| p.is_first));
    match first.and_then(|p| of(&p.pid.as_raw_pid().to_string())) {
        None => "the compartment has ended",
        theirs if theirs == of("self") => "no cgroup limits the compartment on this machine",
        Some(_) => "a cgroup limits the compartment",
    }
}

/// Returns the most processes of a process's user, as the kernel says.
fn limit(pid: Pid) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{}/limits", pid.as_raw_pid())).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Max processes"))?;
    line.split_whitespace().next().map(str::to_owned)
}

/// A command in the adversary's compartment.
pub(super) struct Bomb {
    command: Command,
    output: PathBuf,
    errors: PathBuf,
}

impl Bomb {
    /// Prepares a script. The command ends with the words before the script's.
    pub(super) fn new(command: Command, script: &str, folder: &Path) -> anyhow::Result<Self> {
        ensure!(
            Path::new(PERL).exists(),
            "{PERL} is missing; install Debian's package: apt-get install perl-base"
        );
        let mut bomb =
            Self { command, output: folder.join("bomb.output"), errors: folder.join("bomb.errors") };
        bomb.command.args([PERL, "-e", script]).stdin(Stdio::null());
        Ok(bomb)
    }

    fn start(&mut self) -> anyhow::Result<Guarded> {
        let make =
            |path: &Path| File::create(path).with_context(|| format!("cannot make {}", path.display()));
        self.command.stdout(make(&self.output)?).stderr(make(&self.errors)?);
        Ok(Guarded::spawn(&mut self.command)?)
    }

    fn why(&self, status: std::process::ExitStatus) -> String {
        let said = std::fs::read_to_string(&self.errors).unwrap_or_default();
        format!("{status} {}", last_lines(said.trim(), 1)).trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_others_see_is_told_from_a_process_own() {
        let maps = "1000-3000 rw-s 00000000 00:01 7 /memfd:channel\n3000-4000 rw-p 00000000 00:00 0\n\
                    5000-6000 r--s 00000000 00:01 8 /memfd:page\nx\n";
        assert_eq!(shared(maps), [(0x1000, 0x3000)]);
    }

    #[test]
    fn a_process_limit_is_read() {
        assert!(limit(rustix::process::getpid()).is_some());
    }
}
