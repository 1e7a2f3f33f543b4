//! Requests of a v1model program to the switch: clones, resubmission, recirculation, each with
//! a list of the metadata fields that the packet keeps.
//!
//! A request takes effect where the control ends in which it was made, whatever happens to the packet until
//! then (`pipeline::division` has that end): the last request of a kind counts, and the fields have their
//! values from there.

use super::Lowering;
use super::storage::Storage;
use super::words::words_of;
use crate::diagnostics::Code;
use crate::hir::{Call, CallArg, Callee, Expr, ExprKind, Program, Stmt, StmtKind};
use crate::ir::builder::Slot;
use crate::ir::{Opnd, Ty};
use crate::source::Span;
use crate::types::Type;
use num_traits::ToPrimitive;
use p4shield_abi::division::argument;
use std::collections::{BTreeMap, HashSet};

/// The slots of one kind of request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// 1 if the program made it.
    pub(super) wanted: Slot,
    /// Its session, if it is a clone.
    pub(super) session: Slot,
    /// The list of fields, by its number in [`Requests::lists`]; 0 is none.
    pub(super) list: Slot,
}

/// The control that is being lowered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Ingress,
    Egress,
}

/// The requests that a program can make. One that it makes nowhere is `None`.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// Clones, by [`Stage`].
    pub(super) clone: [Option<Request>; 2],
    pub(super) resubmit: Option<Request>,
    pub(super) recirculate: Option<Request>,
    pub(super) stage: Stage,
    /// True if statements name fields themselves: those become known late.
    names_fields: bool,
    /// The first place where the program reads how long a packet waited in a queue.
    pub(super) queues: Option<Span>,
    /// True if the program names the priority of packets.
    pub(super) has_priorities: bool,
    /// The slots of the fields of each list.
    pub(super) lists: BTreeMap<u32, HashSet<Slot>>,
}

impl Requests {
    /// Returns true if a packet may keep the field in this slot.
    pub(super) fn keeps(&self, slot: Slot) -> bool {
        self.names_fields || self.lists.values().any(|slots| slots.contains(&slot))
    }
}

/// Number of the list of `@field_list(0)`; those of the statements that name fields themselves follow all of
/// the annotations, whose numbers have 8 bits.
const FIRST_LIST: u32 = 1;
const FIRST_OWN_LIST: u32 = FIRST_LIST + 256;

/// Returns the kind of request that an extern function of v1model makes. A tenant's own functions have other
/// names.
pub(super) fn kind_of(function: &str) -> Option<&'static str> {
    Some(match function {
        "clone" | "clone3" | "clone_preserving_field_list" => "clone",
        "resubmit" | "resubmit_preserving_field_list" => "resubmit",
        "recirculate" | "recirculate_preserving_field_list" => "recirculate",
        _ => return None,
    })
}

/// Returns true if the program calls an extern function with a name of which `f` holds.
fn calls(p: &Program, f: &dyn Fn(&str) -> bool) -> bool {
    fn within(p: &Program, stmts: &[Stmt], f: &dyn Fn(&str) -> bool) -> bool {
        stmts.iter().any(|s| {
            let called = matches!(&s.kind, StmtKind::Call(Call { callee: Callee::Extern(id), .. })
                if f(&p.extern_fns[id.0 as usize].name));
            called || s.blocks().into_iter().any(|b| within(p, b, f))
        })
    }
    let controls = p.controls.iter().flat_map(|c| [&c.locals, &c.body]);
    let routines = p.actions.iter().chain(&p.functions).map(|r| &r.body);
    controls.chain(routines).any(|body| within(p, body, f))
}

/// The fields of standard metadata about queues, with their places in the block.
pub(super) const QUEUE_FIELDS: [(&str, usize); 4] = [
    ("enq_timestamp", argument::QUEUED_AT),
    ("enq_qdepth", argument::QUEUED_BEHIND),
    ("deq_timedelta", argument::WAITED),
    ("deq_qdepth", argument::LEFT_BEHIND),
];

/// Returns the first place where the program uses an expression of this kind.
fn first_use(p: &Program, kind: fn(&Expr) -> bool) -> Option<Span> {
    fn within(stmts: &[Stmt], kind: fn(&Expr) -> bool) -> Option<Span> {
        stmts.iter().find_map(|s| {
            let called =
                if let StmtKind::Call(c) = &s.kind { c.args.as_written().collect() } else { Vec::new() };
            let called = called.into_iter().filter_map(|(_, a)| a.expr());
            let found = s.exprs().into_iter().chain(called).find(|e| e.any(&kind)).map(|e| e.span);
            found.or_else(|| s.blocks().into_iter().find_map(|b| within(b, kind)))
        })
    }
    let keys = p.tables.iter().flat_map(|t| &t.keys).map(|k| &k.value);
    let key = keys.into_iter().find(|e| e.any(&kind)).map(|e| e.span);
    let controls = p.controls.iter().flat_map(|c| [&c.locals, &c.body]);
    let routines = p.actions.iter().chain(&p.functions).map(|r| &r.body);
    key.or_else(|| controls.chain(routines).find_map(|body| within(body, kind)))
}

fn is_queue_field(e: &Expr) -> bool {
    standard_field(e).is_some_and(|name| QUEUE_FIELDS.iter().any(|(field, _)| *field == name))
}

/// Returns the name of a field of standard metadata.
fn standard_field(e: &Expr) -> Option<&str> {
    let ExprKind::Field(of, index) = &e.kind else { return None };
    let Type::Composite(c) = of.ty.base() else { return None };
    let (name, _) = c.fields.get(*index).filter(|_| &*c.name == "standard_metadata_t")?;
    Some(name)
}

