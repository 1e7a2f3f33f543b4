//! The lowering: resolved program to IR. It inlines parsers, controls, actions and functions, turns
//! tables into lookups, and header fields into loads, which later passes remove where the fields
//! are unused. The result goes to `opt`.

mod checksum;
mod claims;
mod deparser;
mod digest;
mod expr;
mod externs;
mod hash;
mod information;
mod invoke;
mod layout;
mod loops;
mod lvalue;
mod number;
mod objects;
mod parser;
mod pipeline;
mod placed;
#[cfg(test)]
mod reference;
mod requests;
mod selector;
mod state_loop;
mod states;
mod stmt;
mod storage;
mod table;
mod table_code;
mod tenant;
mod trace;
mod value_set;
mod varbit;
mod wide;
mod words;

use crate::diagnostics::{Code, Sink};
use crate::hir::{Expr, InstId, Program, ValueSetId, VarId};
use crate::ir::builder::{Builder, Slot};
use crate::ir::{Block, Function, Map, MapId, Opnd};
use crate::lexer::Name;
use crate::source::Span;
use p4shield_abi::ProgramLimit;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;
use storage::{HeaderStore, Storage};

/// What a name refers to while the program is lowered.
#[derive(Clone)]
enum Binding {
    Storage(Rc<Storage>),
    /// The argument of a constructor parameter.
    Constant(Expr),
    Object(BoundObject),
}

#[derive(Clone)]
enum BoundObject {
    PacketIn,
    PacketOut,
    /// An instance, with the path of its enclosing instances, which distinguishes its copies.
    Instance(InstId, Rc<[Name]>),
}

/// The fields of standard metadata, by name.
struct StandardMetadata {
    names: Vec<Name>,
    fields: Vec<Rc<Storage>>,
}

/// A callee that is being inlined.
struct InlinedCallee {
    /// Target of `return`.
    end: Block,
    /// Storage of the result.
    result: Option<Rc<Storage>>,
    /// Copies of out and inout parameters to arguments, which its end performs.
    copy_out: invoke::Copies,
}

/// Targets of `break` and `continue`.
struct LoopTargets {
    end: Block,
    next: Block,
}

/// An emitted header.
struct EmittedHeader {
    header: Rc<HeaderStore>,
    /// Whether the deparser emits it.
    flag: Slot,
    span: Span,
}

