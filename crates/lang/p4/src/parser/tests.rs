use super::*;
use crate::ast::{BinaryOp, DeclKind, ExprKind, StmtKind};
use crate::lexer::lex;

fn run(text: &str) -> (Program, Vec<Diagnostic>) {
    let mut sink = Sink::default();
    let tokens = lex(text, 0, &mut sink);
    let program = parse(&tokens, &mut sink);
    (program, sink.into_items())
}

fn value(text: &str) -> ExprKind {
    let (p, errors) = run(&format!("typedef bit<8> T; const int X = {text};"));
    assert!(errors.is_empty(), "{text}: {errors:?}");
    match p.decls.into_iter().nth(1).map(|d| d.kind) {
        Some(DeclKind::Const { value, .. }) => value.kind,
        other => panic!("{other:?}"),
    }
}

#[test]
fn operators_bind_as_specified() {
    // In P4 `&`, `|` and `^` bind tighter than comparisons, unlike in C.
    let ExprKind::Binary(BinaryOp::Eq, l, _) = value("a & b == c") else { panic!() };
    assert!(matches!(l.kind, ExprKind::Binary(BinaryOp::BitAnd, ..)));
    let ExprKind::Binary(BinaryOp::Sub, l, _) = value("a - b - c") else { panic!() };
    assert!(matches!(l.kind, ExprKind::Binary(BinaryOp::Sub, ..)));
    assert!(matches!(value("a >> 2"), ExprKind::Binary(BinaryOp::Shr, ..)));
    assert!(matches!(value("a ? b : c ? d : e"), ExprKind::Ternary(..)));
}

#[test]
fn casts_are_distinguished_from_parentheses() {
    assert!(matches!(value("(T) -x"), ExprKind::Cast(..)));
    assert!(matches!(value("(a) - x"), ExprKind::Binary(BinaryOp::Sub, ..)));
    assert!(matches!(value("(bit<8>) x"), ExprKind::Cast(..)));
    assert!(matches!(value("(bit<(1 + 7)>) x"), ExprKind::Cast(..)));
    assert!(matches!(value("a < b"), ExprKind::Binary(BinaryOp::Lt, ..)));
    assert!(matches!(value("f<T>(x)"), ExprKind::Call { .. }));
    assert!(matches!(value("f<tuple<bit<8>>>({x})"), ExprKind::Call { .. }));
}

#[test]
fn whole_grammar_is_accepted() {
    let (_, errors) = run(include_str!("../../tests/grammar.p4"));
    assert!(errors.is_empty(), "{errors:#?}");
}

#[test]
fn several_mistakes_are_reported_in_one_run() {
    let text =
        "control c() { apply { x = ; y = 1; z = = 2; if (a { } } }\nstruct S { bit<8> }\nconst bit<8> A = 1;";
    let (p, errors) = run(text);
    assert!(errors.len() >= 3, "{errors:#?}");
    assert!(p.decls.iter().any(|d| &*d.name.name == "A"), "the parser resumes after errors");
}

#[test]
fn a_missing_semicolon_is_shown_where_it_belongs() {
    let (_, errors) = run("const bit<8> A = 1\nconst bit<8> B = 2;");
    assert_eq!(errors.len(), 1);
    assert_eq!((errors[0].span.start, errors[0].span.end), (18, 18));
}

#[test]
fn shift_assignment_is_one_operator() {
    let (p, errors) = run("control c() { apply { a >>= 2; b |+|= 1; } }");
    assert!(errors.is_empty(), "{errors:?}");
    let DeclKind::Control(c) = &p.decls[0].kind else { panic!() };
    assert!(matches!(c.body.stmts[0].kind, StmtKind::Assign { op: Some(BinaryOp::Shr), .. }));
    assert!(matches!(c.body.stmts[1].kind, StmtKind::Assign { op: Some(BinaryOp::AddSat), .. }));
}

#[test]
fn depth_is_bounded() {
    for (open, close) in [("(", ")"), ("{", "}"), ("-", ""), ("a + ", "1"), ("a.b[", "]")] {
        let text = format!("const int X = {}1{};", open.repeat(50_000), close.repeat(50_000));
        assert!(run(&text).1.iter().any(|d| matches!(d.code, Code::TooDeep | Code::Syntax)), "{open}");
    }
    let (_, e) = run(&format!("control c() {{ apply {{ {} }} }}", "if (a) ".repeat(10_000)));
    assert!(!e.is_empty());
}
