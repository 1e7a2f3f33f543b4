//! A direct evaluator of the resolved program: an oracle for the compiler.
//!
//! It walks the program that the checker resolved, on integers of any size, one statement at a time. It
//! shares nothing with `lower`, `opt` and `codegen`, so that their bugs show as differences. The crate
//! includes it in its own tests, because the resolved program is private.

mod call;
mod calls;
mod differential;
mod expression;
mod generate;
mod packet;
mod placed;
mod statement;
mod v1model;
mod value;

use crate::hir::{Control, CtorArg, Expr, ExprKind, InstId, Instance, Object, Param, Program, VarId};
use crate::types::Type;
use num_bigint::BigInt;
use std::collections::HashMap;
use std::rc::Rc;
use value::{Val, bytes, num, zero};

/// What a variable or parameter refers to.
#[derive(Clone, Debug)]
enum Binding {
    Value(Val),
    PacketIn,
    PacketOut,
    /// An instance, with its enclosing instances.
    Object(InstId, Vec<InstId>),
}

/// The reason why a statement is not followed by the next.
#[derive(Debug)]
enum Stop {
    Return(Option<Val>),
    Exit,
    Break,
    Continue,
    /// The parser rejects the packet with the error of this number.
    Reject(usize),
    Drop,
    /// The evaluator does not know the construct.
    Skip(String),
}

type Eval<T> = Result<T, Stop>;

/// The packets that leave for one that arrives, each with its port if the architecture has ports.
type Outcome = Vec<(Vec<u8>, Option<u32>)>;

/// A program that is being evaluated. Registers keep their values from packet to packet.
struct Machine<'a> {
    hir: &'a Program,
    vars: HashMap<VarId, Binding>,
    /// The instances that are being applied.
    path: Vec<InstId>,
    registers: HashMap<(InstId, Vec<InstId>), Vec<BigInt>>,
    /// Functions without arguments, and their results.
    information: Vec<(&'static str, u64)>,
    packet: Vec<u8>,
    cursor: usize,
    error: usize,
    emitted: Vec<bool>,
    pass: bool,
    truncate: Option<usize>,
    /// Requests of the control that runs.
    asked: v1model::Asked,
    /// The port that ingress chose for a packet that went on at once.
    unicast: Option<usize>,
    /// v1model's metadata while a control runs that has no parameter for it; its type and its variable.
    standard: Option<(Type, Val, Option<VarId>)>,
}

