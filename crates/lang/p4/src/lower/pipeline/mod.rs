//! The architectures: composition of parsers and controls to one program.
//!
//! This module contains what the architectures share: access to the packet, variables that pass
//! from stage to stage, and the verdict.

mod division;
mod ebpf;
mod ubpf;
mod v1model;

use super::storage::Storage;
use super::{Binding, BoundObject, Lowered, Lowering, MAX_ROUNDS, PacketState, StandardMetadata, layout};
use crate::diagnostics::{Code, Sink};
use crate::hir::{Constructed, Control, CtorArg, Instance, Object, Param, Parser, Program};
use crate::ir::builder::Builder;
use crate::ir::{Block, Opnd, Ty};
use crate::source::Span;
use crate::types::Type;
use crate::{Options, Placement, Reject};
use p4shield_abi::ProgramLimit;
use p4shield_tables::model::Architecture;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// How a program is lowered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) reject: Reject,
    /// Iterations of parser loops without another bound.
    pub(crate) rounds: u32,
    /// True if it records events.
    pub(crate) trace: bool,
    /// True if marked functions run in a compartment.
    pub(crate) calls: bool,
}

impl Settings {
    pub(crate) const fn of(options: &Options) -> Self {
        let Options { reject, trace, .. } = *options;
        let calls = matches!(options.placement, Placement::Extern);
        Self { reject, rounds: MAX_ROUNDS, trace, calls }
    }
}

/// Lowers the program's `main`. The result is complete only if no error was reported.
pub(crate) fn lower(hir: &Program, end: Span, settings: Settings, sink: &mut Sink) -> Lowered {
    let mut b = Builder::new();
    let (rejected, refused) = (b.new_block("reject"), b.new_block("refuse"));
    let limits = ProgramLimit::ALL.map(|limit| b.new_block(limit.name()));
    let packet = PacketState {
        data: b.slot(Ty::Packet),
        end: b.slot(Ty::Packet),
        cursor: b.slot(Ty::Packet),
        parsed: b.slot(Ty::Int(32)),
        verdict: b.slot(Ty::Int(1)),
        truncate_to: b.slot(Ty::Int(32)),
        error: b.slot(Ty::Int(32)),
    };
    let mut l = Lowering {
        hir,
        sink,
        b,
        env: HashMap::new(),
        path: Vec::new(),
        control_paths: HashMap::new(),
        claims: super::claims::Claims::default(),
        scopes: Vec::new(),
        loops: Vec::new(),
        maps_by_path: HashMap::new(),
        plans: HashMap::new(),
        tables: Vec::new(),
        code_entries: Vec::new(),
        arrays: Vec::new(),
        value_sets: Vec::new(),
        value_sets_by_path: HashMap::new(),
        externs: BTreeSet::new(),
        c: crate::ctypes::Declarations::default(),
        argument_map: None,
        calls: super::placed::Calls::new(settings.calls),
        packet,
        reject: rejected,
        refuse: refused,
        limits,
        emitted: Vec::new(),
        truncates: false,
        info_read: None,
        checks_status: false,
        inlined: 0,
        rounds: settings.rounds,
        cut_parser: false,
        cut_loops: std::collections::HashSet::new(),
        too_large: false,
        architecture: Architecture::default(),
        standard: None,
        requests: super::requests::Requests::default(),
        request_spans: Vec::new(),
        needs: Vec::new(),
        block: None,
        direct: HashMap::new(),
        digests: super::digest::Digests::default(),
        tracer: None,
    };
    if settings.trace {
        l.start_trace();
    }
    l.program(end, settings.reject);
    l.warn_unknown();
    let points = l.trace_points();
    let messages = l.messages();
    let Lowering { b, tables, code_entries, arrays, value_sets, externs, c, .. } = l;
    let Lowering { argument_map, calls, architecture, needs, block, cut_parser, .. } = l;
    let (function, c_header) = (b.into_function(), c.header());
    Lowered {
        function,
        tables,
        code_entries,
        argument_map,
        calls: calls.map,
        placed: calls.functions,
        arrays,
        value_sets,
        messages,
        externs,
        c_header,
        architecture,
        needs,
        block,
        cut_parser,
        points,
    }
}

/// The `egress_spec` of packets to drop.
const DROP_PORT: u64 = 511;

/// A parser of the pipeline.
struct ParserStage {
    instance: Rc<Instance>,
    parser: Rc<Parser>,
}

/// A control of the pipeline.
struct ControlStage {
    instance: Rc<Instance>,
    control: Rc<Control>,
}

