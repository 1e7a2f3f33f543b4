//! Answers the requests of the switch's socket.

use crate::apart::Line;
use crate::api::{
    Answer, Dropped, FunctionsStatus, MAX_LINE, PortStatus, QueueStatus, Request, Status, Traffic,
};
use crate::noting::Noting;
use crate::order::{Threads, Work};
use crate::ports::{Nudge, Port, PortList};
use crate::program::{Loader, Named};
use crate::rates::Sampled;
use crate::surroundings::{Interfaces, Placement};
use p4shield_socket::Endpoint;
use p4shield_switch::{Counts, DEFAULT_DEPTH, DropReason, MAX_PORTS, PortCounts, QueueState};
use p4shield_tables::show;
use p4shield_tables::write::{CloneSession, Group, GroupCopy};
use p4shield_traffic::{Copy, Groups, Session, Sessions};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Instant;

/// The endpoint of the socket.
pub(crate) struct Desk {
    /// The program that runs. Held while its maps are read or written, so that it is not replaced meanwhile.
    pub(crate) program: RwLock<Named>,
    pub(crate) loader: Box<Loader>,
    pub(crate) ports: PortList,
    /// Opens ports.
    pub(crate) interfaces: Interfaces,
    pub(crate) placement: Placement,
    /// Wakes the thread that keeps the ports.
    pub(crate) nudge: Nudge,
    pub(crate) threads: Threads,
    /// Written by the packet thread when it cannot wait for packets, and never while packets flow.
    pub(crate) problems: Arc<Mutex<Vec<String>>>,
    pub(crate) start: Instant,
    /// The compartment with the program's functions, if there is one.
    pub(crate) functions: Mutex<Option<FunctionsStatus>>,
    /// The way to its keeper, if the switch was started with one.
    pub(crate) apart: Mutex<Option<Line>>,
    /// Written by the thread that keeps the ports.
    pub(crate) sampled: Mutex<Sampled>,
    /// The notes of batches, while a client takes them.
    pub(crate) noting: Mutex<Option<Noting>>,
    /// Held while something is written or a port changes, so that writes of two clients do not mix.
    pub(crate) writing: Mutex<()>,
}

impl Endpoint for Desk {
    type Answer = Answer;
    const MAX_CLIENTS: usize = 16;
    const MAX_LINE: u64 = MAX_LINE;

    fn admits(&self, uid: u32, _gid: u32) -> bool {
        // The process outside a compartment has decided already.
        self.placement == Placement::Pipeline || uid == 0 || uid == rustix::process::geteuid().as_raw()
    }

    fn answer(&self, line: &[u8], _uid: u32) -> Answer {
        let answer = match serde_json::from_slice(line) {
            Ok(Request::Status) => self.status().map(|s| Answer::Status(Box::new(s))),
            Ok(Request::Show(inspection)) => {
                let program = self.program();
                show(&mut self.reader(&program), &program.described, &inspection)
                    .map(|view| Answer::Shown(Box::new(view)))
            }
            Ok(Request::Replace { file, objects, traced, functions }) => {
                self.replace(&file, &objects, traced, functions)
            }
            Ok(Request::Record { wanted }) => self.record(wanted).map(|()| Answer::Done),
            Ok(Request::Records) => self.records().map(Answer::Records),
            Ok(Request::StopRecording) => self.stop_recording().map(|()| Answer::Done),
            Ok(Request::NoteBatches) => self.note_batches().map(|()| Answer::Done),
            Ok(Request::Batches) => self.take_batches().map(Answer::Batches),
            Ok(Request::StopBatches) => self.stop_notes().map(|()| Answer::Done),
            Ok(Request::Inject { port, packet }) => self.inject(port, &packet).map(Answer::Records),
            Ok(Request::Digests { from }) => self.digests(from).map(Answer::Digests),
            Ok(Request::PacketsIn { from }) => self.packets_in(from).map(Answer::PacketsIn),
            Ok(Request::PacketOut { fields, payload }) => {
                self.packet_out(&fields, &payload).map(|()| Answer::Done)
            }
            Ok(Request::Names) => self.names().map(Answer::Names),
            Ok(Request::Groups) => self.groups().map(Answer::Groups),
            Ok(Request::Sessions) => self.sessions().map(Answer::Sessions),
            Ok(Request::Queues) => self.queues().map(Answer::Queues),
            Ok(Request::AddPort { number, interface }) => {
                self.add_port(number, &interface).map(|()| Answer::Done)
            }
            Ok(Request::DeletePort { number }) => self.delete_port(number).map(|()| Answer::Done),
            Ok(Request::Write { write }) => self.write(&write).map(|()| Answer::Done),
            Ok(Request::Load { format, text, replace }) => self.load(&format, &text, replace),
            Err(error) => Err(format!("the request cannot be parsed: {error}")),
        };
        answer.unwrap_or_else(Answer::Failed)
    }
}

