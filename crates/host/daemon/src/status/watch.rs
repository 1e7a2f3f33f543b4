//! Log lines about problems: one when a problem begins and one when it ends.
//!
//! A thread looks at the status once a second. Scripts and alerts find the lines by `event`, which is
//! `problem_began` or `problem_ended`, and by `kind`.
//!
//! - A problem is logged once it has lasted for [`SETTLE`], and none is within [`GRACE`] of the start, when
//!   switches and P4 VMs are still connecting. A refused program is logged at once: that will not pass.
//! - Problems of one kind with the same text that begin together share a line.
//! - A problem that comes and goes cannot fill the log: at most [`BURST`] lines at once and one in
//!   [`REFILL`] on average. A line that is due waits; it is omitted if its problem is over by then.

use crate::status::problem::{Problem, ProblemKey, ProblemKind, line};
use p4shield_text::printable;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time between two looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time after the start without lines.
const GRACE: Duration = Duration::from_secs(5);
/// How long a problem lasts before it is logged.
const SETTLE: Duration = Duration::from_secs(2);
/// Most lines at once.
const BURST: u32 = 50;
/// Time for each further line.
const REFILL: Duration = Duration::from_secs(2);

/// The problems that the watcher has seen.
pub(crate) struct WatchedProblems(Mutex<Watched>);

struct Watched {
    started: Instant,
    present: HashMap<ProblemKey, Present>,
    /// The problems that have a line in the log about their beginning and none about their end.
    logged: BTreeMap<ProblemKey, Problem>,
    tokens: Tokens,
}

struct Present {
    problem: Problem,
    /// When it was seen first.
    first: Instant,
}

impl WatchedProblems {
    pub(crate) fn new() -> Self {
        let started = Instant::now();
        let tokens = Tokens { left: BURST, refilled: started };
        let (present, logged) = (HashMap::new(), BTreeMap::new());
        Self(Mutex::new(Watched { started, present, logged, tokens }))
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills in when each problem began.
    pub(crate) fn stamp(&self, problems: &mut [Problem]) {
        let watched = self.lock();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        for problem in problems {
            problem.since = watched.present.get(&problem.key()).map_or(now, |p| p.problem.since);
        }
    }

    /// Takes the present problems and writes the lines that are due.
    fn observe(&self, now: Instant, problems: Vec<Problem>, write: &mut dyn FnMut(Change, &[&Problem])) {
        let mut watched = self.lock();
        let mut before = std::mem::take(&mut watched.present);
        for problem in problems {
            let key = problem.key();
            let first = before.remove(&key).map_or(now, |p| p.first);
            watched.present.insert(key, Present { problem, first });
        }
        watched.write_changes(now, write);
    }
}

/// Whether problems began or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Began,
    Ended,
}

impl Watched {
    fn write_changes(&mut self, now: Instant, write: &mut dyn FnMut(Change, &[&Problem])) {
        let quiet = now.duration_since(self.started) < GRACE;
        let is_due = |p: &Present| {
            let settled = !quiet && now.duration_since(p.first) >= SETTLE;
            settled || p.problem.kind == ProblemKind::ProgramRefused
        };
        let new = self.present.iter().filter(|(key, p)| is_due(p) && !self.logged.contains_key(*key));
        let began: BTreeMap<_, _> = new.map(|(key, p)| (key.clone(), p.problem.clone())).collect();
        let over = self.logged.iter().filter(|(key, _)| !self.present.contains_key(*key));
        let ended: BTreeMap<_, _> = over.map(|(key, p)| (key.clone(), p.clone())).collect();
        for (change, problems) in [(Change::Ended, ended), (Change::Began, began)] {
            for group in groups(&problems) {
                if !self.tokens.take(now) {
                    return;
                }
                let members: Vec<_> = group.iter().map(|(_, problem)| *problem).collect();
                write(change, &members);
                for (key, problem) in group {
                    match change {
                        Change::Began => drop(self.logged.insert(key.clone(), problem.clone())),
                        Change::Ended => drop(self.logged.remove(key)),
                    }
                }
            }
        }
    }
}

/// Groups problems of one kind with the same text, which share a line.
fn groups(problems: &BTreeMap<ProblemKey, Problem>) -> Vec<Vec<(&ProblemKey, &Problem)>> {
    let mut groups: BTreeMap<(ProblemKind, &str), Vec<_>> = BTreeMap::new();
    for (key, problem) in problems {
        groups.entry((problem.kind, &problem.text)).or_default().push((key, problem));
    }
    groups.into_values().collect()
}

/// The lines that may be written now.
struct Tokens {
    left: u32,
    refilled: Instant,
}

