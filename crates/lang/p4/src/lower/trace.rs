//! Tracing: code that records what a run does, in a program that is compiled for it
//! ([`p4shield_abi::trace`]). Nothing here has an effect otherwise.

use super::Lowering;
use crate::ir::builder::Slot;
use crate::ir::{BinOp, Cc, Map, MapId, Op, Opnd, Ty};
use crate::source::Span;
use p4shield_abi::context::offset;
use p4shield_abi::map::{MapDefinition, TYPE_ARRAY};
use p4shield_abi::trace::{EVENT_SIZE, EVENT_WORDS, MAX_EVENTS, TRACE_MAP};
use p4shield_tables::model::{KeyFacts, ParamFacts};
use p4shield_tables::trace::{PointKind, PointValue};
use std::collections::HashMap;

/// Names of the entries of a divided program ([`p4shield_abi::division::entry`]), by number.
const ENTRIES: [&str; 7] = ["arrival", "unicast", "copy", "clone_egress", "clone", "resubmit", "recirculate"];

/// A trace point whose place is no text yet.
#[derive(Clone, Debug)]
pub(crate) struct PointDraft {
    pub(crate) kind: PointKind,
    /// Its name; without one, the text at `at`.
    pub(crate) name: Option<String>,
    pub(crate) at: Span,
    pub(crate) values: Vec<PointValue>,
}

/// The state of tracing.
pub(super) struct Tracer {
    map: MapId,
    /// Events so far in this run.
    count: Slot,
    points: Vec<PointDraft>,
    /// Numbers of the points: the copies of a state or control share theirs.
    numbers: HashMap<(PointKind, Option<String>, Span), u64>,
}

/// A value to record, from its lowest word on.
pub(super) type Traced<'a> = (PointValue, &'a [Opnd]);

impl Tracer {
    /// Returns the number of a point, from 1.
    fn number(&mut self, point: PointDraft) -> u64 {
        let PointDraft { kind, name, at, .. } = &point;
        let next = self.points.len() as u64 + 1;
        let number = *self.numbers.entry((*kind, name.clone(), *at)).or_insert(next);
        if number == next {
            self.points.push(point);
        }
        number
    }
}

fn plain(name: &str, width: u32) -> PointValue {
    PointValue { name: name.to_owned(), width, names: Vec::new() }
}

fn named(name: &str, names: impl Iterator<Item = impl Into<String>>) -> PointValue {
    PointValue { names: names.map(Into::into).collect(), ..plain(name, 32) }
}

impl Lowering<'_> {
    /// Makes the map of the events; each run starts with none.
    pub(super) fn start_trace(&mut self) {
        let definition = MapDefinition {
            map_type: TYPE_ARRAY,
            key_size: 4,
            value_size: EVENT_SIZE,
            max_entries: MAX_EVENTS,
            flags: 0,
        };
        let map = self.add_map(Map { name: TRACE_MAP.to_owned(), definition, entries: Vec::new() });
        let count = self.b.slot(Ty::Int(32));
        self.b.write(count, Opnd::C(0));
        self.tracer = Some(Tracer { map, count, points: Vec::new(), numbers: HashMap::new() });
    }

    /// Returns the points, for the object.
    pub(super) fn trace_points(&mut self) -> Vec<PointDraft> {
        self.tracer.take().map_or_else(Vec::new, |t| t.points)
    }

    /// Records an event at the present place of the code.
    pub(super) fn trace(&mut self, kind: PointKind, name: Option<&str>, at: Span, values: &[Traced<'_>]) {
        if self.b.is_dead() {
            return;
        }
        let Some(t) = &mut self.tracer else { return };
        let described = values.iter().map(|(value, _)| value.clone()).collect();
        let number = t.number(PointDraft { kind, name: name.map(str::to_owned), at, values: described });
        let (map, count) = (t.map, t.count);
        let n = self.b.read(count);
        let base = self.b.lookup(map, vec![(0, 4, n)]);
        let there = self.b.cmp(Cc::Ne, base, Opnd::C(0), 64);
        let (yes, end) = (self.b.new_block("event"), self.b.new_block("traced"));
        self.b.branch(there, yes, end);
        self.b.switch_to(yes);
        let words = values.iter().flat_map(|(_, words)| words.iter().copied());
        for (i, value) in [Opnd::C(number)].into_iter().chain(words).take(EVENT_WORDS).enumerate() {
            self.b.emit(Op::StoreMap { base, offset: 8 * i as i32, bytes: 8, value }, Ty::None);
        }
        self.b.jump(end);
        self.b.switch_to(end);
        let next = self.b.bin(BinOp::Add, n, Opnd::C(1), 32);
        self.b.write(count, next);
    }

    /// Records where the run starts, for a program that may have several runs for a packet.
    pub(super) fn trace_run(&mut self, at: Span) {
        if self.tracer.is_none() {
            return;
        }
        let [entry, port] = [offset::OUTPUT_ACTION, offset::OUTPUT_PORT].map(|at| self.context(at, 4));
        let entry = self.b.bin(BinOp::And, entry, Opnd::C(0x7f), 32);
        let port = self.b.truncate(port, 16);
        let values = [(named("from", ENTRIES.iter().copied()), &[entry][..]), (plain("port", 16), &[port])];
        self.trace(PointKind::Run, Some("run"), at, &values);
    }

    /// Records that the parser has ended, and with which error.
    pub(super) fn trace_parsed(&mut self, at: Span) {
        if self.tracer.is_none() {
            return;
        }
        let error = self.b.read(self.packet.error);
        let errors = named("error", self.hir.errors.iter().map(|e| e.to_string()));
        self.trace(PointKind::Parsed, Some("parser"), at, &[(errors, &[error])]);
    }

    /// Starts anew with the events of a run that goes on behind a call.
    pub(super) fn restart_events(&mut self) {
        if let Some(t) = &self.tracer {
            self.b.write(t.count, Opnd::C(0));
        }
    }

    /// Records the values that a table is asked for.
    pub(super) fn trace_table(&mut self, name: &str, at: Span, keys: &[KeyFacts], values: &[Vec<Opnd>]) {
        let keys = keys.iter().zip(values).map(|(k, words)| (plain(&k.name, k.width), words.as_slice()));
        self.trace(PointKind::Table, Some(name), at, &keys.collect::<Vec<_>>());
    }

    /// Records the action that a table chose, and whether an entry matched.
    pub(super) fn trace_action(
        &mut self,
        name: &str,
        at: Span,
        hit: Opnd,
        params: &[ParamFacts],
        data: &[Vec<Opnd>],
    ) {
        let hit = [hit];
        let hit = (plain("hit", 1), hit.as_slice());
        let params = params.iter().zip(data).map(|(p, words)| (plain(&p.name, p.width), words.as_slice()));
        self.trace(
            PointKind::Action,
            Some(name),
            at,
            &std::iter::once(hit).chain(params).collect::<Vec<_>>(),
        );
    }

    /// Records whether a condition was true.
    pub(super) fn trace_condition(&mut self, at: Span, is_true: bool) {
        self.trace(PointKind::Condition, None, at, &[(plain("is", 1), &[Opnd::C(is_true.into())])]);
    }
}
