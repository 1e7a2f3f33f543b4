//! `ebpf_model`: parser and filter. Packets pass unchanged or are dropped.

use super::{ControlStage, Lowering, ParserStage};
use crate::ir::{Opnd, Ty};

impl Lowering<'_> {
    pub(super) fn ebpf(&mut self, parser: &ParserStage, filter: &ControlStage) {
        self.open_packet(parser.parser.span);
        let headers: Vec<_> = parser.parser.params.iter().skip(1).map(|p| self.storage(&p.ty)).collect();
        headers.iter().for_each(|s| self.reset(s));
        self.run_parser(parser, &headers);
        let accept = self.b.slot(Ty::Int(1));
        self.b.write(accept, Opnd::C(0));
        let accepted = std::rc::Rc::new(super::Storage::Scalar(vec![accept], 1));
        let shared: Vec<_> = headers.into_iter().chain([accepted]).collect();
        self.run_control(filter, &shared);
        let verdict = self.b.read(accept);
        self.drop_unless(verdict);
        self.b.ret(Opnd::C(1));
    }
}
