//! Parsers, extraction and emission.

use super::value::{Val, fit};
use super::{Eval, Machine, Stop};
use crate::hir::{Call, CallArg, Constructed, InstId, Instance, Next, Target};
use crate::types::Type;
use num_bigint::BigInt;

/// States after which the evaluator gives up: the compiler ends loops without a known bound.
const MAX_STATES: usize = 300;

impl Machine<'_> {
    pub(super) fn parser(&mut self, inst: &Instance, id: InstId) -> Eval<()> {
        let Constructed::Parser(p) = inst.what else { return self.skip("another object") };
        let parser = self.hir.parsers[p.0 as usize].clone();
        self.construct(&parser.ctor_params, inst, id)?;
        self.stmts(&parser.locals)?;
        let mut at = 0;
        for _ in 0..MAX_STATES {
            let Some(state) = parser.states.get(at) else { return Ok(()) };
            self.stmts(&state.body)?;
            let next = match &state.next {
                Next::To(t) => *t,
                Next::Select { subjects, cases, .. } => {
                    let mut values = Vec::new();
                    for s in subjects {
                        values.extend(self.eval(s)?.numbers());
                    }
                    let mut found = None;
                    for (keys, t) in cases {
                        if self.matches(&values, keys)? {
                            found = Some(*t);
                            break;
                        }
                    }
                    let Some(t) = found else { return Err(self.rejected("NoMatch")) };
                    t
                }
            };
            match next {
                Target::Accept => return Ok(()),
                // A state that rejects sets no error.
                Target::Reject => return Err(Stop::Reject(self.error)),
                Target::State(s) => at = s.0 as usize,
            }
        }
        self.skip("a long loop of states")
    }

    pub(super) fn rejected(&self, error: &str) -> Stop {
        Stop::Reject(self.hir.errors.iter().position(|e| &**e == error).unwrap_or(0))
    }

    fn require(&self, bytes: usize) -> Eval<()> {
        if self.cursor.saturating_add(bytes) <= self.packet.len() {
            Ok(())
        } else {
            Err(self.rejected("PacketTooShort"))
        }
    }

    pub(super) fn packet_in(&mut self, name: &str, c: &Call, ty: Option<&Type>) -> Eval<Val> {
        match (name, &*c.args) {
            ("extract", [target, size @ ..]) => {
                let size = match size {
                    [CallArg::In(e)] => Some(self.eval(e)?.number()),
                    _ => None,
                };
                let place = if let CallArg::Out(e) = target { Some(self.place(e)?) } else { None };
                let ty = match target {
                    CallArg::Out(e) => e.ty.clone(),
                    _ => c.type_args.first().cloned().unwrap_or(Type::Bad),
                };
                let header = self.extract(&ty, size)?;
                if let (Some(place), CallArg::Out(e)) = (place, target) {
                    self.assign(&place, header, &e.ty);
                    self.advance_stack(e);
                }
                Ok(Val::Nothing)
            }
            ("advance", [CallArg::In(e)]) => {
                let bits = self.eval(e)?.index();
                if bits % 8 != 0 || bits > 8 * 0xffff {
                    return Err(self.rejected("ParserInvalidArgument"));
                }
                self.require(bits / 8)?;
                self.cursor += bits / 8;
                Ok(Val::Nothing)
            }
            ("length", []) => Ok(Val::Num(self.packet.len().into())),
            ("lookahead", []) => {
                let Some(ty) = c.type_args.first().or(ty).cloned() else { return self.skip("lookahead") };
                let Some((bits, _)) = ty.sizes() else { return self.skip("lookahead") };
                self.require(bits.div_ceil(8) as usize)?;
                let mut at = self.cursor * 8;
                Ok(self.peek(&ty, &mut at, &[]))
            }
            _ => self.skip(name),
        }
    }

    fn extract(&mut self, ty: &Type, size: Option<BigInt>) -> Eval<Val> {
        let Type::Composite(c) = ty.base() else { return self.skip("extraction of another type") };
        let fixed: u32 = c.fields.iter().map(|(_, t)| t.packed_width().unwrap_or(0)).sum();
        let fixed = fixed as usize / 8;
        self.require(fixed)?;
        let mut variable = Vec::new();
        if let Some(bits) = size {
            let max = c
                .fields
                .iter()
                .find_map(|(_, t)| if let Type::Varbit(w) = t.base() { Some(*w) } else { None });
            let is_short = bits <= BigInt::from(max.unwrap_or(0));
            let bits = usize::try_from(bits).unwrap_or(usize::MAX);
            if bits % 8 != 0 {
                return Err(self.rejected("ParserInvalidArgument"));
            }
            self.require(fixed + bits / 8)?;
            if !is_short {
                return Err(self.rejected("HeaderTooShort"));
            }
            // The compiler accepts a varbit field only as the last one.
            variable = self.packet[self.cursor + fixed..][..bits / 8].to_vec();
        }
        let mut at = self.cursor * 8;
        let fields = c.fields.iter().map(|(_, t)| self.peek(t, &mut at, &variable)).collect();
        self.cursor += fixed + variable.len();
        Ok(Val::Header { valid: true, fields })
    }

    /// Reads a value from bit `at`.
    fn peek(&self, ty: &Type, at: &mut usize, varbit: &[u8]) -> Val {
        match ty.base() {
            Type::Varbit(_) => Val::Varbit(varbit.to_vec()),
            Type::Composite(c) => {
                let fields: Vec<Val> = c.fields.iter().map(|(_, t)| self.peek(t, at, varbit)).collect();
                if ty.is_header() { Val::Header { valid: true, fields } } else { Val::Record(fields) }
            }
            Type::Tuple(ts) => Val::Record(ts.iter().map(|t| self.peek(t, at, varbit)).collect()),
            Type::Stack(t, n) => {
                Val::Stack { items: (0..*n).map(|_| self.peek(t, at, varbit)).collect(), next: 0 }
            }
            other => {
                let mut v = BigInt::default();
                for _ in 0..other.scalar_width().unwrap_or(0) {
                    let byte = self.packet.get(*at / 8).copied().unwrap_or(0);
                    v = (v << 1u32) + (byte >> (7 - *at % 8) & 1);
                    *at += 1;
                }
                Val::Num(fit(&v, other))
            }
        }
    }

    pub(super) fn emit(&mut self, v: &Val, ty: &Type) {
        match (v, ty.base()) {
            (Val::Header { valid: true, .. }, _) => v.bits(ty, &mut self.emitted),
            (Val::Record(fields), Type::Composite(c)) => {
                fields.iter().zip(&c.fields).for_each(|(f, (_, t))| self.emit(f, t));
            }
            (Val::Record(fields), Type::Tuple(ts)) => {
                fields.iter().zip(ts.iter()).for_each(|(f, t)| self.emit(f, t));
            }
            (Val::Stack { items, .. }, Type::Stack(t, _)) => items.iter().for_each(|i| self.emit(i, t)),
            _ => {}
        }
    }
}
