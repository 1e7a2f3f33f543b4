//! The syntax tree as P4 text, for `--emit ast`: the parser's result, with every operation in
//! parentheses. Annotations are omitted.

use crate::ast::{
    ActionRef, Arg, Block, Composite, Decl, DeclKind, Expr, ExprKind, Ident, Param, Program, Property,
    PropertyKind, Prototype, State, Stmt, StmtKind, Transition, TypeExpr, TypeKind, TypedefTarget,
};
use std::fmt::Write;

#[derive(Default)]
struct AstPrinter {
    out: String,
    indent: usize,
}

/// Prints the whole program.
pub(crate) fn print(p: &Program) -> String {
    let mut printer = AstPrinter::default();
    for d in &p.decls {
        printer.decl(d);
    }
    printer.out
}

pub(crate) fn list<T>(items: &[T], f: impl Fn(&T) -> String) -> String {
    items.iter().map(f).collect::<Vec<_>>().join(", ")
}

fn names(items: &[Ident]) -> String {
    list(items, |i| i.name.to_string())
}

fn generics(params: &[Ident]) -> String {
    if params.is_empty() { String::new() } else { format!("<{}>", names(params)) }
}

fn dotted(name: &Ident, absolute: bool) -> String {
    format!("{}{}", if absolute { "." } else { "" }, name.name)
}

fn ty(t: &TypeExpr) -> String {
    match &t.kind {
        TypeKind::Bit(None) => "bit".to_owned(),
        TypeKind::Bit(Some(w)) => format!("bit<{}>", expr(w)),
        TypeKind::Int(None) => "int".to_owned(),
        TypeKind::Int(Some(w)) => format!("int<{}>", expr(w)),
        TypeKind::Varbit(w) => format!("varbit<{}>", expr(w)),
        TypeKind::Bool => "bool".to_owned(),
        TypeKind::Error => "error".to_owned(),
        TypeKind::MatchKind => "match_kind".to_owned(),
        TypeKind::Text => "string".to_owned(),
        TypeKind::Void => "void".to_owned(),
        TypeKind::DontCare => "_".to_owned(),
        TypeKind::Named { name, absolute } => dotted(name, *absolute),
        TypeKind::Specialized { name, absolute, args } => {
            format!("{}<{}>", dotted(name, *absolute), list(args, ty))
        }
        TypeKind::Stack(t, n) => format!("{}[{}]", ty(t), expr(n)),
        TypeKind::Tuple(ts) => format!("tuple<{}>", list(ts, ty)),
        TypeKind::List(t) => format!("list<{}>", ty(t)),
    }
}

fn arg(a: &Arg) -> String {
    let value = a.value.as_ref().map_or_else(|| "_".to_owned(), expr);
    a.name.as_ref().map_or_else(|| value.clone(), |n| format!("{} = {value}", n.name))
}

pub(crate) fn expr(e: &Expr) -> String {
    match &e.kind {
        ExprKind::Int { value, width: None } => value.to_string(),
        ExprKind::Int { value, width: Some((w, signed)) } => {
            format!("{w}{}{value}", if *signed { 's' } else { 'w' })
        }
        ExprKind::Bool(b) => b.to_string(),
        ExprKind::Text(s) => format!("{s:?}"),
        ExprKind::This => "this".to_owned(),
        ExprKind::Dots => "...".to_owned(),
        ExprKind::DontCare => "_".to_owned(),
        ExprKind::Default => "default".to_owned(),
        ExprKind::Invalid => "{#}".to_owned(),
        ExprKind::Path { name, absolute } => dotted(name, *absolute),
        ExprKind::Type(t) => ty(t),
        ExprKind::Member(b, n) => format!("{}.{}", expr(b), n.name),
        ExprKind::Index(b, i) => format!("{}[{}]", expr(b), expr(i)),
        ExprKind::Slice(b, hi, lo) => format!("{}[{}:{}]", expr(b), expr(hi), expr(lo)),
        ExprKind::PlusSlice(b, lo, w) => format!("{}[{}+:{}]", expr(b), expr(lo), expr(w)),
        ExprKind::List(items) => format!("{{ {} }}", list(items, expr)),
        ExprKind::Struct { fields, rest } => {
            let mut items: Vec<String> =
                fields.iter().map(|(n, v)| format!("{} = {}", n.name, expr(v))).collect();
            items.extend(rest.then(|| "...".to_owned()));
            format!("{{ {} }}", items.join(", "))
        }
        ExprKind::Unary(op, a) => format!("({}{})", op.text(), expr(a)),
        ExprKind::Binary(op, a, b) => format!("({} {} {})", expr(a), op.text(), expr(b)),
        ExprKind::Ternary(c, a, b) => format!("({} ? {} : {})", expr(c), expr(a), expr(b)),
        ExprKind::Cast(t, a) => format!("(({}) {})", ty(t), expr(a)),
        ExprKind::Call { callee, type_args, args } => {
            let types =
                if type_args.is_empty() { String::new() } else { format!("<{}>", list(type_args, ty)) };
            format!("{}{types}({})", expr(callee), list(args, arg))
        }
        ExprKind::Mask(a, b) => format!("{} &&& {}", expr(a), expr(b)),
        ExprKind::Range(a, b) => format!("{} .. {}", expr(a), expr(b)),
    }
}