impl Tokens {
    fn take(&mut self, now: Instant) -> bool {
        while self.left < BURST && now.duration_since(self.refilled) >= REFILL {
            self.left += 1;
            self.refilled += REFILL;
        }
        if self.left == BURST {
            self.refilled = now;
        }
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

/// Writes one line.
fn log(change: Change, problems: &[&Problem]) {
    let Some(first) = problems.first() else { return };
    // A verifier's message has several lines.
    let (count, kind, text) = (problems.len(), first.kind.name(), printable(&line(problems)));
    // Several problems share names only by chance; their line lists the subjects.
    let only = |name: &Option<String>| name.clone().filter(|_| count == 1);
    let (tenant, vm, direction, port) =
        (only(&first.tenant), only(&first.vm), only(&first.direction), only(&first.port));
    let (tenant, vm, direction, port) =
        (tenant.as_deref(), vm.as_deref(), direction.as_deref(), port.as_deref());
    match (change, first.kind) {
        (Change::Ended, _) => {
            tracing::info!(
                event = "problem_ended",
                kind,
                count,
                tenant,
                vm,
                direction,
                port,
                "no longer: {text}"
            );
        }
        (Change::Began, ProblemKind::ProgramRefused) => {
            tracing::error!(event = "problem_began", kind, count, tenant, vm, direction, port, "{text}");
        }
        (Change::Began, _) => {
            tracing::warn!(event = "problem_began", kind, count, tenant, vm, direction, port, "{text}");
        }
    }
}

/// The thread that looks at the status. Ends when dropped.
pub(crate) struct Watcher {
    ending: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Starts the thread; `look` returns the present problems.
    pub(crate) fn start(
        watched: Arc<WatchedProblems>,
        look: impl Fn() -> Vec<Problem> + Send + 'static,
    ) -> io::Result<Self> {
        let ending = Arc::new((Mutex::new(false), Condvar::new()));
        let end = Arc::clone(&ending);
        let run = move || {
            while !wait(&end) {
                let problems = look();
                watched.observe(Instant::now(), problems, &mut log);
            }
        };
        let thread = std::thread::Builder::new().name("watch".into()).spawn(run)?;
        Ok(Self { ending, thread: Some(thread) })
    }
}

/// Waits for [`INTERVAL`]. Returns whether the watcher ends.
fn wait((ending, changed): &(Mutex<bool>, Condvar)) -> bool {
    let ending = ending.lock().unwrap_or_else(PoisonError::into_inner);
    let (ending, _) =
        changed.wait_timeout_while(ending, INTERVAL, |e| !*e).unwrap_or_else(PoisonError::into_inner);
    *ending
}

impl Drop for Watcher {
    fn drop(&mut self) {
        *self.ending.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.ending.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A watcher with a clock of its own, and the lines that it wrote: change and number of problems.
    struct Rig {
        watched: WatchedProblems,
        start: Instant,
        lines: Vec<(Change, usize)>,
    }

    impl Rig {
        fn new() -> Self {
            let watched = WatchedProblems::new();
            let start = watched.lock().started;
            Self { watched, start, lines: Vec::new() }
        }

        fn at(&mut self, seconds: u64, problems: &[Problem]) {
            let lines = &mut self.lines;
            let now = self.start + Duration::from_secs(seconds);
            self.watched
                .observe(now, problems.to_vec(), &mut |change, group| lines.push((change, group.len())));
        }
    }

    fn port(n: u32) -> Problem {
        Problem::new(ProblemKind::PortAbsent, "", "add it").at("port", &n.to_string())
    }

    #[test]
    fn a_problem_is_logged_once_when_it_begins_and_ends() {
        let mut rig = Rig::new();
        for second in 10..30 {
            rig.at(second, &[port(1)]);
        }
        assert_eq!(rig.lines, [(Change::Began, 1)]);
        for second in 30..40 {
            rig.at(second, &[]);
        }
        assert_eq!(rig.lines, [(Change::Began, 1), (Change::Ended, 1)]);
    }

    #[test]
    fn a_switch_that_connects_late_causes_no_lines() {
        let mut rig = Rig::new();
        let ports: Vec<_> = (0..500).map(port).collect();
        for second in 0..5 {
            rig.at(second, &ports);
        }
        for second in 5..20 {
            // A blip after the start is too short for a line, too.
            rig.at(second, if second == 10 { &ports } else { &[] });
        }
        assert_eq!(rig.lines, []);
    }

    #[test]
    fn problems_that_begin_together_share_a_line() {
        let mut rig = Rig::new();
        let ports: Vec<_> = (0..500).map(port).collect();
        for second in 5..10 {
            rig.at(second, &ports);
        }
        rig.at(10, &ports[..499]);
        assert_eq!(rig.lines, [(Change::Began, 500), (Change::Ended, 1)]);
    }

    #[test]
    fn a_refused_program_is_logged_at_once() {
        let mut rig = Rig::new();
        let refused =
            Problem::of_vm(ProblemKind::ProgramRefused, ("alice", "web"), "why").direction("egress");
        rig.at(0, &[refused]);
        assert_eq!(rig.lines, [(Change::Began, 1)]);
    }

    #[test]
    fn problems_that_come_and_go_do_not_fill_the_log() {
        let mut rig = Rig::new();
        for second in 0..4000 {
            let problem = port(u32::from(second / 3 % 2 == 0));
            rig.at(second, &[problem]);
        }
        let most = BURST as usize + 4000 / REFILL.as_secs() as usize;
        assert!(rig.lines.len() <= most, "{} lines", rig.lines.len());
        // Every line about an end follows one about the beginning.
        let of = |change| rig.lines.iter().filter(|(c, _)| *c == change).count();
        assert!(of(Change::Began) - of(Change::Ended) <= 2);
    }

    #[test]
    fn a_problem_keeps_the_time_when_it_began() {
        let watched = WatchedProblems::new();
        let mut problem = port(1);
        problem.since = 7;
        watched.observe(Instant::now(), vec![problem], &mut |_, _| {});
        let mut later = [port(1), port(2)];
        watched.stamp(&mut later);
        assert_eq!(later[0].since, 7);
        assert!(later[1].since > 7, "a problem that the watcher has not seen begins now");
    }
}
