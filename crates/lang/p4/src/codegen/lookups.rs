//! Selection of calls: keys on the stack, arguments, results.

use super::machine::{Arg, Base, CallTarget, MInst, Reg, Src};
use super::select::InstSelector;
use crate::ir::{KeyPart, Op, Opnd};
use p4shield_abi::helper;

impl InstSelector<'_> {
    /// Selects a call; the result goes to `dst`.
    pub(super) fn call(&mut self, op: &Op, dst: Option<Reg>) {
        match op {
            Op::Lookup { map, key } => {
                let size = self.f.maps[map.0 as usize].definition.key_size;
                let start = self.on_stack(size, key);
                let args = vec![Arg::Map(*map), Arg::Frame(start)];
                self.push(MInst::Call { target: CallTarget::Helper(helper::MAP_LOOKUP_ELEM), args, dst });
            }
            Op::Helper { id, context, args } => {
                let first = context.then_some(Arg::Reg(self.context));
                let args = first.into_iter().chain(args.iter().map(|o| self.arg(*o))).collect();
                self.push(MInst::Call { target: CallTarget::Helper(*id), args, dst });
            }
            Op::Buffer { id, size, data, args } => {
                let start = self.on_stack(*size, data);
                let first = [Arg::Frame(start), Arg::Imm(u64::from(*size))];
                let args = first.into_iter().chain(args.iter().map(|o| self.arg(*o))).collect();
                self.push(MInst::Call { target: CallTarget::Helper(*id), args, dst });
            }
            Op::Extern { name, args } => {
                let args = args.iter().map(|o| self.arg(*o)).collect();
                self.push(MInst::Call { target: CallTarget::Extern(name.clone()), args, dst });
            }
            _ => {}
        }
    }

    /// Stores bytes in a stack buffer; returns its offset from the end of the frame. All calls
    /// share the buffer, because each reads it before the next one writes it.
    fn on_stack(&mut self, size: u32, parts: &[KeyPart]) -> i32 {
        let size = size.next_multiple_of(8);
        self.key_bytes = self.key_bytes.max(size);
        let start = -size.cast_signed();
        for (at, bytes, value) in parts {
            let src = self.key_source(*value, *bytes);
            let offset = start + at.cast_signed();
            self.push(MInst::Store { bytes: *bytes, base: Base::Frame, offset, src });
        }
        start
    }

    fn key_source(&mut self, o: Opnd, bytes: u8) -> Src {
        match o {
            Opnd::C(c) if bytes < 8 => Src::Imm((c as u32).cast_signed()),
            Opnd::C(c) if i32::try_from(c.cast_signed()).is_ok() => Src::Imm(c.cast_signed() as i32),
            _ => Src::Reg(self.reg(o)),
        }
    }

    fn arg(&mut self, o: Opnd) -> Arg {
        match o {
            Opnd::C(c) => Arg::Imm(c),
            Opnd::V(_) => Arg::Reg(self.reg(o)),
        }
    }
}