impl Desk {
    pub(crate) fn program(&self) -> RwLockReadGuard<'_, Named> {
        self.program.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the sums of all packet threads: by number of the port, and the others.
    fn count(&self) -> Result<(Vec<(u16, PortCounts)>, Counts), String> {
        let work = || Work::Count(Vec::with_capacity(MAX_PORTS), Counts::default());
        let (mut sums, mut counts) = (BTreeMap::<u16, PortCounts>::new(), Counts::default());
        for work in self.threads.execute_on_each(work)? {
            let Work::Count(by_port, of_thread) = work else { return Err("no counts".to_owned()) };
            counts.add(&of_thread);
            for (number, of_port) in by_port {
                let sum = sums.entry(number).or_default();
                *sum = sum.plus(of_port);
            }
        }
        Ok((sums.into_iter().collect(), counts))
    }

    /// Samples the counts of the ports once a second.
    pub(crate) fn sample(&self) {
        let due = self.sampled.lock().unwrap_or_else(PoisonError::into_inner).is_due(Instant::now());
        // The switch is about to end if the packet thread does not answer.
        let Some((by_port, _)) = due.then(|| self.count().ok()).flatten() else { return };
        let counts = by_port.iter().map(|(number, counts)| (*number, traffic(counts))).collect();
        self.sampled.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now(), counts);
    }

    pub(crate) fn status(&self) -> Result<Status, String> {
        let (by_port, counts) = self.count()?;
        let program = self.program();
        let known = self.ports.all();
        let sampled = self.sampled.lock().unwrap_or_else(PoisonError::into_inner);
        let port = |(number, counts): &(u16, PortCounts)| {
            let port = known.iter().find(|p| p.number == *number);
            PortStatus {
                number: *number,
                interface: port.map(|p| p.interface.clone()).unwrap_or_default(),
                state: port.map(|p| p.state).unwrap_or_default(),
                traffic: traffic(counts),
                rates: sampled.of(*number),
            }
        };
        let ports = by_port.iter().map(port).collect();
        let functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let dropped = DropReason::ALL
            .iter()
            .map(|reason| Dropped { reason: reason.name().to_owned(), packets: counts.dropped(*reason) });
        Ok(Status {
            program: program.file.clone(),
            digest: hex::encode(program.described.program),
            seconds: self.start.elapsed().as_secs(),
            placement: self.placement,
            threads: self.threads.count(),
            shared_for: self.shared_for(&program)?,
            functions,
            ports,
            deleted: traffic(&counts.deleted),
            replicated: counts.replicated,
            copies: counts.copies,
            resubmitted: counts.resubmitted,
            recirculated: counts.recirculated,
            // One thread may have been asked before it handed on what another one has counted.
            waiting: u64::try_from(counts.waiting.cast_signed()).unwrap_or_default(),
            dropped: dropped.collect(),
            problems: self.all_problems(&known),
        })
    }

    /// Returns the reason why packet threads take turns; `None` if they do not.
    fn shared_for(&self, program: &Named) -> Result<Option<String>, String> {
        let threads = self.threads.count();
        let why = program.shared_for(threads);
        // A batch of packets holds the lock of the queues.
        let queued = why.is_none() && threads > 1 && !self.queues()?.is_empty();
        Ok(if queued { Some("a port has a queue".to_owned()) } else { why })
    }

    /// Returns the problems of the packet thread, and those of ports.
    fn all_problems(&self, ports: &[Port]) -> Vec<String> {
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner).clone();
        problems.extend(ports.iter().filter_map(Port::problem));
        let functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        problems.extend(functions.as_ref().and_then(|f| f.problem.clone()));
        problems
    }

    pub(crate) fn copied_groups(&self) -> Result<Groups, String> {
        let done = self.threads.execute(Work::Groups(Groups::default()))?;
        let Work::Groups(groups) = done.work else { return Err("no groups".to_owned()) };
        Ok(groups)
    }

    pub(crate) fn copied_sessions(&self) -> Result<Sessions, String> {
        let done = self.threads.execute(Work::Sessions(Sessions::default()))?;
        let Work::Sessions(sessions) = done.work else { return Err("no sessions".to_owned()) };
        Ok(sessions)
    }

    fn groups(&self) -> Result<Vec<Group>, String> {
        let groups = self.copied_groups()?;
        let copy = |c: &Copy| GroupCopy { port: c.port, replica: c.replica };
        let group =
            |(group, copies): (u16, &[Copy])| Group { group, copies: copies.iter().map(copy).collect() };
        Ok(groups.iter().map(group).collect())
    }

    pub(crate) fn queues(&self) -> Result<Vec<QueueStatus>, String> {
        let done = self.threads.execute(Work::Queues(Vec::with_capacity(MAX_PORTS)))?;
        let Work::Queues(queues) = done.work else { return Err("no queues".to_owned()) };
        let status = |QueueState { port, limits, waiting, dropped }: &QueueState| QueueStatus {
            port: *port,
            packets: limits.packets,
            bits: limits.bits,
            depth: limits.depth.unwrap_or(DEFAULT_DEPTH),
            waiting: *waiting,
            dropped: *dropped,
        };
        Ok(queues.iter().map(status).collect())
    }

    fn sessions(&self) -> Result<Vec<CloneSession>, String> {
        let sessions = self.copied_sessions()?;
        let session = |(session, Session { port, group })| CloneSession { session, port, group };
        Ok(sessions.iter().map(session).collect())
    }
}

fn traffic(counts: &PortCounts) -> Traffic {
    Traffic {
        received: counts.received,
        received_bytes: counts.received_bytes,
        sent: counts.sent,
        sent_bytes: counts.sent_bytes,
    }
}