struct Lowering<'a> {
    hir: &'a Program,
    sink: &'a mut Sink,
    b: Builder,
    env: HashMap<VarId, Binding>,
    /// Names of the instances that are being inlined.
    path: Vec<Name>,
    /// The names in the control plane of instance paths.
    control_paths: HashMap<Rc<[Name]>, Rc<str>>,
    /// The objects that have a name in the control plane.
    claims: claims::Claims,
    scopes: Vec<InlinedCallee>,
    loops: Vec<LoopTargets>,
    /// Maps of extern instances, by instance path.
    maps_by_path: HashMap<(InstId, Rc<[Name]>), MapId>,
    plans: HashMap<(crate::hir::TableId, Rc<[Name]>), Rc<table::TablePlan>>,
    tables: Vec<p4shield_tables::model::TableFacts>,
    /// Of each of `tables`, the entries that are code.
    code_entries: Vec<CodeEntries>,
    arrays: Vec<p4shield_tables::model::ArrayFacts>,
    value_sets: Vec<p4shield_tables::model::ValueSetFacts>,
    /// Maps of value sets, and indices of their facts, by instance path.
    value_sets_by_path: HashMap<(ValueSetId, Rc<[Name]>), value_set::PlacedSet>,
    externs: BTreeSet<String>,
    /// C declarations of the types that the tenant's functions use.
    c: crate::ctypes::Declarations,
    /// The map whose value contains the arguments passed to C by pointer.
    argument_map: Option<MapId>,
    /// Calls of functions in a compartment.
    calls: placed::Calls,
    packet: PacketState,
    /// Target for packets that the parser rejects.
    reject: Block,
    /// Target for packets that are dropped.
    refuse: Block,
    /// Targets for packets that are dropped because they meet a limit, by [`ProgramLimit::index`].
    limits: [Block; ProgramLimit::ALL.len()],
    emitted: Vec<EmittedHeader>,
    /// Whether the program calls `truncate`.
    truncates: bool,
    /// First read of in-VM information; the program's check of its status is recorded separately.
    info_read: Option<Span>,
    checks_status: bool,
    inlined: usize,
    /// How often a loop of parser states without another bound is unrolled.
    rounds: u32,
    /// Whether there is such a loop.
    cut_parser: bool,
    /// The loops that may iterate more often than they are unrolled.
    cut_loops: HashSet<Span>,
    /// Whether [`MAX_INLINED`] was exceeded.
    too_large: bool,
    architecture: p4shield_tables::model::Architecture,
    standard: Option<StandardMetadata>,
    /// Requests of the program to the switch.
    requests: requests::Requests,
    /// The calls that make requests: names and locations.
    request_spans: Vec<(Name, Span)>,
    /// Needs that only a switch meets ([`p4shield_abi::object::need`]), and where the program has them.
    needs: Vec<(u32, Span)>,
    /// The map with the block of a divided program.
    block: Option<MapId>,
    /// The last colour that each direct meter returned.
    direct: HashMap<InstId, Slot>,
    digests: digest::Digests,
    /// The events of a run, if the program is compiled for tracing.
    tracer: Option<trace::Tracer>,
}

/// Variables of the generated code rather than of the program.
struct PacketState {
    data: Slot,
    end: Slot,
    /// Start of the next header, as a pointer and in bytes.
    cursor: Slot,
    parsed: Slot,
    verdict: Slot,
    truncate_to: Slot,
    /// The parser error.
    error: Slot,
}

/// Rules and values of a table's entries, see [`p4shield_abi::schema::TableSchema::entries`].
pub(crate) type CodeEntries = Vec<(Vec<u8>, Vec<u8>)>;

/// The lowered program and its properties.
pub(crate) struct Lowered {
    pub(crate) function: Function,
    pub(crate) tables: Vec<p4shield_tables::model::TableFacts>,
    /// Of each of `tables`, the entries that are code.
    pub(crate) code_entries: Vec<CodeEntries>,
    /// The map of arguments passed to C by pointer.
    pub(crate) argument_map: Option<MapId>,
    /// The map of calls of functions in a compartment, and those functions.
    pub(crate) calls: Option<MapId>,
    pub(crate) placed: Vec<placed::PlacedFunction>,
    pub(crate) arrays: Vec<p4shield_tables::model::ArrayFacts>,
    pub(crate) value_sets: Vec<p4shield_tables::model::ValueSetFacts>,
    /// Messages between program and control plane.
    pub(crate) messages: Vec<p4shield_abi::schema::MessageSchema>,
    pub(crate) externs: BTreeSet<String>,
    /// C declarations of the tenant's own functions.
    pub(crate) c_header: String,
    pub(crate) architecture: p4shield_tables::model::Architecture,
    /// Needs that only a switch meets, and where the program has them.
    pub(crate) needs: Vec<(u32, Span)>,
    /// The map with the block of a divided program.
    pub(crate) block: Option<MapId>,
    /// Whether a loop of parser states ends after the `rounds` that [`lower`] got.
    pub(crate) cut_parser: bool,
    /// Trace points, by number less 1.
    pub(crate) points: Vec<PointDraft>,
}

/// Maximum number of inlined statements: a bound on exponential growth through nested calls.
const MAX_INLINED: usize = 200_000;

