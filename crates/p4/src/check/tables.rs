//! Tables.

use super::infer::Inference;
use super::{Checker, Symbol};
use crate::ast::{self, Direction, ExprKind as Ast, PropertyKind};
use crate::constant::small;
use crate::diagnostics::Code;
use crate::hir::{ActionId, ActionUse, BoundAction, CallArg, Entry, Expr, Key, MatchKind, Table, TableId};
use crate::types::Type;
use std::rc::Rc;

/// The most entries a table may ask for.
const MAX_SIZE: u32 = 1 << 24;

impl Checker<'_> {
    pub(super) fn table(&mut self, d: &ast::Decl, properties: &[ast::Property]) {
        let mut t = Table {
            name: name_annotation(&d.annotations).map_or_else(|| d.name.name.clone(), Into::into),
            span: d.name.span,
            keys: Vec::new(),
            actions: Vec::new(),
            default: None,
            default_is_const: false,
            entries: Vec::new(),
            entries_are_const: false,
            size: None,
        };
        // Keys and actions first: entries and the default action need them.
        for p in properties {
            match &p.kind {
                PropertyKind::Key(keys) => t.keys = keys.iter().filter_map(|k| self.key(k)).collect(),
                PropertyKind::Actions(actions) => {
                    t.actions = actions.iter().filter_map(|a| self.action_use(a)).collect();
                }
                _ => {}
            }
        }
        if !properties.iter().any(|p| matches!(p.kind, PropertyKind::Actions(_))) {
            let message = format!("table `{}` has no actions", d.name.name);
            self.error(Code::BadTable, d.name.span, message, "add actions = { ... }");
        }
        for p in properties {
            match &p.kind {
                PropertyKind::Entries(entries) => {
                    t.entries_are_const = p.is_const;
                    t.entries = entries.iter().filter_map(|e| self.entry(&t, e)).collect();
                }
                PropertyKind::Other { name, value } => self.property(&mut t, p, name, value),
                _ => {}
            }
        }
        self.add_default(&mut t);
        let id = TableId(self.program.tables.len() as u32);
        self.program.tables.push(Rc::new(t));
        self.declare(&d.name, Symbol::Table(id));
    }

    /// Without a default action a miss does nothing: NoAction.
    fn add_default(&mut self, t: &mut Table) {
        if t.default.is_some() {
            return;
        }
        let Some(Symbol::Action(no_action)) = self.lookup("NoAction", true).cloned() else { return };
        let index = t.actions.iter().position(|a| a.action == no_action).unwrap_or_else(|| {
            t.actions.push(ActionUse { action: no_action, args: Vec::new(), span: t.span });
            t.actions.len() - 1
        });
        t.default = Some(BoundAction { index, data: Vec::new() });
        t.default_is_const = false;
    }

    fn key(&mut self, k: &ast::KeyElement) -> Option<Key> {
        let value = self.expr(&k.value, None);
        let kind = match &*k.match_kind.name {
            "exact" => MatchKind::Exact,
            "lpm" => MatchKind::Lpm,
            n if self.match_kinds.iter().any(|m| **m == *n) => {
                self.unsupported(k.match_kind.span, &format!("match kind `{n}`"));
                MatchKind::Other
            }
            n => {
                let known: Vec<_> = self.match_kinds.iter().map(|m| m.to_string()).collect();
                let hint = match super::closest(n, known.iter().map(String::as_str)) {
                    Some(m) => format!("did you mean `{m}`?"),
                    None => format!("known are {}", known.join(", ")),
                };
                self.error(Code::BadTable, k.match_kind.span, format!("there is no match kind `{n}`"), hint);
                MatchKind::Other
            }
        };
        if value.ty.is_bad() {
            return None;
        }
        if value.ty.scalar_width().is_none() {
            let hint = "keys are integers, bool, enums and error; give literals a width";
            self.error(Code::BadTable, value.span, format!("{} cannot be a key", value.ty), hint);
            return None;
        }
        let named = name_annotation(&k.annotations);
        let name = named.unwrap_or_else(|| path_text(&k.value));
        Some(Key { value, kind, name })
    }

    /// The action that a path or call names, and the call's arguments.
    fn action_named<'a>(&mut self, e: &'a ast::Expr) -> Option<(ActionId, &'a [ast::Arg])> {
        let (path, args): (&ast::Expr, &[ast::Arg]) = match &e.kind {
            Ast::Call { callee, args, .. } => (callee, args),
            _ => (e, &[]),
        };
        let Ast::Path { name, absolute } = &path.kind else {
            self.error(Code::BadTable, e.span, "this is not an action", "write the name of an action");
            return None;
        };
        match self.resolve(name, *absolute) {
            Symbol::Action(id) => Some((id, args)),
            Symbol::Bad => None,
            other => {
                let message = format!("`{}` is {}, not an action", name.name, other.describe());
                self.error(Code::WrongKind, name.span, message, "declare it with `action`");
                None
            }
        }
    }

    fn action_use(&mut self, a: &ast::ActionRef) -> Option<ActionUse> {
        let (action, args) = self.action_named(&a.value)?;
        let routine = self.program.actions[action.0 as usize].clone();
        let directed: Vec<_> =
            routine.params.iter().filter(|p| p.direction != Direction::None).cloned().collect();
        let args = self.bind(&routine.name, &directed, args, &mut Inference::default(), a.value.span)?;
        Some(ActionUse { action, args, span: a.value.span })
    }

    /// An action of the table with its data: a default action or an entry's.
    fn bound_action(&mut self, t: &Table, e: &ast::Expr) -> Option<BoundAction> {
        let (action, args) = self.action_named(e)?;
        let routine = self.program.actions[action.0 as usize].clone();
        let Some(index) = t.actions.iter().position(|a| a.action == action) else {
            let message = format!("`{}` is not among the actions of table `{}`", routine.name, t.name);
            self.error(Code::BadTable, e.span, message, "add it to actions = { ... }");
            return None;
        };
        let data: Vec<_> =
            routine.params.iter().filter(|p| p.direction == Direction::None).cloned().collect();
        // Arguments for parameters with a direction may be repeated here; they come first.
        let directed = routine.params.len() - data.len();
        let args = if args.len() == routine.params.len() { &args[directed..] } else { args };
        let args = self.bind(&routine.name, &data, args, &mut Inference::default(), e.span)?;
        let values: Vec<Expr> =
            args.into_iter().filter_map(|a| if let CallArg::In(e) = a { Some(e) } else { None }).collect();
        for v in &values {
            if !super::decls::is_constant(v) {
                let hint = "use literals and constants";
                self.error(Code::NotConstant, v.span, "action data has to be known at compile time", hint);
                return None;
            }
        }
        Some(BoundAction { index, data: values })
    }

    fn entry(&mut self, t: &Table, e: &ast::Entry) -> Option<Entry> {
        if let Some(p) = &e.priority {
            self.unsupported(p.span, "priorities of entries");
        }
        let types: Vec<Type> = t.keys.iter().map(|k| k.value.ty.clone()).collect();
        let keys = self.keysets(&e.keys, &types)?;
        let action = self.bound_action(t, &e.action.value)?;
        Some(Entry { keys, action, span: e.span })
    }

    fn property(&mut self, t: &mut Table, p: &ast::Property, name: &ast::Ident, value: &ast::Expr) {
        match &*name.name {
            "default_action" => {
                t.default = self.bound_action(t, value);
                t.default_is_const = p.is_const;
            }
            "size" => {
                let n = self.constant(value, None);
                match n.as_ref().and_then(small).filter(|n| (1..=MAX_SIZE).contains(n)) {
                    Some(n) => t.size = Some(n),
                    None => {
                        let hint = format!("sizes are from 1 to {MAX_SIZE}");
                        self.error(Code::BadTable, value.span, "this is not a size", hint);
                    }
                }
            }
            other => self.unsupported(name.span, &format!("table property `{other}`")),
        }
    }
}

/// The text of `@name("...")`.
fn name_annotation(annotations: &[ast::Annotation]) -> Option<String> {
    let a = annotations.iter().find(|a| &*a.name.name == "name")?;
    match &a.body.first()?.tok {
        crate::lexer::Tok::Str(s) => Some(s.to_string()),
        _ => None,
    }
}

/// The text of a key such as `hdr.ipv4.dst`, its control-plane name.
fn path_text(e: &ast::Expr) -> String {
    match &e.kind {
        Ast::Path { name, .. } => name.name.to_string(),
        Ast::Member(b, n) => format!("{}.{}", path_text(b), n.name),
        Ast::Index(b, i) => match &i.kind {
            Ast::Int { value, .. } => format!("{}[{value}]", path_text(b)),
            _ => format!("{}[]", path_text(b)),
        },
        Ast::Call { callee, .. } => match &callee.kind {
            Ast::Member(b, n) if &*n.name == "isValid" => format!("{}.$valid$", path_text(b)),
            _ => format!("{}()", path_text(callee)),
        },
        _ => "key".to_owned(),
    }
}
