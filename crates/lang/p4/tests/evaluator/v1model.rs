//! The pipeline of v1model with its traffic manager, as the reference switch's documentation describes it
//! (p4lang/behavioral-model, `simple_switch.md`): copies and packets that start again wait in one queue.

use super::value::{Val, zero};
use super::{Binding, Eval, Machine, Stop, get, set};
use crate::hir::{Constructed, CtorArg, Instance, Param};
use crate::types::Type;
use std::collections::VecDeque;
use std::rc::Rc;

/// Multicast groups: a port and a replication id for each copy.
pub(super) const GROUPS: &[(usize, &[(usize, usize)])] = &[(1, &[(21, 1)]), (2, &[(21, 7), (22, 8)])];
/// Clone sessions: a port, a group or both.
pub(super) const SESSIONS: &[(usize, Option<usize>, Option<usize>)] =
    &[(1, Some(11), None), (2, None, Some(2)), (3, Some(13), Some(1))];
/// The port at which packets arrive.
pub(super) const INPUT: usize = 3;
/// Most packets that wait, with the one that is processed.
const QUEUE: usize = 64;

/// The requests of a control: the session of a clone, and a field list.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    pub(super) clone: Option<(usize, Option<usize>)>,
    pub(super) resubmit: Option<Option<usize>>,
    pub(super) recirculate: Option<Option<usize>>,
}

/// Where a packet starts.
#[derive(Clone, Debug)]
enum Start {
    /// At the parser, with metadata.
    Parser { meta: Val, std: Val },
    /// At egress behind the parser, with metadata.
    Clone { meta: Val, std: Val },
    /// At egress, with all variables, the position of the payload, and the length to which it is truncated.
    Egress { shared: Vec<Val>, cursor: usize, truncate: Option<usize> },
}

/// A packet that waits, and the ports and replication ids of its copies.
#[derive(Clone, Debug)]
struct Job {
    packet: Vec<u8>,
    start: Start,
    to: Vec<(usize, Option<usize>)>,
}

/// The stages, and the types of user and standard metadata.
struct Stages<'a> {
    args: &'a [CtorArg],
    parser: Rc<Instance>,
    params: Vec<Param>,
}

impl Stages<'_> {
    fn meta(&self) -> &Type {
        &self.params[2].ty
    }

    fn standard(&self) -> &Type {
        &self.params[3].ty
    }
}

