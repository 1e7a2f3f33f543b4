//! `v1model`: parser, checksum verification, ingress, egress, checksum update, deparser.
//!
//! This module also contains the behaviour of the reference switch between the stages: it passes a parser
//! error to ingress, copies the port that ingress chose to egress, and drops packets to the drop port.

use super::{ControlStage, Lowering, ParserStage};
use crate::hir::{Expr, ExprKind};
use crate::ir::{BinOp, Cc, Op, Opnd, Ty};
use crate::lower::storage::Value;
use crate::source::Span;
use crate::types::Type;
use p4shield_abi::context::offset;

/// The `egress_spec` of packets to drop.
const DROP_PORT: u64 = 511;

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
        self.watch_group();
        self.parse_and_continue(parser, &shared);
        self.run_control(verify, &shared);
        self.run_control(ingress, &shared);
        let port = self.after_ingress(ingress.instance.span);
        self.run_control(egress, &shared);
        self.after_egress();
        self.run_control(update, &shared);
        self.run_deparser(deparser, &shared);
        self.b.emit(Op::SetContext(offset::OUTPUT_PORT, 4, port), Ty::None);
        self.write_packet(&parser.parser, &deparser.control);
    }

    fn fill_standard_metadata(&mut self) {
        for (field, at) in [("ingress_port", offset::INPUT_PORT), ("packet_length", offset::PACKET_LENGTH)] {
            let v = self.context(at, 4);
            self.set_standard(field, v);
        }
        let now = self.timestamp();
        self.set_standard("ingress_global_timestamp", now);
    }

    /// Returns the time in microseconds.
    fn timestamp(&mut self) -> Opnd {
        let ns = self.context(offset::TIMESTAMP_NS, 8);
        self.b.bin(BinOp::Div, ns, Opnd::C(1_000), 64)
    }

    /// Runs the parser; the pipeline continues even after a parser error.
    fn parse_and_continue(&mut self, parser: &ParserStage, shared: &[std::rc::Rc<super::Storage>]) {
        let failed = self.b.new_block("parsing ended");
        let rejected = std::mem::replace(&mut self.reject, failed);
        self.run_parser(parser, shared);
        self.b.jump(failed);
        self.reject = rejected;
        self.b.switch_to(failed);
        let error = self.b.read(self.packet.error);
        self.set_standard("parser_error", error);
    }

    /// Drops the packets that ingress marked and passes the port to egress. Returns the port.
    fn after_ingress(&mut self, ingress: Span) -> Opnd {
        let group = self.get_standard("mcast_grp");
        let port = if group == Opnd::C(0) { self.unicast() } else { self.multicast(group, ingress) };
        self.set_standard("egress_port", port);
        self.set_standard("egress_spec", Opnd::C(0));
        let now = self.timestamp();
        self.set_standard("egress_global_timestamp", now);
        port
    }

    /// Returns the port that ingress chose.
    pub(super) fn unicast(&mut self) -> Opnd {
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
