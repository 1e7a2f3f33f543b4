//! The architecture: how parser, control and deparser make one program.

use super::storage::Storage;
use super::{Binding, BoundObject, Lower, Lowered, PacketState, layout};
use crate::diagnostics::{Code, Diagnostic, Sink};
use crate::hir::{Constructed, CtorArg, Instance, Object, Param, Program};
use crate::ir::builder::Builder;
use crate::ir::{Cc, Op, Opnd, Ty};
use crate::source::Span;
use crate::types::Type;
use p4shield_abi::context::offset;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// The fields of `standard_metadata`, by their index.
const INPUT_PORT: usize = 0;
const PACKET_LENGTH: usize = 1;
const OUTPUT_ACTION: usize = 2;
const OUTPUT_PORT: usize = 3;

/// Lowers the program's `main`. The result is complete only if nothing was reported as an error.
pub(crate) fn lower(hir: &Program, end: Span, sink: &mut Sink) -> Lowered {
    let mut b = Builder::new();
    let reject = b.new_block("reject");
    let packet = PacketState {
        data: b.slot(Ty::Packet),
        end: b.slot(Ty::Packet),
        cursor: b.slot(Ty::Packet),
        parsed: b.slot(Ty::Int(32)),
        verdict: b.slot(Ty::Int(1)),
        truncate_to: b.slot(Ty::Int(32)),
    };
    let mut l = Lower {
        hir,
        sink,
        b,
        env: HashMap::new(),
        path: Vec::new(),
        scopes: Vec::new(),
        maps_by_path: HashMap::new(),
        plans: HashMap::new(),
        tables: Vec::new(),
        externs: BTreeSet::new(),
        packet,
        reject,
        emitted: Vec::new(),
        truncates: false,
        info_read: None,
        asks_status: false,
        inlined: 0,
        too_large: false,
    };
    l.program(end);
    l.warn_unknown();
    let Lower { b, tables, externs, .. } = l;
    Lowered { function: b.into_function(), tables, externs }
}

