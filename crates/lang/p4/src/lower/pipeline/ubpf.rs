//! `ubpf_model`: parser, pipeline, deparser.

use super::{ControlStage, Lowering, ParserStage};
use crate::ir::{Cc, Op, Opnd, Ty};
use p4shield_abi::context::offset;

impl Lowering<'_> {
    pub(super) fn ubpf(&mut self, parser: &ParserStage, pipe: &ControlStage, deparser: &ControlStage) {
        self.open_packet(parser.parser.span);
        let params = &parser.parser.params;
        let shared: Vec<_> = params.iter().skip(1).map(|p| self.storage(&p.ty)).collect();
        shared.iter().for_each(|s| self.reset(s));
        if let (Some(p), Some(s)) = (params.get(3), shared.get(2)) {
            self.standard_metadata(&p.ty, s);
        }
        for (field, at) in [("input_port", offset::INPUT_PORT), ("packet_length", offset::PACKET_LENGTH)] {
            let v = self.context(at, 4);
            self.set_standard(field, v);
        }
        self.run_parser(parser, &shared);
        self.run_control(pipe, &shared);
        self.run_deparser(deparser, &shared);
        let verdict = self.b.read(self.packet.verdict);
        self.drop_unless(verdict);
        self.set_output();
        self.write_packet(&parser.parser, &deparser.control);
    }

    /// Copies the output action and port to the context, if the program set them.
    fn set_output(&mut self) {
        for (field, at) in [("output_action", offset::OUTPUT_ACTION), ("output_port", offset::OUTPUT_PORT)] {
            let v = self.get_standard(field);
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
}
