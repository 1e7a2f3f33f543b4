//! Checks of tables.

use super::annotations::{match_kind_named, name_annotation, number_annotation};
use super::argument_list::ArgumentList;
use super::depth::Body;
use super::infer::Inference;
use super::key_names::{is_simple_key, path_text};
use super::{Checker, Symbol};
use crate::ast::{self, Direction, ExprKind as Ast, PropertyKind};
use crate::constant::small;
use crate::diagnostics::{Code, Diagnostic};
use crate::hir::{
    ActionId, ActionUse, BoundAction, CallArg, CtorArg, Entry, Expr, Key, MatchKind, Property, Table, TableId,
};
use crate::types::Type;
use num_traits::{Signed, Zero};
use std::rc::Rc;

/// Maximum number of entries of a table.
const MAX_SIZE: u32 = 1 << 24;

impl Checker<'_> {
    pub(super) fn table(&mut self, d: &ast::Decl, properties: &[ast::Property]) {
        let mut t = Table {
            name: name_annotation(&d.annotations).map_or_else(|| d.name.name.clone(), Into::into),
            declared: d.name.name.clone(),
            span: d.name.span,
            keys: Vec::new(),
            key_span: d.name.span,
            actions: Vec::new(),
            default: None,
            default_is_const: false,
            entries: Vec::new(),
            entries_are_const: false,
            size: None,
            properties: Vec::new(),
        };
        self.property_order(d, properties);
        // Keys and actions first: entries and the default action need them.
        for p in properties {
            match &p.kind {
                PropertyKind::Key(keys) => {
                    t.key_span = p.span;
                    t.keys = keys.iter().filter_map(|k| self.key(k)).collect();
                }
                PropertyKind::Actions(actions) => self.actions(&mut t, actions),
                _ => {}
            }
        }
        let has_keys = properties.iter().any(|p| matches!(&p.kind, PropertyKind::Key(k) if !k.is_empty()));
        for p in properties {
            match &p.kind {
                PropertyKind::Entries(entries) if has_keys => {
                    t.entries_are_const = p.is_const;
                    t.entries = entries.iter().filter_map(|e| self.entry(&t, p.is_const, e)).collect();
                }
                PropertyKind::Other { name, value } => self.property(&mut t, p, name, value),
                _ => {}
            }
        }
        self.priorities(&t);
        self.add_default(&mut t);
        let id = TableId(self.program.tables.len() as u32);
        let (_, depth) =
            self.measured_body(|c| t.actions.iter().for_each(|a| c.uses(Body::Action(a.action.0))));
        self.end_of_body(Body::Table(id.0), depth, d.name.span);
        self.program.tables.push(Rc::new(t));
        self.declare(&d.name, Symbol::Table(id));
    }

    /// Checks that each property occurs once, that `actions` exists, and that a key precedes `entries`.
    fn property_order(&mut self, d: &ast::Decl, properties: &[ast::Property]) {
        let mut seen: Vec<&str> = Vec::new();
        for p in properties {
            let name = match &p.kind {
                PropertyKind::Key(keys) => {
                    for k in keys {
                        if let Ast::Path { name, absolute: false } = &k.value.kind
                            && name.name == d.name.name
                        {
                            let hint = "give the table another name";
                            self.error(Code::Recursive, name.span, "a table cannot be its own key", hint);
                        }
                    }
                    "key"
                }
                PropertyKind::Actions(_) => "actions",
                PropertyKind::Entries(entries) => {
                    let keyed =
                        properties.iter().any(|p| matches!(&p.kind, PropertyKind::Key(k) if !k.is_empty()));
                    if !entries.is_empty() && (!keyed || !seen.contains(&"key")) {
                        let span = if keyed { p.span } else { d.name.span };
                        let hint = "write key = { ... } before the entries";
                        self.error(Code::BadTable, span, "entries precede the key", hint);
                    }
                    "entries"
                }
                PropertyKind::Other { name, value } => {
                    if &*name.name == "default_action" && !seen.contains(&"actions") {
                        let hint = "write actions = { ... } before it";
                        self.error(Code::BadTable, value.span, "default action precedes the actions", hint);
                    }
                    &name.name
                }
            };
            if seen.contains(&name) {
                let message = format!("duplicate property `{name}`");
                self.error(Code::DuplicateName, p.span, message, "remove one of them");
            }
            seen.push(name);
        }
        if !seen.contains(&"actions") {
            let message = format!("table `{}` has no actions", d.name.name);
            self.error(Code::BadTable, d.name.span, message, "add actions = { ... }");
        }
    }

    fn actions(&mut self, t: &mut Table, actions: &[ast::ActionRef]) {
        for a in actions {
            let Some(u) = self.action_use(a) else { continue };
            if t.actions.iter().any(|o| o.action == u.action) {
                self.error(Code::DuplicateName, u.span, "duplicate action", "remove one of them");
            } else {
                t.actions.push(u);
            }
        }
    }

    /// Adds NoAction as the default action of a table without one.
    fn add_default(&mut self, t: &mut Table) {
        if t.default.is_some() {
            return;
        }
        let no_action = match self.lookup("NoAction", true) {
            Some(Symbol::Action(id)) => Some(*id),
            _ => None,
        };
        let Some(id) = no_action.filter(|a| self.program.actions[a.0 as usize].params.is_empty()) else {
            let hint = "include core.p4, or declare `action NoAction() {}`";
            let other = self.scopes[0].get("NoAction").map(|e| e.span);
            let message = "the default action NoAction without parameters is not declared";
            let d = Diagnostic::new(Code::BadTable, other.unwrap_or(t.span), message);
            self.sink.add(d.related(t.span, "this table needs it").hint(hint));
            return;
        };
        let index = t.actions.iter().position(|a| a.action == id).unwrap_or_else(|| {
            t.actions.push(ActionUse {
                action: id,
                args: Vec::new().into(),
                written: Vec::new(),
                default_only: true,
                table_only: false,
                span: t.span,
            });
            t.actions.len() - 1
        });
        t.default = Some(BoundAction { index, data: Vec::new() });
        t.default_is_const = false;
    }

    fn key(&mut self, k: &ast::KeyElement) -> Option<Key> {
        let value = self.expr(&k.value, None);
        let kind = self.match_kind(&k.match_kind);
        if value.ty.is_bad() {
            return None;
        }
        if value.ty.scalar_width().is_none() {
            if matches!(value.ty.base(), Type::Composite(_) | Type::Tuple(_) | Type::Var(..)) {
                self.sink.unsupported(value.span, &format!("a key of type {}", value.ty));
                return None;
            }
            let hint = "keys are integers, bool, enums and error; give literals a width";
            let message = format!("a key cannot have the type {}", value.ty);
            return self.refuse(Code::BadTable, value.span, message, hint);
        }
        let named = name_annotation(&k.annotations);
        if named.is_none() && !is_simple_key(&k.value) {
            let hint = "write @name(\"...\") behind the match kind to name it in the control plane";
            self.error(Code::BadTable, value.span, "a computed key needs a name", hint);
        }
        let is_named = named.is_some();
        let name = named.unwrap_or_else(|| path_text(&k.value));
        let kind_name = k.match_kind.name.clone();
        Some(Key { value, kind, kind_name, kind_span: k.match_kind.span, name, is_named })
    }

    fn match_kind(&mut self, name: &ast::Ident) -> MatchKind {
        let n = &*name.name;
        if !self.match_kinds.iter().any(|m| **m == *n) {
            let known: Vec<_> = self.match_kinds.iter().map(|m| m.to_string()).collect();
            let hint = match super::closest(n, known.iter().map(String::as_str)) {
                Some(m) => format!("did you mean `{m}`?"),
                None => format!("the match kinds are {}", known.join(", ")),
            };
            self.error(Code::BadTable, name.span, format!("unknown match kind `{n}`"), hint);
        }
        match_kind_named(n)
    }

    /// Returns the action that a path or call names, and the arguments of the call.
    fn action_named<'a>(&mut self, e: &'a ast::Expr) -> Option<(ActionId, &'a [ast::Arg])> {
        let (path, args): (&ast::Expr, &[ast::Arg]) = match &e.kind {
            Ast::Call { callee, args, .. } => (callee, args),
            _ => (e, &[]),
        };
        let Ast::Path { name, absolute } = &path.kind else {
            return self.refuse(Code::BadTable, e.span, "expected an action", "write the name of an action");
        };
        match self.resolve(name, *absolute) {
            Symbol::Action(id) => Some((id, args)),
            Symbol::Bad => None,
            other => {
                let message = format!("`{}` is {}, not an action", name.name, other.describe());
                self.refuse(Code::WrongKind, name.span, message, "declare it with `action`")
            }
        }
    }

    fn action_use(&mut self, a: &ast::ActionRef) -> Option<ActionUse> {
        self.annotations(&a.annotations);
        let (action, args) = self.action_named(&a.value)?;
        let routine = self.program.actions[action.0 as usize].clone();
        let directed: Vec<_> =
            routine.params.iter().filter(|p| p.direction != Direction::None).cloned().collect();
        let written = args.to_vec();
        let w = ArgumentList::new(args, a.value.span);
        let args = self.bind(&routine.name, &directed, w, &mut Inference::default())?;
        let has = |name: &str| a.annotations.iter().any(|x| &*x.name.name == name);
        let (default_only, table_only) = (has("defaultonly"), has("tableonly"));
        Some(ActionUse { action, args, written, default_only, table_only, span: a.value.span })
    }

    /// Binds the data of an action of the table: a default action or an entry's.
    fn bound_action(&mut self, t: &Table, e: &ast::Expr) -> Option<BoundAction> {
        let (action, args) = self.action_named(e)?;
        let routine = self.program.actions[action.0 as usize].clone();
        let Some(index) = t.actions.iter().position(|a| a.action == action) else {
            let message = format!("`{}` is not among the actions of table `{}`", routine.name, t.name);
            return self.refuse(Code::BadTable, e.span, message, "add it to actions = { ... }");
        };
        let data: Vec<_> =
            routine.params.iter().filter(|p| p.direction == Direction::None).cloned().collect();
        // Arguments of parameters with a direction may be repeated here, unchanged.
        let directed = routine.params.len() - data.len();
        let args = if args.len() == routine.params.len() && directed > 0 {
            self.same_arguments(&t.actions[index], &routine, args);
            let is_data = |(i, a): (usize, &ast::Arg)| match &a.name {
                Some(n) => data.iter().any(|p| p.name == n.name),
                None => i >= directed,
            };
            args.iter().enumerate().filter(|(i, a)| is_data((*i, a))).map(|(_, a)| a.clone()).collect()
        } else {
            args.to_vec()
        };
        let w = ArgumentList::new(&args, e.span);
        let args = self.bind(&routine.name, &data, w, &mut Inference::default())?;
        let value = |a: &CallArg| if let CallArg::In(e) = a { Some(e.clone()) } else { None };
        let values: Vec<Expr> = args.iter().filter_map(value).collect();
        for v in &values {
            if !self.is_known_after_instantiation(v) {
                let hint = "use literals and constants";
                let message = "action data must be known at compile time";
                return self.refuse(Code::NotConstant, v.span, message, hint);
            }
        }
        Some(BoundAction { index, data: values })
    }

    /// Reports arguments that differ from those in the list of actions.
    fn same_arguments(&mut self, u: &ActionUse, routine: &crate::hir::Routine, args: &[ast::Arg]) {
        let directed: Vec<_> =
            routine.params.iter().filter(|p| p.direction != Direction::None).cloned().collect();
        let given = u.written.clone();
        for (i, p) in directed.iter().enumerate() {
            let by_name = |a: &&ast::Arg| a.name.as_ref().is_some_and(|n| n.name == p.name);
            let of = |args: &[ast::Arg]| {
                let a = args.iter().find(by_name).or_else(|| args.get(i).filter(|a| a.name.is_none()));
                a.and_then(|a| a.value.as_ref()).map(|e| crate::ast_print::expr(&in_order(e)))
            };
            if of(&given) != of(args) {
                let span = args.get(i).map_or(u.span, |a| a.span);
                let d =
                    Diagnostic::new(Code::BadTable, span, "this argument differs from the list of actions");
                let d = d.related(u.span, "listed here").hint("write the same argument, or omit it");
                self.sink.add(d);
            }
        }
    }

    fn entry(&mut self, t: &Table, all_const: bool, e: &ast::Entry) -> Option<Entry> {
        let mut priority = None;
        if let Some(p) = &e.priority {
            if all_const {
                let hint = "const entries match in their order; remove `const` or the priority";
                self.error(Code::BadTable, p.span, "priority of a const entry", hint);
            } else if t.keys.iter().all(|k| matches!(k.kind, MatchKind::Exact | MatchKind::Lpm)) {
                let hint = "only ternary, range and optional keys need priorities";
                let d =
                    Diagnostic::new(Code::BadTable, t.key_span, "the keys of this table need no priorities");
                self.sink.add(d.related(p.span, "this entry has a priority").hint(hint));
            }
            priority = self.constant(p, None);
        }
        let types: Vec<Type> = t.keys.iter().map(|k| k.value.ty.clone()).collect();
        let keys = self.keysets(&e.keys, &types)?;
        let action = self.bound_action(t, &e.action.value)?;
        if t.actions[action.index].default_only {
            let hint = "the list of actions marks it @defaultonly";
            self.error(Code::BadTable, e.action.value.span, "allowed only as default action", hint);
        }
        let rank = number_annotation(&e.action.annotations, "priority");
        Some(Entry { keys, action, priority, rank, is_const: all_const || e.is_const, span: e.span })
    }

    /// Checks priorities: if one entry has one, the first must have one, and no derived
    /// priority is negative.
    fn priorities(&mut self, t: &Table) {
        let Some(given) = t.entries.iter().find(|e| e.priority.is_some()) else { return };
        if let Some(first) = t.entries.first().filter(|e| e.priority.is_none()) {
            let d = Diagnostic::new(Code::BadTable, first.span, "the first entry has no priority");
            let d = d.related(given.span, "this entry has one");
            return self.sink.add(d.hint("write `priority = ...:` before it: the others derive from it"));
        }
        let value = |name: &str| {
            let p = t.properties.iter().find(|p| &*p.name == name)?;
            if let CtorArg::Value(e) = &p.value { e.as_const().cloned() } else { None }
        };
        let largest_wins = value("largest_priority_wins").is_none_or(|v| !v.is_zero());
        let step = value("priority_delta").unwrap_or_else(|| 1.into());
        let mut next = num_bigint::BigInt::zero();
        for e in &t.entries {
            next = match &e.priority {
                Some(p) => p.clone(),
                None if largest_wins => next - &step,
                None => next + &step,
            };
            if next.is_negative() || next > i32::MAX.into() {
                let message = format!("the priority {next} of an entry is out of range");
                let d = Diagnostic::new(Code::BadTable, t.span, message).related(e.span, "this entry");
                let hint = format!("priorities are from 0 to {}; set it, or change priority_delta", i32::MAX);
                return self.sink.add(d.hint(hint));
            }
        }
    }

    fn property(&mut self, t: &mut Table, p: &ast::Property, name: &ast::Ident, value: &ast::Expr) {
        match &*name.name {
            "default_action" => {
                t.default = self.bound_action(t, value);
                if t.default.as_ref().is_some_and(|d| t.actions[d.index].table_only) {
                    let hint = "the list of actions marks it @tableonly";
                    self.error(Code::BadTable, value.span, "allowed only in entries", hint);
                }
                t.default_is_const = p.is_const;
            }
            "size" => {
                let e = self.expr(value, None);
                if e.as_const().is_none() && self.is_known_after_instantiation(&e) && e.ty != Type::Bool {
                    return;
                }
                let n = Some(&e).filter(|e| e.ty != Type::Bool).and_then(Expr::as_const).cloned();
                match n.as_ref().and_then(small).filter(|n| *n <= MAX_SIZE) {
                    Some(n) => t.size = Some(n),
                    None => {
                        let hint = format!("sizes are from 0 to {MAX_SIZE}");
                        self.error(Code::BadTable, value.span, "invalid table size", hint);
                    }
                }
            }
            "largest_priority_wins" | "priority_delta" => {
                let want = if &*name.name == "priority_delta" { Type::InfInt } else { Type::Bool };
                let v = self.expr_as(value, &want);
                let positive = v.as_const().is_some_and(|n| want == Type::Bool || n.is_positive());
                if !positive && !v.ty.is_bad() {
                    let hint = "use a constant: a bool, or a positive number for priority_delta";
                    self.error(Code::BadTable, value.span, "invalid value of this property", hint);
                }
                self.add_property(t, name, CtorArg::Value(v));
            }
            _ => {
                if let Some(v) = self.property_value(value) {
                    self.add_property(t, name, v);
                }
            }
        }
    }

    fn add_property(&self, t: &mut Table, name: &ast::Ident, value: CtorArg) {
        t.properties.push(Property { name: name.name.clone(), span: name.span, value });
    }

    /// Checks the value of a property: an instance, an instance created here, or a value.
    fn property_value(&mut self, value: &ast::Expr) -> Option<CtorArg> {
        if let Some(object) = self.object_named_by(value) {
            return Some(CtorArg::Object(object));
        }
        if let Some(object) = self.constructed_by(value) {
            return object.map(CtorArg::Object);
        }
        let e = self.expr(value, None);
        (!e.ty.is_bad()).then_some(CtorArg::Value(e))
    }
}

/// Returns a struct expression with its fields sorted by name: their order does not matter.
fn in_order(e: &ast::Expr) -> ast::Expr {
    let mut e = e.clone();
    if let Ast::Struct { fields, .. } = &mut e.kind {
        fields.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    }
    e
}