impl Lowering<'_> {
    fn error(&mut self, code: Code, span: Span, message: impl Into<String>, hint: impl Into<String>) {
        self.sink.report(code, span, message, hint);
    }

    fn unsupported(&mut self, span: Span, what: &str) {
        self.sink.unsupported(span, what);
    }

    /// Reports a compiler bug.
    fn internal(&mut self, span: Span, what: &str) {
        self.error(Code::Internal, span, format!("internal error: {what}"), "please report this program");
    }

    /// Counts a statement; beyond the limit, inlining stops.
    fn count(&mut self, span: Span) -> bool {
        self.inlined += 1;
        if self.inlined > MAX_INLINED && !self.too_large {
            self.too_large = true;
            let message =
                format!("the program has more than {MAX_INLINED} statements after the inlining of calls");
            self.error(Code::TooLarge, span, message, "call large actions and controls from fewer places");
        }
        !self.too_large
    }

    /// Warns of a loop that may iterate more often than the `rounds` that it is unrolled.
    fn cut_loop(&mut self, at: Span, rounds: u32, fate: &str, hint: &str) {
        if self.cut_loops.insert(at) {
            let message = format!("this loop ends after {rounds} iterations; {fate}");
            self.error(Code::LoopLimit, at, message, hint);
        }
    }

    fn add_map(&mut self, map: Map) -> MapId {
        self.b.f.maps.push(map);
        MapId(self.b.f.maps.len() as u32 - 1)
    }

    /// Returns a map name that is a C identifier and unused.
    fn map_name(&self, parts: &[Name], last: &str) -> String {
        let names: Vec<&str> = parts.iter().map(|p| &**p).chain([last]).collect();
        let base: String =
            names.join("_").chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let reserved = [p4shield_abi::division::BLOCK_MAP, p4shield_abi::call::CALLS_MAP];
        let taken = |n: &str| reserved.contains(&n) || self.b.f.maps.iter().any(|m| m.name == n);
        let mut name = base.clone();
        let mut n = 2;
        while taken(&name) {
            name = format!("{base}_{n}");
            n += 1;
        }
        name
    }

    /// Enters an instance: appends it to the path.
    fn enter(&mut self, inst: &crate::hir::Instance) {
        let name = self.full_name(&self.path, inst.span, &inst.name).into();
        self.path.push(inst.name.clone());
        let path: Rc<[Name]> = self.path.clone().into();
        let id = self.hir.instances.iter().position(|i| std::ptr::eq(&**i, inst));
        self.claims.enter(&path, InstId(id.unwrap_or_default() as u32));
        self.control_paths.insert(path, name);
    }

    /// Returns the name in the control plane of a declaration within the instance at this path.
    fn full_name(&self, path: &[Name], at: Span, name: &Name) -> String {
        self.hir.control_names.full(self.control_path(path), at, name)
    }

    fn control_path(&self, path: &[Name]) -> &str {
        self.control_paths.get(path).map_or("", |p| p)
    }

    fn path_with(&self, name: &Name) -> Rc<[Name]> {
        self.path.iter().chain([name]).cloned().collect()
    }

    /// Lowers `c ? t : f` for values of at most 64 bits.
    fn select(&mut self, c: Opnd, t: Opnd, f: Opnd, width: u8) -> Opnd {
        if let Opnd::C(c) = c {
            return if c != 0 { t } else { f };
        }
        let slot = self.b.slot(crate::ir::Ty::Int(width));
        let (yes, no, end) = (self.b.new_block("then"), self.b.new_block("else"), self.b.new_block("join"));
        self.b.branch(c, yes, no);
        for (block, v) in [(yes, t), (no, f)] {
            self.b.switch_to(block);
            self.b.write(slot, v);
            self.b.jump(end);
        }
        self.b.switch_to(end);
        self.b.read(slot)
    }
}

pub(crate) use objects::unit;
pub(crate) use pipeline::{Settings, lower};
pub(crate) use placed::compartment;
pub(crate) use states::MAX_ROUNDS;
pub(crate) use trace::PointDraft;
