//! Every state that a user VM and its P4 VM can reach, both of which restart once, beside the P4 VM of
//! another VM, when a host delivers any message that was ever sent to any party at any time.
//!
//! The state of a party follows from the messages that it accepted. The model therefore searches over these,
//! without a limit of depth: it ends when no delivery leads to a new state.

use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;

use super::parties::{Party, assert_agreed, at, attested, binding, keys};
use crate::binding::Role;
use crate::crypto::Curve;
use crate::error::{Awaited, HandshakeError};

/// Role and VM of each party: a user VM before and after a restart, its P4 VM likewise, another P4 VM.
const PARTIES: [(Role, u32); 5] = [
    (Role::Initiator, 1),
    (Role::Initiator, 1),
    (Role::Responder, 1),
    (Role::Responder, 1),
    (Role::Responder, 2),
];

/// A step of the host that changes a party's state.
#[derive(Clone, Debug)]
enum Edge {
    Deliver(usize, Rc<[u8]>),
    /// The party's time limit passes.
    TimeOut(usize),
}

/// The parties after some steps, and all messages that were sent.
struct Node {
    parties: Vec<Party>,
    sent: Vec<Rc<[u8]>>,
    /// What each party accepted.
    accepted: Vec<Vec<Rc<[u8]>>>,
}

impl Node {
    fn start() -> Self {
        let mut node = Self { parties: Vec::new(), sent: Vec::new(), accepted: vec![Vec::new(); 5] };
        for (n, (role, vm)) in PARTIES.into_iter().enumerate() {
            let config = attested(Curve::Toy, binding(1, vm), n as u64).with_lowest_epoch(n as u64);
            let (party, first) = Party::new(role, config, n as u64, at(0));
            node.parties.push(party);
            node.sent.extend(first.map(Rc::from));
        }
        node
    }

    fn after(path: &[Edge]) -> Self {
        let mut node = Self::start();
        for edge in path {
            assert!(node.take(edge), "a path repeats");
        }
        node
    }

    /// Takes a step. Returns whether the party accepted it.
    fn take(&mut self, edge: &Edge) -> bool {
        let (n, bytes) = match edge {
            Edge::Deliver(n, bytes) => (*n, Rc::clone(bytes)),
            Edge::TimeOut(n) => (*n, Rc::from([].as_slice())),
        };
        let party = &mut self.parties[n];
        let before = party.machine.awaits();
        let answer = match edge {
            Edge::Deliver(..) => party.handle(&bytes, at(0)),
            Edge::TimeOut(_) => party.poll(at(1 << 40)),
        };
        let is_accepted = party.machine.awaits() != before;
        if is_accepted {
            self.accepted[n].push(bytes);
            self.sent.extend(answer.map(Rc::from));
        } else if let Some(answer) = answer {
            assert!(self.sent.iter().any(|sent| **sent == answer[..]), "a repetition is no new message");
        }
        is_accepted
    }

    /// Returns all steps that the host has here.
    fn edges(&self) -> Vec<Edge> {
        let deliver = |n| self.sent.iter().map(move |bytes| Edge::Deliver(n, Rc::clone(bytes)));
        let all = 0..self.parties.len();
        all.clone().flat_map(deliver).chain(all.map(Edge::TimeOut)).collect()
    }

    fn check(&self) {
        let mut seen: HashMap<[u8; 32], usize> = HashMap::new();
        for (n, party) in self.parties.iter().enumerate() {
            let Some(session) = &party.session else { continue };
            assert!(session.standing().is_attested());
            assert_ne!(PARTIES[n].1, 2, "the other VM's P4 VM has no initiator");
            let others = self.parties.iter().enumerate().filter(|(m, _)| *m != n);
            let mut ends = others.filter_map(|(m, other)| Some((m, other.session.as_ref()?)));
            match ends.find(|(_, other)| other.transcript() == session.transcript()) {
                Some((m, other)) => {
                    assert_agreed(session, other);
                    assert_ne!(PARTIES[m].0, PARTIES[n].0);
                }
                None => assert_eq!(PARTIES[n].0, Role::Responder, "an initiator has a session alone"),
            }
            for key in keys(session) {
                let first = *seen.entry(key).or_insert(n);
                let same = self.parties[first].session.as_ref().map(|s| *s.transcript());
                assert_eq!(same, Some(*session.transcript()), "two sessions share a key");
            }
        }
    }
}