impl<'a> Machine<'a> {
    fn new(hir: &'a Program, information: Vec<(&'static str, u64)>) -> Self {
        Self {
            hir,
            vars: HashMap::new(),
            path: Vec::new(),
            registers: HashMap::new(),
            information,
            packet: Vec::new(),
            cursor: 0,
            error: 0,
            emitted: Vec::new(),
            pass: true,
            truncate: None,
            asked: v1model::Asked::default(),
            unicast: None,
            standard: None,
        }
    }

    #[expect(clippy::unused_self, reason = "reads like the other ways to stop")]
    fn skip<T>(&self, what: &str) -> Eval<T> {
        Err(Stop::Skip(what.to_owned()))
    }

    /// Processes a packet that arrives at port [`v1model::INPUT`].
    fn run(&mut self, packet: &[u8]) -> Result<Outcome, String> {
        self.packet = packet.to_vec();
        (self.cursor, self.error, self.pass, self.truncate) = (0, 0, true, None);
        self.emitted.clear();
        self.path.clear();
        self.standard = None;
        match self.pipeline() {
            Ok(o) => Ok(o),
            Err(Stop::Drop | Stop::Reject(_)) => Ok(Vec::new()),
            Err(Stop::Skip(why)) => Err(why),
            Err(other) => Err(format!("{other:?}")),
        }
    }

    fn stage(&self, a: &CtorArg) -> Eval<(InstId, Rc<Instance>)> {
        match a {
            CtorArg::Object(Object::Instance(id)) => Ok((*id, self.hir.instances[id.0 as usize].clone())),
            _ => self.skip("a stage"),
        }
    }

    fn control_of(&self, inst: &Instance) -> Eval<Rc<Control>> {
        match inst.what {
            crate::hir::Constructed::Control(c) => Ok(self.hir.controls[c.0 as usize].clone()),
            _ => self.skip("a stage"),
        }
    }

    fn pipeline(&mut self) -> Eval<Outcome> {
        let Some(main) = self.hir.main else { return self.skip("no main") };
        let main = self.hir.instances[main.0 as usize].clone();
        let Type::Object(package) = &main.ty else { return self.skip("no package") };
        if &*package.name == "V1Switch" {
            return self.v1model(&main.args);
        }
        let (id, parser) = self.stage(&main.args[0])?;
        let crate::hir::Constructed::Parser(p) = parser.what else { return self.skip("no parser") };
        let params = self.hir.parsers[p.0 as usize].params.clone();
        let mut shared: Vec<Val> = params[1..].iter().map(|p| zero(&p.ty)).collect();
        let length = self.packet.len();
        if let Some(p) = params.get(3) {
            set(&mut shared[2], &p.ty, "packet_length", length);
            set(&mut shared[2], &p.ty, "input_port", v1model::INPUT);
        }
        self.vars.insert(params[0].var, Binding::PacketIn);
        self.staged(&params[1..], &mut shared, |m| m.parser(&parser, id))?;
        let (id, filter) = self.stage(&main.args[1])?;
        let control = self.control_of(&filter)?;
        if &*package.name == "ebpfFilter" {
            shared.push(num(0));
            self.staged(&control.params, &mut shared, |m| m.control(&filter, id))?;
            let accepted = shared.last().is_some_and(Val::truth);
            return Ok(if accepted { vec![(self.packet.clone(), None)] } else { Vec::new() });
        }
        self.staged(&control.params, &mut shared, |m| m.control(&filter, id))?;
        self.deparse(&main.args[2], &mut shared)?;
        Ok(if self.pass { vec![(self.output(), None)] } else { Vec::new() })
    }

    /// Runs a stage of the pipeline on values that the stages share.
    fn staged(
        &mut self,
        params: &[Param],
        shared: &mut [Val],
        body: impl FnOnce(&mut Self) -> Eval<()>,
    ) -> Eval<()> {
        for (p, v) in params.iter().zip(shared.iter()) {
            self.vars.insert(p.var, Binding::Value(v.clone()));
        }
        if let Some((ty, value, var)) = &mut self.standard {
            *var = params.get(2).filter(|p| p.ty == *ty).map(|p| p.var);
            *value = shared[2].clone();
        }
        self.path.clear();
        let ended = body(self);
        if let Some((_, value, None)) = &self.standard {
            shared[2] = value.clone();
        }
        for (p, v) in params.iter().zip(shared.iter_mut()) {
            if let Some(Binding::Value(new)) = self.vars.get(&p.var) {
                *v = new.clone();
            }
        }
        match ended {
            Err(Stop::Return(_) | Stop::Exit) => Ok(()),
            other => other,
        }
    }

    /// Sets a field of v1model's metadata.
    fn set_standard(&mut self, field: &str, v: usize) {
        let Some((ty, value, var)) = self.standard.clone() else { return };
        match var.and_then(|v| self.vars.get_mut(&v)) {
            Some(Binding::Value(to)) => set(to, &ty, field, v),
            _ => {
                let mut value = value;
                set(&mut value, &ty, field, v);
                self.standard = Some((ty, value, var));
            }
        }
    }

    fn deparse(&mut self, a: &CtorArg, shared: &mut [Val]) -> Eval<()> {
        let (id, inst) = self.stage(a)?;
        let control = self.control_of(&inst)?;
        self.vars.insert(control.params[0].var, Binding::PacketOut);
        self.standard = None;
        self.staged(&control.params[1..], shared, |m| m.control(&inst, id))
    }

    /// Returns the emitted headers and the bytes that the parser did not extract.
    fn output(&self) -> Vec<u8> {
        let mut out = bytes(&self.emitted);
        out.extend(&self.packet[self.cursor..]);
        out.truncate(self.truncate.unwrap_or(usize::MAX));
        out
    }

    /// Advances the next index of a stack after an extraction into `stack.next`.
    fn advance_stack(&mut self, e: &Expr) {
        match &e.kind {
            ExprKind::Field(b, _) => self.advance_stack(b),
            ExprKind::StackNext(b) => {
                if let Ok(place) = self.place(b)
                    && let Some(Val::Stack { next, .. }) = self.at(&place)
                {
                    *next += 1;
                }
            }
            _ => {}
        }
    }
}

fn position(ty: &Type, field: &str) -> Option<usize> {
    let Type::Composite(c) = ty.base() else { return None };
    c.field(field).map(|(i, _)| i)
}

fn set(v: &mut Val, ty: &Type, field: &str, to: usize) {
    if let Some(f) = position(ty, field).and_then(|i| v.field_mut(i)) {
        *f = num(to);
    }
}

fn get(v: &Val, ty: &Type, field: &str) -> usize {
    position(ty, field).and_then(|i| v.field(i)).map_or(0, Val::index)
}