/// Prints a keyset; several keys are in parentheses.
pub(crate) fn keyset(e: &Expr) -> String {
    match &e.kind {
        ExprKind::List(items) => format!("({})", list(items, expr)),
        _ => expr(e),
    }
}

fn param(p: &Param) -> String {
    let direction = p.direction.prefix();
    let default = p.default.as_ref().map_or_else(String::new, |d| format!(" = {}", expr(d)));
    format!("{direction}{} {}{default}", ty(&p.ty), p.name.name)
}

fn params(ps: &[Param]) -> String {
    format!("({})", list(ps, param))
}

fn prototype(name: &Ident, p: &Prototype) -> String {
    let result = p.result.as_ref().map_or_else(String::new, |t| format!("{} ", ty(t)));
    format!("{result}{}{}{}", name.name, generics(&p.type_params), params(&p.params))
}

impl AstPrinter {
    fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "{}{text}", "    ".repeat(self.indent));
    }

    fn nested(&mut self, head: &str, tail: &str, body: impl FnOnce(&mut Self)) {
        self.line(&format!("{head} {{"));
        self.indent += 1;
        body(self);
        self.indent -= 1;
        self.line(&format!("}}{tail}"));
    }

    fn decl(&mut self, d: &Decl) {
        match &d.kind {
            DeclKind::Extern { .. }
            | DeclKind::ExternFunction(_)
            | DeclKind::Function { .. }
            | DeclKind::Action { .. }
            | DeclKind::Parser(_)
            | DeclKind::Control(_) => self.code(d),
            DeclKind::ObjectType { .. }
            | DeclKind::Composite { .. }
            | DeclKind::Enum { .. }
            | DeclKind::Errors(_)
            | DeclKind::MatchKinds(_)
            | DeclKind::Typedef { .. } => self.type_decl(d),
            _ => self.object(d),
        }
    }

    /// Prints a declaration that holds values or entries.
    fn object(&mut self, d: &Decl) {
        let name = &d.name.name;
        match &d.kind {
            DeclKind::Const { ty: t, value } => {
                self.line(&format!("const {} {name} = {};", ty(t), expr(value)))
            }
            DeclKind::Instance { ty: t, args, init, .. } => {
                let head = format!("{}({}) {name}", ty(t), list(args, arg));
                match init {
                    None => self.line(&format!("{head};")),
                    Some(ds) => self.nested(&format!("{head} ="), ";", |p| ds.iter().for_each(|d| p.decl(d))),
                }
            }
            DeclKind::ValueSet { ty: t, size } => {
                self.line(&format!("value_set<{}>({}) {name};", ty(t), expr(size)))
            }
            DeclKind::Table(properties) => {
                self.nested(&format!("table {name}"), "", |p| properties.iter().for_each(|x| p.property(x)));
            }
            _ => self.line(&format!("{};", variable(d))),
        }
    }

    /// Prints a declaration with a body, or the signature of one.
    fn code(&mut self, d: &Decl) {
        let name = &d.name.name;
        let head = |word: &str, type_params: &[Ident], ps: &[Param], ctor_params: &[Param]| {
            format!("{word} {name}{}{}{}", generics(type_params), params(ps), ctor(ctor_params))
        };
        match &d.kind {
            DeclKind::Extern { type_params, methods } => {
                self.nested(&format!("extern {name}{}", generics(type_params)), "", |p| {
                    for m in methods {
                        let word = if m.is_abstract { "abstract " } else { "" };
                        p.line(&format!("{word}{};", prototype(&m.name, &m.proto)));
                    }
                });
            }
            DeclKind::ExternFunction(proto) => self.line(&format!("extern {};", prototype(&d.name, proto))),
            DeclKind::Function { proto, body } => self.block(&prototype(&d.name, proto), body),
            DeclKind::Action { params: ps, body } => self.block(&head("action", &[], ps, &[]), body),
            DeclKind::Parser(p) => {
                self.nested(&head("parser", &p.type_params, &p.params, &p.ctor_params), "", |o| {
                    p.locals.iter().for_each(|l| o.decl(l));
                    p.states.iter().for_each(|s| o.state(s));
                });
            }
            DeclKind::Control(c) => {
                self.nested(&head("control", &c.type_params, &c.params, &c.ctor_params), "", |o| {
                    c.locals.iter().for_each(|l| o.decl(l));
                    o.block("apply", &c.body);
                });
            }
            _ => {}
        }
    }

    fn type_decl(&mut self, d: &Decl) {
        let name = &d.name.name;
        match &d.kind {
            DeclKind::ObjectType { kind, type_params, params: ps } => {
                self.line(&format!("{} {name}{}{};", kind.keyword(), generics(type_params), params(ps)));
            }
            DeclKind::Composite { kind, type_params, fields } => {
                let word = match kind {
                    Composite::Struct => "struct",
                    Composite::Header => "header",
                    Composite::Union => "header_union",
                };
                self.nested(&format!("{word} {name}{}", generics(type_params)), "", |p| {
                    fields.iter().for_each(|f| p.line(&format!("{} {};", ty(&f.ty), f.name.name)));
                });
            }
            DeclKind::Enum { repr, members } => {
                let repr = repr.as_ref().map_or_else(String::new, |t| format!("{} ", ty(t)));
                let member = |(n, v): &(Ident, Option<Expr>)| match v {
                    Some(v) => format!("{} = {}", n.name, expr(v)),
                    None => n.name.to_string(),
                };
                self.line(&format!("enum {repr}{name} {{ {} }}", list(members, member)));
            }
            DeclKind::Errors(ns) => self.line(&format!("error {{ {} }}", names(ns))),
            DeclKind::MatchKinds(ns) => self.line(&format!("match_kind {{ {} }}", names(ns))),
            DeclKind::Typedef { target: TypedefTarget::Type(t), distinct } => {
                self.line(&format!("{} {} {name};", if *distinct { "type" } else { "typedef" }, ty(t)));
            }
            DeclKind::Typedef { target: TypedefTarget::Decl(inner), .. } => {
                self.decl(inner);
                self.line(&format!("typedef {} {name};", inner.name.name));
            }
            _ => {}
        }
    }

    fn state(&mut self, s: &State) {
        self.nested(&format!("state {}", s.name.name), "", |p| {
            s.body.iter().for_each(|x| p.stmt(x));
            match &s.transition {
                None => {}
                Some(Transition::Direct(to)) => p.line(&format!("transition {};", to.name)),
                Some(Transition::Select { subjects, cases, .. }) => {
                    p.nested(&format!("transition select({})", list(subjects, expr)), "", |p| {
                        cases.iter().for_each(|(k, to)| p.line(&format!("{}: {};", keyset(k), to.name)));
                    });
                }
            }
        });
    }

    fn property(&mut self, p: &Property) {
        let word = if p.is_const { "const " } else { "" };
        match &p.kind {
            PropertyKind::Key(keys) => self.nested("key =", "", |o| {
                keys.iter().for_each(|k| o.line(&format!("{} : {};", expr(&k.value), k.match_kind.name)));
            }),
            PropertyKind::Actions(actions) => self.nested("actions =", "", |o| {
                actions.iter().for_each(|a: &ActionRef| o.line(&format!("{};", expr(&a.value))));
            }),
            PropertyKind::Entries(entries) => self.nested(&format!("{word}entries ="), "", |o| {
                for e in entries {
                    let priority =
                        e.priority.as_ref().map_or_else(String::new, |p| format!("priority = {}: ", expr(p)));
                    o.line(&format!("{priority}{} : {};", keyset(&e.keys), expr(&e.action.value)));
                }
            }),
            PropertyKind::Other { name, value } => {
                self.line(&format!("{word}{} = {};", name.name, expr(value)))
            }
        }
    }

    fn block(&mut self, head: &str, b: &Block) {
        self.nested(head, "", |p| b.stmts.iter().for_each(|s| p.stmt(s)));
    }

    /// Prints a statement in braces, even if it was written without.
    fn body(&mut self, head: &str, s: &Stmt) {
        self.nested(head, "", |p| match &s.kind {
            StmtKind::Block(b) => b.stmts.iter().for_each(|s| p.stmt(s)),
            _ => p.stmt(s),
        });
    }

    fn stmt(&mut self, s: &Stmt) {
        match &s.kind {
            StmtKind::If { condition, then, otherwise } => {
                self.body(&format!("if ({})", expr(condition)), then);
                if let Some(o) = otherwise {
                    self.body("else", o);
                }
            }
            StmtKind::Block(b) => self.block("", b),
            StmtKind::Switch { subject, cases } => {
                self.nested(&format!("switch ({})", expr(subject)), "", |p| {
                    for c in cases {
                        match &c.body {
                            Some(b) => p.block(&format!("{}:", expr(&c.label)), b),
                            None => p.line(&format!("{}:", expr(&c.label))),
                        }
                    }
                })
            }
            StmtKind::For { init, condition, update, body } => {
                let head =
                    format!("for ({}; {}; {})", list(init, simple), expr(condition), list(update, simple));
                self.body(&head, body);
            }
            StmtKind::ForIn { ty: t, name, from, to, body } => {
                let to = to.as_ref().map_or_else(String::new, |t| format!(" .. {}", expr(t)));
                self.body(&format!("for ({} {} in {}{to})", ty(t), name.name, expr(from)), body);
            }
            StmtKind::Decl(d) => self.decl(d),
            _ => self.line(&format!("{};", simple(s))),
        }
    }
}

