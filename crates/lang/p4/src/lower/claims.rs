//! The names by which a controller addresses objects: each object of a kind has its own.
//!
//! They are compared here and not where they are declared, because the name of an object contains those of
//! the instances around it: only the walk from `main` meets each object once per instance.

use super::Lowering;
use crate::diagnostics::{Code, Diagnostic};
use crate::hir::{ActionId, InstId, Instance, Table, TableId, ValueSet};
use crate::lexer::Name;
use crate::source::Span;
use crate::types::Type;
use std::collections::HashMap;
use std::rc::Rc;

/// The object that has a name first.
struct Claim {
    at: Span,
    declared: Name,
    owner: Rc<[InstId]>,
}

/// The objects by kind and full name, and the instances at each path.
#[derive(Default)]
pub(super) struct Claims {
    by_name: HashMap<(&'static str, String), Claim>,
    /// From the outermost instance to the one that was entered last at this path.
    instances: HashMap<Rc<[Name]>, Rc<[InstId]>>,
}

impl Claims {
    fn instances(&self, path: &[Name]) -> Rc<[InstId]> {
        self.instances.get(path).cloned().unwrap_or_default()
    }

    /// Notes the instance that is entered; its path ends with its name.
    pub(super) fn enter(&mut self, path: &Rc<[Name]>, id: InstId) {
        let outer = path.split_last().map_or_else(Rc::default, |(_, outer)| self.instances(outer));
        self.instances.insert(path.clone(), outer.iter().copied().chain([id]).collect());
    }
}

impl Lowering<'_> {
    /// Claims the name of a table, the names of its actions, and those of the objects in its properties.
    pub(super) fn claim_table(&mut self, id: TableId, path: &[Name]) {
        let t = self.hir.tables[id.0 as usize].clone();
        self.claim("tables", self.full_name(path, t.span, &t.declared), (t.span, &t.declared), path);
        t.actions.iter().for_each(|a| self.claim_action(a.action, path));
        self.claim_properties(&t, path);
    }

    fn claim_properties(&mut self, t: &Table, path: &[Name]) {
        for property in ["counters", "meters", "implementation"] {
            if let Some(id) = t.instance_property(property) {
                let path = if self.is_global(id) { &[] } else { path };
                self.claim_instance(&self.hir.instances[id.0 as usize].clone(), path);
            }
        }
    }

    /// Claims the name of an action. Copies of one action in several instances are one: each table has its
    /// own list of them.
    pub(super) fn claim_action(&mut self, id: ActionId, path: &[Name]) {
        let a = self.hir.actions[id.0 as usize].clone();
        // Older programs declare a NoAction for each table.
        if &*a.name != "NoAction" {
            let name = self.action_name(id, path);
            self.claim("actions", name, (a.span, &a.name), &[]);
        }
    }

    pub(super) fn claim_value_set(&mut self, set: &ValueSet, path: &[Name]) {
        self.claim("value sets", self.full_name(path, set.span, &set.name), (set.span, &set.name), path);
    }

    pub(super) fn claim_instance(&mut self, inst: &Instance, path: &[Name]) {
        // An instance that a table's property creates has the name of its type.
        let Type::Extern(e) = &inst.ty else { return };
        if e.name == inst.name {
            return;
        }
        let kind = match &*e.name {
            "Counter" | "CounterArray" | "counter" => "counters",
            "Register" | "register" => "registers",
            "meter" => "meters",
            "direct_counter" => "direct counters",
            "direct_meter" => "direct meters",
            "action_profile" | "action_selector" => "action profiles",
            _ => return,
        };
        self.claim(kind, self.full_name(path, inst.span, &inst.name), (inst.span, &inst.name), path);
    }

    /// Reports an object whose name another one of its kind has.
    fn claim(&mut self, kind: &'static str, name: String, (at, declared): (Span, &Name), path: &[Name]) {
        let owner = self.claims.instances(path);
        let claim = Claim { at, declared: declared.clone(), owner };
        let key = (kind, name);
        let Some(first) = self.claims.by_name.get(&key) else {
            self.claims.by_name.insert(key, claim);
            return;
        };
        let other = first.at != at || first.declared != *declared;
        let instance = |id: &InstId| self.hir.instances[id.0 as usize].span;
        let mut instances = first.owner.iter().zip(claim.owner.iter()).filter(|(a, b)| a != b);
        let (one, two, hint) = match instances.next() {
            Some((a, b)) if !other => (instance(a), instance(b), "declare each instance with its own name"),
            _ if !other && first.owner.len() == claim.owner.len() => return,
            _ => (first.at, at, "give one of them another @name"),
        };
        let message = format!("two {kind} have the control-plane name `{}`", key.1);
        let d = Diagnostic::new(Code::SameControlName, two, message);
        self.sink.add(d.related(one, "the other one").hint(hint));
    }
}