impl Lower<'_> {
    fn program(&mut self, end: Span) {
        let Some(main) = self.hir.main else {
            let hint = "end the program with `ubpf(parser(), control(), deparser()) main;`";
            return self.error(Code::BadMain, end, "the program has no `main`", hint);
        };
        let main = self.hir.instances[main.0 as usize].clone();
        let name = if let Type::Object(o) = &main.ty { o.name.clone() } else { "".into() };
        if &*name != "ubpf" {
            let what = format!("the architecture of package `{name}`");
            let d = Diagnostic::new(Code::Unsupported, main.span, format!("{what}: not supported yet"));
            return self.sink.add(d.hint("include <ubpf_model.p4> and instantiate `ubpf`"));
        }
        let parts: Option<Vec<Rc<Instance>>> = main.args.iter().map(|a| self.stage(a)).collect();
        match parts.as_deref() {
            Some([parser, pipe, deparser]) => self.ubpf(parser, pipe, deparser),
            _ => self.error(
                Code::BadMain,
                main.span,
                "`ubpf` needs a parser and two controls",
                "instantiate all three",
            ),
        }
    }

    fn stage(&self, a: &CtorArg) -> Option<Rc<Instance>> {
        match a {
            CtorArg::Object(Object::Instance(id)) => Some(self.hir.instances[id.0 as usize].clone()),
            _ => None,
        }
    }

    fn ubpf(&mut self, parser_i: &Instance, pipe_i: &Instance, deparser_i: &Instance) {
        let (Constructed::Parser(p), Constructed::Control(c), Constructed::Control(d)) =
            (parser_i.what, pipe_i.what, deparser_i.what)
        else {
            return self.error(
                Code::BadMain,
                parser_i.span,
                "`ubpf` needs a parser and two controls",
                "check main",
            );
        };
        let parser = self.hir.parsers[p.0 as usize].clone();
        let (pipe, deparser) =
            (self.hir.controls[c.0 as usize].clone(), self.hir.controls[d.0 as usize].clone());
        self.open_packet(parser.span);
        let shared: Vec<Rc<Storage>> = parser.params.iter().skip(1).map(|p| self.storage(&p.ty)).collect();
        shared.iter().for_each(|s| self.reset(s));
        if let Some(Storage::Group(std)) = shared.get(2).map(|s| &**s) {
            self.fill_standard_metadata(std);
        }
        if let Some(p) = parser.params.first() {
            self.env.insert(p.var, Binding::Object(BoundObject::PacketIn));
        }
        self.share(&parser.params[1..], &shared);
        self.bind_ctor(&parser.ctor_params, &parser_i.args);
        self.path.push(parser_i.name.clone());
        self.parse_states(&parser);
        self.path.pop();

        self.share(&pipe.params, &shared);
        self.control(&pipe, pipe_i, Vec::new());

        if let Some(p) = deparser.params.first() {
            self.env.insert(p.var, Binding::Object(BoundObject::PacketOut));
        }
        self.share(&deparser.params[1..], &shared);
        self.control(&deparser, deparser_i, Vec::new());
        self.leave(&parser, &deparser, shared.get(2));
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
    }

    /// The blocks of the pipeline work on the same variables: copies in and out at their borders would change nothing.
    fn share(&mut self, params: &[Param], shared: &[Rc<Storage>]) {
        for (p, s) in params.iter().zip(shared) {
            self.env.insert(p.var, Binding::Storage(s.clone()));
        }
    }

    fn fill_standard_metadata(&mut self, fields: &[Rc<Storage>]) {
        for (i, at) in [(INPUT_PORT, offset::INPUT_PORT), (PACKET_LENGTH, offset::PACKET_LENGTH)] {
            if let Some(Storage::Scalar(slots, _)) = fields.get(i).map(|s| &**s) {
                let v = self.context(at, 4);
                self.b.write(slots[0], v);
            }
        }
    }

    /// Writes what changed, and returns the verdict.
    fn leave(
        &mut self,
        parser: &crate::hir::Parser,
        deparser: &crate::hir::Control,
        std: Option<&Rc<Storage>>,
    ) {
        let fixed = match (layout::headers_param(&parser.params), layout::headers_param(&deparser.params)) {
            (Some(p), Some(d)) => layout::is_fixed(self.hir, parser, p, deparser, d),
            _ => false,
        };
        let verdict = self.b.read(self.packet.verdict);
        // What is dropped need not be written.
        let (pass, drop) = (self.b.new_block("pass"), self.b.new_block("drop"));
        self.b.branch(verdict, pass, drop);
        self.b.switch_to(pass);
        if let Some(Storage::Group(fields)) = std.map(|s| &**s) {
            self.set_output(fields);
        }
        let grown = if fixed {
            self.write_in_place();
            Opnd::C(0)
        } else {
            self.write_anywhere()
        };
        if self.truncates {
            self.truncate_packet(grown);
        }
        self.b.ret(Opnd::C(1));
        self.b.switch_to(drop);
        self.b.ret(Opnd::C(0));
        let reject = self.reject;
        self.b.switch_to(reject);
        self.b.ret(Opnd::C(0));
    }

    /// Hands the output action and port on, where the program set them.
    fn set_output(&mut self, fields: &[Rc<Storage>]) {
        for (i, at) in [(OUTPUT_ACTION, offset::OUTPUT_ACTION), (OUTPUT_PORT, offset::OUTPUT_PORT)] {
            let Some(Storage::Scalar(slots, _)) = fields.get(i).map(|s| &**s) else { continue };
            let v = self.b.read(slots[0]);
            if v == Opnd::C(0) {
                continue;
            }
            let (set, next) = (self.b.new_block("set output"), self.b.new_block("output"));
            let chosen = self.b.cmp(Cc::Ne, v, Opnd::C(0), 32);
            self.b.branch(chosen, set, next);
            self.b.switch_to(set);
            self.b.emit(Op::SetContext(at, 4, v), Ty::None);
            self.b.jump(next);
            self.b.switch_to(next);
        }
    }

    /// A program that reads information and never asks whether it is known has probably not thought of that.
    fn warn_unknown(&mut self) {
        if let Some(span) = self.info_read.filter(|_| !self.asks_status) {
            let message = "the program never asks whether in-VM information is known";
            let hint =
                "test vm_info_status() != 0; until then, packets that read unknown information are dropped";
            self.sink.add(Diagnostic::new(Code::UnknownInformation, span, message).hint(hint));
        }
    }
}
