//! `v1model`: parser, checksum verification, ingress, egress, checksum update, deparser.
//!
//! This module also contains the behaviour of the reference switch between the stages: it passes a parser
//! error to ingress, copies the port that ingress chose to egress, and drops packets to the drop port.

use super::division::Division;
use super::{ControlStage, DROP_PORT, Lowering, ParserStage};
use crate::hir::{Expr, ExprKind, Param};
use crate::ir::{BinOp, Cc, Op, Opnd, Ty};
use crate::lower::requests::Stage;
use crate::lower::storage::{Storage, Value};
use crate::types::Type;
use p4shield_abi::context::offset;
use p4shield_abi::division::PRIORITY_SHIFT;
use std::rc::Rc;

/// The stages behind ingress, and the variables of all stages.
struct SecondPart<'a> {
    parser: &'a ParserStage,
    egress: &'a ControlStage,
    update: &'a ControlStage,
    deparser: &'a ControlStage,
    shared: &'a [Rc<Storage>],
}

/// Returns types and variables of user and standard metadata.
fn metadata_of<'a>(params: &'a [Param], shared: &'a [Rc<Storage>]) -> Vec<(&'a Type, &'a Storage)> {
    params.iter().skip(1).zip(shared).skip(1).map(|(p, s)| (&p.ty, &**s)).collect()
}

impl Lowering<'_> {
    pub(super) fn v1model(
        &mut self,
        parser: &ParserStage,
        [verify, ingress, egress, update]: [&ControlStage; 4],
        deparser: &ControlStage,
    ) {
        self.open_packet(parser.parser.span);
        let params = &parser.parser.params;
        let shared: Vec<_> = params.iter().skip(1).map(|p| self.storage(&p.ty)).collect();
        shared.iter().for_each(|s| self.reset(s));
        if let (Some(p), Some(s)) = (params.get(3), shared.get(2)) {
            self.standard_metadata(&p.ty, s);
        }
        self.fill_standard_metadata();
        self.open_requests(&metadata_of(params, &shared));
        let division = self.open_division(&shared);
        self.trace_run(parser.parser.span);
        self.start_again(&division);
        self.watch_group();
        self.parse_and_continue(parser, &shared);
        let cloned = self.branch_off_clones();
        self.run_control(verify, &shared);
        self.requests.stage = Stage::Ingress;
        self.run_control(ingress, &shared);
        self.divide(&division);
        let port = self.unicast();
        let second = SecondPart { parser, egress, update, deparser, shared: &shared };
        self.egress(&second, &division, port);
        if self.is_divided() || self.requests.clone[1].is_some() {
            let port = self.resume(&division, cloned);
            self.egress(&second, &division, port);
        } else {
            self.close_division(&division);
        }
        self.record_needs();
    }

    /// Lowers everything behind ingress, for a packet to this port.
    fn egress(&mut self, s: &SecondPart<'_>, division: &Division, port: Opnd) {
        self.set_standard("egress_port", port);
        self.set_standard("egress_spec", Opnd::C(0));
        let length = self.context(offset::PACKET_LENGTH, 4);
        self.set_standard("packet_length", length);
        let now = self.timestamp();
        self.set_standard("egress_global_timestamp", now);
        self.requests.stage = Stage::Egress;
        self.run_control(s.egress, s.shared);
        let asked = self.clone_at_end(division);
        self.after_egress();
        self.run_control(s.update, s.shared);
        self.run_deparser(s.deparser, s.shared);
        self.recirculate_at_end(division, asked);
        self.report_destination(port);
        self.write_packet(&s.parser.parser, &s.deparser.control);
    }

    /// Reports the port of the packet, and above it its priority ([`p4shield_abi::division::destination`]).
    pub(super) fn report_destination(&mut self, port: Opnd) {
        let mut to = port;
        if self.requests.has_priorities {
            let priority = self.get_standard("priority");
            let above = self.b.bin(BinOp::Shl, priority, Opnd::C(PRIORITY_SHIFT.into()), 32);
            to = self.b.bin(BinOp::Or, port, above, 32);
        }
        self.b.emit(Op::SetContext(offset::OUTPUT_PORT, 4, to), Ty::None);
    }

    /// Sets what the engine knows of the packet.
    pub(super) fn fill_arrival(&mut self) {
        for (field, at) in [("ingress_port", offset::INPUT_PORT), ("packet_length", offset::PACKET_LENGTH)] {
            let v = self.context(at, 4);
            self.set_standard(field, v);
        }
    }

    pub(super) fn fill_standard_metadata(&mut self) {
        self.fill_arrival();
        let now = self.timestamp();
        self.set_standard("ingress_global_timestamp", now);
    }

    /// Returns the time in microseconds.
    fn timestamp(&mut self) -> Opnd {
        let ns = self.context(offset::TIMESTAMP_NS, 8);
        self.b.bin(BinOp::Div, ns, Opnd::C(1_000), 64)
    }

    /// Runs the parser; the pipeline continues even after a parser error.
    fn parse_and_continue(&mut self, parser: &ParserStage, shared: &[Rc<Storage>]) {
        let failed = self.b.new_block("parsing ended");
        let rejected = std::mem::replace(&mut self.reject, failed);
        self.run_parser(parser, shared);
        self.b.jump(failed);
        self.reject = rejected;
        self.b.switch_to(failed);
        let error = self.b.read(self.packet.error);
        self.set_standard("parser_error", error);
        self.trace_parsed(parser.parser.span);
    }

    /// Drops the packets that ingress marked. Returns the port that it chose.
    fn unicast(&mut self) -> Opnd {
        let port = self.get_standard("egress_spec");
        let goes = self.b.cmp(Cc::Ne, port, Opnd::C(DROP_PORT), 32);
        self.drop_unless(goes);
        port
    }

    fn after_egress(&mut self) {
        let port = self.get_standard("egress_spec");
        let goes = self.b.cmp(Cc::Ne, port, Opnd::C(DROP_PORT), 32);
        self.drop_unless(goes);
    }

    /// Lowers `mark_to_drop(metadata)`. v1model's documentation: it "modifies standard_metadata.egress_spec
    /// to an implementation-specific special value" and "also assigns 0 to standard_metadata.mcast_grp".
    /// So it changes its argument, which may be a copy that the pipeline never sees.
    pub(in crate::lower) fn mark_for_dropping(&mut self, metadata: &Expr) {
        let Type::Composite(c) = metadata.ty.base() else { return };
        for (field, value) in [("egress_spec", DROP_PORT), ("mcast_grp", 0)] {
            let Some((i, ty)) = c.field(field) else { continue };
            let kind = ExprKind::Field(Box::new(metadata.clone()), i);
            let target = Expr { kind, ty: ty.clone(), span: metadata.span };
            if let (Some(lvalue), Some(width)) = (self.lvalue(&target), ty.scalar_width()) {
                self.assign(&lvalue, &Value::Scalar(vec![Opnd::C(value)], width));
            }
        }
    }

    /// Lowers `mark_to_drop()`.
    pub(in crate::lower) fn mark_to_drop(&mut self) {
        if self.architecture == p4shield_tables::model::Architecture::V1model {
            self.set_standard("egress_spec", Opnd::C(DROP_PORT));
            self.set_standard("mcast_grp", Opnd::C(0));
        } else {
            self.b.write(self.packet.verdict, Opnd::C(0));
        }
    }
}