impl Lowering<'_> {
    /// Prepares slots for the requests that the program makes. `metadata` are type and storage of the fields
    /// that it can keep.
    pub(super) fn open_requests(&mut self, metadata: &[(&Type, &Storage)]) {
        let made = |kind: &str| calls(self.hir, &|n| kind_of(n) == Some(kind));
        let (clone, resubmit, recirculate) = (made("clone"), made("resubmit"), made("recirculate"));
        self.requests.clone = [(); 2].map(|()| clone.then(|| self.request()));
        self.requests.resubmit = resubmit.then(|| self.request());
        self.requests.recirculate = recirculate.then(|| self.request());
        let own = ["clone3", "resubmit", "recirculate"];
        self.requests.names_fields = calls(self.hir, &|n| own.contains(&n));
        self.requests.queues = first_use(self.hir, is_queue_field);
        let is_priority = |e: &Expr| standard_field(e) == Some("priority");
        self.requests.has_priorities = first_use(self.hir, is_priority).is_some();
        if clone || resubmit || recirculate {
            metadata.iter().for_each(|(ty, storage)| self.listed_fields(ty, storage, &[]));
        }
    }

    fn request(&mut self) -> Request {
        let request = Request {
            wanted: self.b.slot(Ty::Int(1)),
            session: self.b.slot(Ty::Int(32)),
            list: self.b.slot(Ty::Int(16)),
        };
        for slot in [request.wanted, request.session, request.list] {
            self.b.write(slot, Opnd::C(0));
        }
        request
    }

    /// Adds the fields with `@field_list` to their lists. `lists` are those of the field around them.
    fn listed_fields(&mut self, ty: &Type, storage: &Storage, lists: &[u32]) {
        match (ty.base(), storage) {
            (Type::Composite(c), Storage::Group(_) | Storage::Header(_)) => {
                let fields = match storage {
                    Storage::Group(fields) => fields,
                    Storage::Header(h) => {
                        self.list(lists, &[h.valid]);
                        &h.fields
                    }
                    _ => return,
                };
                for (i, ((_, ty), field)) in c.fields.iter().zip(fields).enumerate() {
                    let own = self.hir.field_lists.get(&(c.id, i)).into_iter().flatten();
                    let all: Vec<u32> = own.map(|n| FIRST_LIST + n).chain(lists.iter().copied()).collect();
                    self.listed_fields(ty, field, &all);
                }
            }
            (Type::Stack(ty, _), Storage::Stack(items, next)) => {
                self.list(lists, &[*next]);
                items.iter().for_each(|item| self.listed_fields(ty, item, lists));
            }
            (_, Storage::Scalar(slots, _)) => self.list(lists, slots),
            _ => {}
        }
    }

    fn list(&mut self, lists: &[u32], slots: &[Slot]) {
        lists.iter().for_each(|n| self.requests.lists.entry(*n).or_default().extend(slots));
    }

    /// Lowers a call that makes a request. Returns false if the function is another one.
    pub(super) fn request_call(&mut self, name: &str, c: &Call) -> bool {
        let Some(kind) = kind_of(name) else { return false };
        let stage = self.requests.stage as usize;
        let request = match kind {
            "clone" => self.requests.clone[stage],
            // The reference switch looks at each of these at the end of one control only.
            "resubmit" => self.requests.resubmit,
            _ => self.requests.recirculate,
        };
        let Some(request) = request else { return false };
        let (session, fields) = match (kind, &*c.args) {
            ("clone", [_, CallArg::In(session)]) => (Some(session), None),
            ("clone", [_, CallArg::In(session), CallArg::In(fields)]) => (Some(session), Some(fields)),
            (_, [CallArg::In(fields)]) => (None, Some(fields)),
            _ => return false,
        };
        let session = session.map_or(Opnd::C(0), |e| self.word(e));
        let list = fields.map_or(0, |e| {
            if name.ends_with("_field_list") { self.annotated_list(e) } else { self.own_list(e) }
        });
        let values = [(request.wanted, 1), (request.list, list.into())];
        values.into_iter().for_each(|(slot, value)| self.b.write(slot, Opnd::C(value)));
        self.b.write(request.session, session);
        true
    }

    fn annotated_list(&mut self, number: &Expr) -> u32 {
        let known = self.known(number).and_then(|n| n.to_u32()).filter(|n| *n < 256);
        known.map_or_else(
            || {
                let hint = "write a number from 0 to 255, as in @field_list(1)";
                self.error(Code::BadConstant, number.span, "this field list is not known", hint);
                0
            },
            |n| FIRST_LIST + n,
        )
    }

    /// Returns a new list of the fields that an argument names; 0 if there are none.
    fn own_list(&mut self, fields: &Expr) -> u32 {
        let mut slots = HashSet::new();
        self.named_fields(fields, &mut slots);
        if slots.is_empty() {
            return 0;
        }
        let number = self.requests.lists.keys().next_back().map_or(0, |last| last + 1).max(FIRST_OWN_LIST);
        self.requests.lists.insert(number, slots);
        number
    }

    fn named_fields(&mut self, e: &Expr, out: &mut HashSet<Slot>) {
        if let ExprKind::Aggregate(items) = &e.kind {
            return items.iter().for_each(|item| self.named_fields(item, out));
        }
        let Some(storage) = self.storage_of(e) else {
            return self.unsupported(e.span, "keeping a value that is no field of metadata");
        };
        let mut words = Vec::new();
        words_of(&storage, &mut words);
        out.extend(words.into_iter().map(|w| w.slot));
    }
}