impl Machine<'_> {
    /// Returns the packets that leave, with their ports.
    pub(super) fn v1model(&mut self, args: &[CtorArg]) -> Eval<Vec<(Vec<u8>, Option<u32>)>> {
        let (_, parser) = self.stage(&args[0])?;
        let Constructed::Parser(p) = parser.what else { return self.skip("no parser") };
        let stages = Stages { args, parser, params: self.hir.parsers[p.0 as usize].params.clone() };
        let (meta, std) = (zero(stages.meta()), zero(stages.standard()));
        let first =
            Job { packet: self.packet.clone(), start: Start::Parser { meta, std }, to: vec![(0, None)] };
        let (mut queue, mut left) = (VecDeque::from([first]), Vec::new());
        let mut is_first = true;
        while let Some(job) = queue.pop_front() {
            let room = if is_first { QUEUE } else { QUEUE - 1 };
            is_first = false;
            for (port, replica) in &job.to {
                (self.asked, self.error, self.pass) = (Asked::default(), 0, true);
                self.packet.clone_from(&job.packet);
                self.emitted.clear();
                match self.one(&stages, &job, (*port, *replica), (&mut queue, room)) {
                    // A packet that went on at once has its port from ingress.
                    Ok(Some(packet)) => {
                        left.push((packet, Some(self.unicast.unwrap_or(*port) as u32)));
                    }
                    Ok(None) | Err(Stop::Drop) => {}
                    Err(other) => return Err(other),
                }
            }
        }
        Ok(left)
    }

    /// Processes one packet. Returns it if it leaves.
    fn one(
        &mut self,
        s: &Stages<'_>,
        job: &Job,
        (port, replica): (usize, Option<usize>),
        queue: (&mut VecDeque<Job>, usize),
    ) -> Eval<Option<Vec<u8>>> {
        self.unicast = None;
        let (queue, room) = queue;
        let mut shared = match &job.start {
            Start::Egress { shared, cursor, truncate } => {
                (self.cursor, self.truncate) = (*cursor, *truncate);
                shared.clone()
            }
            Start::Parser { meta, std } => self.parsed(s, meta.clone(), std.clone())?,
            Start::Clone { meta, std } => {
                let mut shared = self.parsed(s, zero(s.meta()), zero(s.standard()))?;
                let error = get(&shared[2], s.standard(), "parser_error");
                (shared[1], shared[2]) = (meta.clone(), std.clone());
                self.arrived(s, &mut shared[2]);
                set(&mut shared[2], s.standard(), "parser_error", error);
                shared
            }
        };
        let mut port = port;
        if matches!(job.start, Start::Parser { .. }) {
            self.control_stage(s, 1, &mut shared)?;
            self.control_stage(s, 2, &mut shared)?;
            let Some(to) = self.after_ingress(s, job, &shared, queue, room) else { return Ok(None) };
            port = to;
            self.unicast = Some(to);
            set(&mut shared[2], s.standard(), "instance_type", 0);
        }
        let ty = s.standard();
        if let Some(replica) = replica {
            set(&mut shared[2], ty, "egress_rid", replica);
        }
        let length = self.packet.len();
        for (field, v) in [("egress_port", port), ("egress_spec", 0), ("packet_length", length)] {
            set(&mut shared[2], ty, field, v);
        }
        self.asked.clone = None;
        self.control_stage(s, 3, &mut shared)?;
        self.clone_at_end(s, job, &shared, queue, room);
        if get(&shared[2], ty, "egress_spec") == 511 {
            return Ok(None);
        }
        self.control_stage(s, 4, &mut shared)?;
        self.deparse(&s.args[5], &mut shared.clone())?;
        let packet = self.output();
        if let Some(list) = self.asked.recirculate {
            let (meta, mut std) = self.kept(s, &shared, list);
            set(&mut std, ty, "instance_type", 4);
            let start = Start::Parser { meta, std };
            push(queue, room, Job { packet, start, to: vec![(0, None)] });
            return Ok(None);
        }
        Ok(Some(packet))
    }

    /// Sets what is known of a packet that arrives.
    fn arrived(&self, s: &Stages<'_>, std: &mut Val) {
        for (field, v) in [("ingress_port", INPUT), ("packet_length", self.packet.len())] {
            set(std, s.standard(), field, v);
        }
        set(std, s.standard(), "ingress_global_timestamp", 0);
    }

    fn parsed(&mut self, s: &Stages<'_>, meta: Val, mut std: Val) -> Eval<Vec<Val>> {
        (self.cursor, self.truncate) = (0, None);
        self.arrived(s, &mut std);
        let mut shared = vec![zero(&s.params[1].ty), meta, std];
        self.standard = Some((s.standard().clone(), shared[2].clone(), None));
        let (id, _) = self.stage(&s.args[0])?;
        self.vars.insert(s.params[0].var, Binding::PacketIn);
        let parser = s.parser.clone();
        let ended = self.staged(&s.params[1..], &mut shared, |m| m.parser(&parser, id));
        let error = match ended {
            Ok(()) => self.error,
            // The reference switch continues after an error.
            Err(Stop::Reject(e)) => e,
            Err(other) => return Err(other),
        };
        set(&mut shared[2], s.standard(), "parser_error", error);
        Ok(shared)
    }

    fn control_stage(&mut self, s: &Stages<'_>, n: usize, shared: &mut [Val]) -> Eval<()> {
        let (id, inst) = self.stage(&s.args[n])?;
        let control = self.control_of(&inst)?;
        self.staged(&control.params, shared, |m| m.control(&inst, id))
    }

    /// Does what ingress asked for. Returns the port of a packet that goes on to egress at once.
    fn after_ingress(
        &mut self,
        s: &Stages<'_>,
        job: &Job,
        shared: &[Val],
        queue: &mut VecDeque<Job>,
        room: usize,
    ) -> Option<usize> {
        let ty = s.standard();
        let group = get(&shared[2], ty, "mcast_grp");
        let port = get(&shared[2], ty, "egress_spec");
        let mut waits = self.asked.clone.is_some();
        if let Some((session, list)) = self.asked.clone.take() {
            let (meta, mut std) = self.kept(s, shared, list);
            set(&mut std, ty, "instance_type", 1);
            clones(queue, room, session, &job.packet, &Start::Clone { meta, std });
        }
        let egress = |std: Val, instance: usize| {
            let mut shared = shared.to_vec();
            shared[2] = std;
            set(&mut shared[2], ty, "instance_type", instance);
            Start::Egress { shared, cursor: self.cursor, truncate: self.truncate }
        };
        let packet = job.packet.clone();
        if let Some(list) = self.asked.resubmit {
            let (meta, mut std) = self.kept(s, shared, list);
            set(&mut std, ty, "instance_type", 6);
            push(queue, room, Job { packet, start: Start::Parser { meta, std }, to: vec![(0, None)] });
            waits = true;
        } else if group != 0 {
            let copies = GROUPS.iter().find(|(n, _)| *n == group).map_or(&[][..], |(_, copies)| copies);
            let to = copies.iter().map(|(port, replica)| (*port, Some(*replica))).collect();
            push(queue, room, Job { packet, start: egress(shared[2].clone(), 5), to });
            waits = true;
        } else if port == 511 {
            return None;
        } else if waits {
            // What ingress asked for of the end of egress is forgotten with the second run.
            let to = vec![(port, None)];
            push(queue, room, Job { packet, start: egress(shared[2].clone(), 0), to });
        }
        (!waits).then_some(port)
    }

    fn clone_at_end(
        &mut self,
        s: &Stages<'_>,
        job: &Job,
        shared: &[Val],
        queue: &mut VecDeque<Job>,
        room: usize,
    ) {
        let Some((session, list)) = self.asked.clone.take() else { return };
        let (meta, mut std) = self.kept(s, shared, list);
        set(&mut std, s.standard(), "instance_type", 2);
        set(&mut std, s.standard(), "ingress_port", INPUT);
        let shared = vec![shared[0].clone(), meta, std];
        let start = Start::Egress { shared, cursor: self.cursor, truncate: self.truncate };
        clones(queue, room, session, &job.packet, &start);
    }

    /// Returns user and standard metadata with the fields of a list.
    fn kept(&self, s: &Stages<'_>, shared: &[Val], list: Option<usize>) -> (Val, Val) {
        (self.only(s.meta(), &shared[1], list), self.only(s.standard(), &shared[2], list))
    }

    fn only(&self, ty: &Type, v: &Val, list: Option<usize>) -> Val {
        let (Type::Composite(c), Val::Record(fields)) = (ty.base(), v) else { return zero(ty) };
        let field = |(i, ((_, ty), v)): (usize, (&(_, Type), &Val))| {
            let lists = self.hir.field_lists.get(&(c.id, i));
            let kept = list.is_some_and(|n| lists.is_some_and(|l| l.contains(&(n as u32))));
            if kept { v.clone() } else { self.only(ty, v, list) }
        };
        Val::Record(c.fields.iter().zip(fields).enumerate().map(field).collect())
    }
}

fn push(queue: &mut VecDeque<Job>, room: usize, job: Job) {
    if queue.len() < room {
        queue.push_back(job);
    }
}

/// Adds the clones of a session: first the copies of its group.
fn clones(queue: &mut VecDeque<Job>, room: usize, session: usize, packet: &[u8], start: &Start) {
    let Some((_, port, group)) = SESSIONS.iter().find(|(n, ..)| *n == session) else { return };
    let copies = GROUPS.iter().find(|(n, _)| Some(*n) == *group).map(|(_, copies)| copies);
    let copies = copies.map(|all| all.iter().map(|(port, replica)| (*port, Some(*replica))).collect());
    for to in copies.into_iter().chain(port.map(|port| vec![(port, Some(0))])) {
        push(queue, room, Job { packet: packet.to_vec(), start: start.clone(), to });
    }
}