fn ctor(ps: &[Param]) -> String {
    if ps.is_empty() { String::new() } else { params(ps) }
}

fn variable(d: &Decl) -> String {
    match &d.kind {
        DeclKind::Variable { ty: t, init: Some(e) } => format!("{} {} = {}", ty(t), d.name.name, expr(e)),
        DeclKind::Variable { ty: t, init: None } => format!("{} {}", ty(t), d.name.name),
        _ => d.name.name.to_string(),
    }
}

/// Prints a statement of one line, without its semicolon.
pub(crate) fn simple(s: &Stmt) -> String {
    match &s.kind {
        StmtKind::Assign { target, op, value } => {
            format!("{} {}= {}", expr(target), op.map_or("", |o| o.text()), expr(value))
        }
        StmtKind::Call(e) => expr(e),
        StmtKind::Return(Some(e)) => format!("return {}", expr(e)),
        StmtKind::Return(None) => "return".to_owned(),
        StmtKind::Exit => "exit".to_owned(),
        StmtKind::Break => "break".to_owned(),
        StmtKind::Continue => "continue".to_owned(),
        StmtKind::Decl(d) => variable(d),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use crate::diagnostics::Sink;

    fn roundtrip(text: &str) -> String {
        let mut sink = Sink::default();
        let tokens = crate::lexer::lex(text, 0, &mut sink);
        let program = crate::parser::parse(&tokens, &mut sink);
        assert!(!sink.has_errors(), "{:#?}\n{text}", sink.into_items());
        super::print(&program)
    }

    #[test]
    fn printed_text_parses_to_the_same_tree() {
        let once = roundtrip(include_str!("../tests/grammar.p4"));
        assert_eq!(once, roundtrip(&once));
        assert!(once.contains("((~v) << 2)"), "operations are in parentheses");
    }
}