#[test]
fn every_reachable_state_is_safe() {
    let mut known: HashSet<Vec<Vec<Rc<[u8]>>>> = HashSet::new();
    let mut queue = VecDeque::from([Vec::<Edge>::new()]);
    let (mut states, mut agreed, mut both) = (0, 0, 0);
    while let Some(path) = queue.pop_front() {
        let mut node = Node::after(&path);
        states += 1;
        node.check();
        let sessions = |role| {
            let of = PARTIES.iter().zip(&node.parties).filter(move |((r, _), _)| *r == role);
            of.filter(|(_, party)| party.session.is_some()).count()
        };
        agreed += usize::from(sessions(Role::Initiator) > 0);
        both += usize::from(sessions(Role::Initiator) == 2);
        for edge in node.edges() {
            if !node.take(&edge) {
                continue;
            }
            let longer: Vec<Edge> = path.iter().cloned().chain([edge]).collect();
            if known.insert(node.accepted.clone()) {
                queue.push_back(longer);
            }
            node = Node::after(&path);
        }
    }
    println!("{states} states, {agreed} of them with a session, {both} with two");
    assert!(states > 1000 && agreed > 100 && both >= 2);
}

/// Whatever a party ignored before, it accepts what is due.
#[test]
fn ignored_messages_change_nothing() {
    let mut path: Vec<Edge> = Vec::new();
    // The honest way of the second initiator and responder, while everything sent goes to all before.
    for to in [3, 1, 3, 1, 3, 1] {
        let mut node = Node::after(&path);
        let due = Rc::clone(node.sent.iter().rfind(|m| m[4] as usize == path.len() + 1).expect("sent"));
        for edge in node.edges() {
            if let Edge::Deliver(n, bytes) = &edge
                && (*n, bytes) != (to, &due)
                && [1, 3].contains(n)
                && !(path.is_empty() && *n == 3)
            {
                assert!(!node.take(&edge), "{} accepts message {} early", n, bytes[4]);
            }
        }
        let edge = Edge::Deliver(to, due);
        assert!(node.take(&edge), "message {} is not accepted", path.len() + 1);
        path.push(edge);
    }
    let node = Node::after(&path);
    node.check();
    assert!(node.parties[1].session.is_some() && node.parties[3].session.is_some());
}

#[test]
fn a_time_limit_ends_each_state_with_its_name() {
    let mut path: Vec<Edge> = Vec::new();
    let awaited = [
        (Awaited::Answer, Awaited::Identity),
        (Awaited::Evidence, Awaited::Identity),
        (Awaited::Evidence, Awaited::Evidence),
        (Awaited::Confirmation, Awaited::Evidence),
        (Awaited::Confirmation, Awaited::Use),
    ];
    let deliver = |path: &mut Vec<Edge>| {
        let (node, step) = (Node::after(path), path.len());
        let due = node.sent.iter().rfind(|m| m[4] as usize == step + 1).expect("sent");
        path.push(Edge::Deliver(if step % 2 == 0 { 3 } else { 1 }, Rc::clone(due)));
    };
    for (of_initiator, of_responder) in awaited {
        deliver(&mut path);
        for (n, expected) in [(1, of_initiator), (3, of_responder)] {
            let mut node = Node::after(&path);
            assert!(node.take(&Edge::TimeOut(n)));
            match &node.parties[n].error {
                Some(HandshakeError::TimedOut { waiting_for, .. }) => assert_eq!(*waiting_for, expected),
                error => panic!("{error:?} instead of {expected:?}"),
            }
        }
    }
}