impl Lowering<'_> {
    fn program(&mut self, end: Span, reject: Reject) {
        let Some(main) = self.hir.main else {
            let hint = "end the program with `ubpf(parser(), control(), deparser()) main;`";
            return self.error(Code::BadMain, end, "the program has no `main`", hint);
        };
        let main = self.hir.instances[main.0 as usize].clone();
        let name = if let Type::Object(o) = &main.ty { o.name.clone() } else { "".into() };
        self.architecture = match &*name {
            "ubpf" => Architecture::Ubpf,
            "ebpfFilter" => Architecture::Ebpf,
            "V1Switch" => Architecture::V1model,
            _ => {
                let what = format!("the architecture of package `{name}` is not supported yet");
                let hint =
                    "include <ubpf_model.p4>, <ebpf_model.p4> or <v1model.p4> and instantiate its package";
                return self.error(Code::Unsupported, main.span, what, hint);
            }
        };
        let parser = main.args.first().and_then(|a| self.parser_stage(a));
        let controls: Vec<ControlStage> =
            main.args.iter().skip(1).filter_map(|a| self.control_stage(a)).collect();
        let Some(parser) = parser else { return self.bad_main(main.span) };
        match (self.architecture, controls.as_slice()) {
            (Architecture::Ubpf, [pipe, deparser]) => self.ubpf(&parser, pipe, deparser),
            (Architecture::Ebpf, [filter]) => self.ebpf(&parser, filter),
            (Architecture::V1model, [verify, ingress, egress, update, deparser]) => {
                self.v1model(&parser, [verify, ingress, egress, update], deparser);
            }
            _ => return self.bad_main(main.span),
        }
        self.leave_rejected(reject, main.span);
    }

    /// Reports a `main` that matches the declaration of its package, but not the architecture
    /// of that name.
    fn bad_main(&mut self, span: Span) {
        let what = "the package of this name lacks a parser or a control of the architecture";
        self.unsupported(span, what);
    }

    fn stage(&self, a: &CtorArg) -> Option<Rc<Instance>> {
        match a {
            CtorArg::Object(Object::Instance(id)) => Some(self.hir.instances[id.0 as usize].clone()),
            _ => None,
        }
    }

    fn parser_stage(&self, a: &CtorArg) -> Option<ParserStage> {
        let instance = self.stage(a)?;
        let Constructed::Parser(p) = instance.what else { return None };
        Some(ParserStage { parser: self.hir.parsers[p.0 as usize].clone(), instance })
    }

    fn control_stage(&self, a: &CtorArg) -> Option<ControlStage> {
        let instance = self.stage(a)?;
        let Constructed::Control(c) = instance.what else { return None };
        Some(ControlStage { control: self.hir.controls[c.0 as usize].clone(), instance })
    }

    fn open_packet(&mut self, span: Span) {
        self.b.span = span;
        let (data, end) = self.packet_bounds();
        self.b.write(self.packet.data, data);
        self.b.write(self.packet.end, end);
        self.b.write(self.packet.cursor, data);
        self.b.write(self.packet.parsed, Opnd::C(0));
        self.b.write(self.packet.verdict, Opnd::C(1));
        self.b.write(self.packet.truncate_to, Opnd::C(u64::from(u32::MAX)));
        self.b.write(self.packet.error, Opnd::C(0));
    }

    /// Runs the parser of the pipeline on variables that all stages share; continues where it accepts.
    fn run_parser(&mut self, stage: &ParserStage, shared: &[Rc<Storage>]) {
        let parser = &stage.parser;
        if let Some(p) = parser.params.first() {
            self.env.insert(p.var, Binding::Object(BoundObject::PacketIn));
        }
        self.share(&parser.params[1..], shared);
        self.bind_ctor(&parser.ctor_params, &stage.instance.args);
        self.enter(&stage.instance);
        self.parse_states(parser);
        self.path.pop();
    }

    fn run_control(&mut self, stage: &ControlStage, shared: &[Rc<Storage>]) {
        self.share(&stage.control.params, shared);
        self.control(&stage.control, &stage.instance, Vec::new());
    }

    fn run_deparser(&mut self, stage: &ControlStage, shared: &[Rc<Storage>]) {
        if let Some(p) = stage.control.params.first() {
            self.env.insert(p.var, Binding::Object(BoundObject::PacketOut));
        }
        self.share(&stage.control.params[1..], shared);
        self.control(&stage.control, &stage.instance, Vec::new());
    }

    /// Binds parameters to shared variables: copies between the stages of the pipeline would
    /// have no effect.
    fn share(&mut self, params: &[Param], shared: &[Rc<Storage>]) {
        for (p, s) in params.iter().zip(shared) {
            self.env.insert(p.var, Binding::Storage(s.clone()));
        }
    }

    /// Records the standard metadata fields in the storage of a parameter.
    fn standard_metadata(&mut self, ty: &Type, storage: &Rc<Storage>) {
        if let (Type::Composite(c), Storage::Group(fields)) = (ty.base(), &**storage) {
            let names = c.fields.iter().map(|(n, _)| n.clone()).collect();
            self.standard = Some(StandardMetadata { names, fields: fields.clone() });
        }
    }

    /// Returns the slot and width of a field of standard metadata.
    pub(super) fn standard_field(&self, name: &str) -> Option<(crate::ir::builder::Slot, u32)> {
        let s = self.standard.as_ref()?;
        let at = s.names.iter().position(|n| &**n == name)?;
        match &*s.fields[at] {
            Storage::Scalar(slots, width) => slots.first().map(|s| (*s, *width)),
            _ => None,
        }
    }

    /// Sets a field of standard metadata, truncated to its width.
    pub(super) fn set_standard(&mut self, name: &str, value: Opnd) {
        if let Some((slot, width)) = self.standard_field(name) {
            let value = self.b.truncate(value, width.min(64) as u8);
            self.b.write(slot, value);
        }
    }

    /// Returns the value of a field of standard metadata; 0 if it does not exist.
    pub(super) fn get_standard(&mut self, name: &str) -> Opnd {
        self.standard_field(name).map_or(Opnd::C(0), |(slot, _)| self.b.read(slot))
    }

    /// Returns the number of an error of the core library.
    pub(super) fn error_number(&self, name: &str) -> Opnd {
        Opnd::C(self.hir.errors.iter().position(|e| &**e == name).unwrap_or(0) as u64)
    }

    /// Continues if `ok`, otherwise rejects with an error.
    pub(super) fn continue_or(&mut self, ok: Opnd, error: Opnd) {
        if ok == Opnd::C(1) {
            return;
        }
        let (next, failed) = (self.b.new_block("checked"), self.b.new_block("parser error"));
        self.b.branch(ok, next, failed);
        self.b.switch_to(failed);
        self.b.write(self.packet.error, error);
        let reject = self.reject;
        self.b.jump(reject);
        self.b.switch_to(next);
    }

    /// Rejects with an error of the core library.
    pub(super) fn fail(&mut self, error: &str) {
        let error = self.error_number(error);
        self.b.write(self.packet.error, error);
        let reject = self.reject;
        self.b.jump(reject);
    }

    /// Writes all changes and returns `pass`; the packet was not written before.
    fn write_packet(&mut self, parser: &Parser, deparser: &Control) {
        let fixed = match (layout::headers_param(&parser.params), layout::headers_param(&deparser.params)) {
            (Some(p), Some(d)) => layout::is_fixed(self.hir, parser, p, deparser, d),
            _ => false,
        };
        // A packet that cannot be written is dropped, even if rejected packets pass.
        let unwritable = self.at_limit(ProgramLimit::Size);
        let rejected = std::mem::replace(&mut self.reject, unwritable);
        if fixed {
            self.write_in_place();
        } else {
            self.write_anywhere();
        }
        if self.truncates {
            self.truncate_packet();
        }
        self.reject = rejected;
        self.b.ret(Opnd::C(1));
    }

    /// Drops the packet unless the verdict so far is `pass`; a dropped packet is not written.
    fn drop_unless(&mut self, pass: Opnd) {
        let go_on = self.b.new_block("pass");
        let refuse = self.refuse;
        self.b.branch(pass, go_on, refuse);
        self.b.switch_to(go_on);
    }

    /// Returns the target for packets that are dropped because they meet a limit.
    pub(super) const fn at_limit(&self, limit: ProgramLimit) -> Block {
        self.limits[limit.index()]
    }

    fn leave_rejected(&mut self, reject: Reject, span: Span) {
        let ends = [(self.reject, u64::from(reject == Reject::Pass)), (self.refuse, 0)];
        let limits = ProgramLimit::ALL.map(|limit| (self.at_limit(limit), limit as u64));
        for (block, verdict) in ends.into_iter().chain(limits) {
            self.b.switch_to(block);
            self.b.f.block_mut(block).span = span;
            self.b.span = span;
            if block == self.reject {
                self.trace_parsed(span);
            }
            self.b.ret(Opnd::C(verdict));
        }
    }

    /// Warns about a program that reads information without a check whether it is known.
    fn warn_unknown(&mut self) {
        if let Some(span) = self.info_read.filter(|_| !self.checks_status) {
            let message = "the program reads in-VM information without a check whether it is known";
            let hint =
                "test vm_info_status() != 0; otherwise, packets are dropped when the information is unknown";
            self.error(Code::UnknownInformation, span, message, hint);
        }
    }
}
