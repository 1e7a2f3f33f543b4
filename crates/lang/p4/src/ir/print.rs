//! The IR as text, for `--emit ir` and for tests.

use super::graph::ControlFlowGraph;
use super::{Block, Function, KeyPart, Op, Opnd, Term, Ty, Val};
use std::collections::HashMap;
use std::fmt::Write;

struct IrPrinter<'a> {
    f: &'a Function,
    names: HashMap<Val, usize>,
    blocks: HashMap<Block, usize>,
    out: String,
}

/// Prints reachable blocks in topological order; values are numbered in the order of their first use.
pub(crate) fn print(f: &Function) -> String {
    let g = ControlFlowGraph::new(f);
    let mut p = IrPrinter { f, names: HashMap::new(), blocks: HashMap::new(), out: String::new() };
    for m in &f.maps {
        let d = &m.definition;
        let kind = map_kind(d.map_type);
        let _ = writeln!(
            p.out,
            "map {} : {kind}, key {} bytes, value {} bytes, {} entries, {} initial",
            m.name,
            d.key_size,
            d.value_size,
            d.max_entries,
            m.entries.len()
        );
    }
    for (i, b) in g.order.iter().enumerate() {
        p.blocks.insert(*b, i);
        for v in f.block(*b).phis.iter().chain(&f.block(*b).insts) {
            let n = p.names.len();
            p.names.insert(*v, n);
        }
    }
    for b in &g.order {
        p.block(*b, &g);
    }
    p.out
}

pub(crate) const fn map_kind(t: u32) -> &'static str {
    match t {
        p4shield_abi::map::TYPE_HASH => "hash",
        p4shield_abi::map::TYPE_ARRAY => "array",
        p4shield_abi::map::TYPE_LPM_TRIE => "lpm",
        _ => "unknown",
    }
}

impl IrPrinter<'_> {
    fn o(&self, o: Opnd) -> String {
        match o {
            Opnd::C(c) if c < 10 => c.to_string(),
            Opnd::C(c) => format!("{c:#x}"),
            Opnd::V(v) => self.names.get(&v).map_or_else(|| format!("?{}", v.0), |n| format!("v{n}")),
        }
    }

    fn list(&self, os: &[Opnd]) -> String {
        os.iter().map(|o| self.o(*o)).collect::<Vec<_>>().join(", ")
    }

    fn parts(&self, parts: &[KeyPart]) -> String {
        let part = |(at, n, v): &KeyPart| format!("{at}..{} = {}", at + u32::from(*n), self.o(*v));
        parts.iter().map(part).collect::<Vec<_>>().join(", ")
    }

    fn b(&self, b: Block) -> String {
        self.blocks.get(&b).map_or_else(|| format!("?b{}", b.0), |n| format!("b{n}"))
    }

    fn block(&mut self, b: Block, g: &ControlFlowGraph) {
        let data = self.f.block(b);
        let preds: Vec<String> = g.preds(b).iter().map(|p| self.b(*p)).collect();
        let from = if preds.is_empty() { String::new() } else { format!(" from {}", preds.join(", ")) };
        let _ = writeln!(self.out, "{}: ; {}{from}", self.b(b), data.label);
        for v in data.phis.iter().chain(&data.insts) {
            let text = self.inst(*v);
            let _ = writeln!(self.out, "    {text}");
        }
        let term = match &data.term {
            Term::Jump(t) => format!("jump {}", self.b(*t)),
            Term::Branch(c, t, f) => format!("if {} then {} else {}", self.o(*c), self.b(*t), self.b(*f)),
            Term::Return(v) => format!("return {}", self.o(*v)),
            Term::None => "unfinished".to_owned(),
        };
        let _ = writeln!(self.out, "    {term}");
    }

    fn inst(&self, v: Val) -> String {
        let inst = self.f.inst(v);
        let text = self.op(&inst.op);
        match inst.ty {
            Ty::None => text,
            Ty::Int(w) => format!("{}:{w} = {text}", self.o(Opnd::V(v))),
            Ty::Packet => format!("{}:packet = {text}", self.o(Opnd::V(v))),
            Ty::MapValue => format!("{}:value = {text}", self.o(Opnd::V(v))),
        }
    }

    fn op(&self, op: &Op) -> String {
        let o = |x: &Opnd| self.o(*x);
        match op {
            Op::Phi(ins) => {
                let ins: Vec<_> = ins.iter().map(|(b, v)| format!("{} from {}", o(v), self.b(*b))).collect();
                format!("phi {}", ins.join(", "))
            }
            Op::Bin(op, a, b) => format!("{} {}, {}", format!("{op:?}").to_lowercase(), o(a), o(b)),
            Op::Cmp(cc, a, b, w) => format!("{}.{w} {}, {}", format!("{cc:?}").to_lowercase(), o(a), o(b)),
            Op::Swap(n, a) => format!("swap{} {}", u32::from(*n) * 8, o(a)),
            Op::Context(off, n) => format!("context[{off}..{}]", off + i16::from(*n)),
            Op::SetContext(off, n, v) => format!("context[{off}..{}] = {}", off + i16::from(*n), o(v)),
            Op::Offset(a, b) => format!("offset {}, {}", o(a), o(b)),
            Op::InBounds { base, len, end } => format!("inbounds {} + {len}, {}", o(base), o(end)),
            Op::Load { base, offset, bytes } => {
                format!("load{} {} + {offset}", u32::from(*bytes) * 8, o(base))
            }
            Op::Store { base, offset, bytes, value } => {
                format!("store{} {} + {offset}, {}", u32::from(*bytes) * 8, o(base), o(value))
            }
            Op::WriteBack(w) => {
                let field = |(s, (now, before)): (&super::FieldSlot, &(Vec<Opnd>, Option<Vec<Opnd>>))| {
                    let same = before.as_ref() == Some(now);
                    (!same).then(|| format!("{} = {}", s.name, self.list(now)))
                };
                let fields: Vec<_> = w.layout.fields.iter().zip(&w.fields).filter_map(field).collect();
                format!("write {} at {} {{ {} }}", w.layout.name, o(&w.base), fields.join("; "))
            }
            Op::Lookup { map, key } => {
                format!("lookup {} [{}]", self.f.maps[map.0 as usize].name, self.parts(key))
            }
            Op::LoadMap { base, offset, bytes } => {
                format!("value{} {} + {offset}", u32::from(*bytes) * 8, o(base))
            }
            Op::StoreMap { base, offset, bytes, value } => {
                format!("set value{} {} + {offset}, {}", u32::from(*bytes) * 8, o(base), o(value))
            }
            Op::Buffer { id, size, data, args } => {
                format!("helper {id} [{}] ({size}, {})", self.parts(data), self.list(args))
            }
            Op::Helper { id, args, .. } => format!("helper {id} ({})", self.list(args)),
            Op::Extern { name, args } => format!("call {name} ({})", self.list(args)),
            Op::Suspend => "suspend".to_owned(),
        }
    }
}
