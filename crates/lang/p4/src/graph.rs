//! The control flow of a program as Graphviz text (the DOT language), for `--emit graph`: a cluster
//! for each parser, with its states and select expressions, and for each control, with its
//! conditions, tables and the statements between them.
//!
//! It is drawn from the syntax tree, so it shows the author's names and none of the compiler's
//! transformations.

use crate::ast::{Block, ControlDecl, Decl, DeclKind, Expr, ExprKind, ParserDecl, Program, PropertyKind};
use crate::ast::{Stmt, StmtKind, SwitchCase, Transition};
use crate::ast_print::{expr, keyset, list, simple};
use crate::lexer::Name;
use std::collections::HashMap;
use std::fmt::Write;

/// The number of a node.
type NodeId = usize;

/// Edges without a target yet: source nodes and edge labels.
type OpenEdges = Vec<(NodeId, String)>;

/// Draws the whole program.
pub(crate) fn draw(program: &Program) -> String {
    let mut graph = DotGraph::default();
    graph.line("digraph program {");
    graph.line("    node [shape=box, fontname=monospace];");
    graph.line("    edge [fontname=monospace];");
    for decl in &program.decls {
        match &decl.kind {
            DeclKind::Parser(parser) => graph.cluster("parser", decl, |g| g.parser(parser)),
            DeclKind::Control(control) => graph.cluster("control", decl, |g| g.control(control)),
            _ => {}
        }
    }
    graph.line("}");
    graph.out
}

#[derive(Default)]
struct DotGraph {
    out: String,
    nodes: NodeId,
    clusters: usize,
    /// Tables of the current control, with their labels.
    tables: HashMap<Name, String>,
    /// The enclosing loops, innermost last.
    loops: Vec<LoopEdges>,
    /// The end node of the current control, also the target of `exit`.
    end: NodeId,
}

/// The open edges of a loop.
#[derive(Default)]
struct LoopEdges {
    /// Edges of `continue`.
    next: OpenEdges,
    /// Edges of `break`.
    left: OpenEdges,
}

/// Escapes text for a quoted label; lines are left-aligned.
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    if escaped.contains('\n') { escaped.replace('\n', "\\l") + "\\l" } else { escaped }
}

impl DotGraph {
    fn line(&mut self, text: &str) {
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn cluster(&mut self, word: &str, decl: &Decl, draw: impl FnOnce(&mut Self)) {
        let _ = writeln!(self.out, "    subgraph cluster_{} {{", self.clusters);
        self.clusters += 1;
        let _ = writeln!(self.out, "        label=\"{word} {}\";", quoted(&decl.name.name));
        draw(self);
        self.line("    }");
    }

    fn node(&mut self, shape: &str, text: &str) -> NodeId {
        let node = self.nodes;
        self.nodes += 1;
        let _ = writeln!(self.out, "        n{node} [shape={shape}, label=\"{}\"];", quoted(text));
        node
    }

    fn edge(&mut self, from: NodeId, to: NodeId, text: &str) {
        let label = if text.is_empty() { String::new() } else { format!(" [label=\"{}\"]", quoted(text)) };
        let _ = writeln!(self.out, "        n{from} -> n{to}{label};");
    }

    /// Connects open edges to a node.
    fn join(&mut self, open: OpenEdges, to: NodeId) {
        open.into_iter().for_each(|(from, text)| self.edge(from, to, &text));
    }

    /// Adds a node and connects open edges to it.
    fn step(&mut self, open: OpenEdges, shape: &str, text: &str) -> NodeId {
        let node = self.node(shape, text);
        self.join(open, node);
        node
    }

    fn parser(&mut self, parser: &ParserDecl) {
        let states: Vec<(Name, NodeId)> = parser
            .states
            .iter()
            .map(|s| {
                let lines = s.body.iter().map(line_of).filter(|l| !l.is_empty());
                let text: Vec<String> = std::iter::once(s.name.name.to_string()).chain(lines).collect();
                (s.name.name.clone(), self.node("box", &text.join("\n")))
            })
            .collect();
        let [accept, reject] = ["accept", "reject"].map(|text| self.node("ellipse", text));
        let find = |name: &str| match name {
            "accept" => accept,
            // The checker has refused unknown states.
            _ => states.iter().find(|(n, _)| &**n == name).map_or(reject, |(_, node)| *node),
        };
        for (state, (_, from)) in parser.states.iter().zip(&states) {
            match &state.transition {
                None => self.edge(*from, reject, ""),
                Some(Transition::Direct(to)) => self.edge(*from, find(&to.name), ""),
                Some(Transition::Select { subjects, cases, .. }) => {
                    let select = self.step(vec![(*from, String::new())], "diamond", &list(subjects, expr));
                    for (key, to) in cases {
                        self.edge(select, find(&to.name), &keyset(key));
                    }
                    if !cases.iter().any(|(key, _)| takes_all(key)) {
                        self.edge(select, reject, "no case");
                    }
                }
            }
        }
    }

    fn control(&mut self, control: &ControlDecl) {
        self.tables = control.locals.iter().filter_map(table).collect();
        let start = self.node("ellipse", "apply");
        self.end = self.node("ellipse", "end");
        let open = self.block(&control.body, vec![(start, String::new())]);
        self.join(open, self.end);
    }

    /// Draws a block. Statements other than tables and decisions share a node with those that follow.
    fn block(&mut self, block: &Block, mut open: OpenEdges) -> OpenEdges {
        let mut lines = Vec::new();
        for statement in &block.stmts {
            if is_plain(statement) && self.applied(statement).is_none() {
                lines.push(line_of(statement));
            } else {
                open = self.lines(&mut lines, open);
                open = self.statement(statement, open);
            }
        }
        self.lines(&mut lines, open)
    }

    /// Adds a node for these lines, if there are any.
    fn lines(&mut self, lines: &mut Vec<String>, open: OpenEdges) -> OpenEdges {
        let text = std::mem::take(lines).into_iter().filter(|l| !l.is_empty()).collect::<Vec<_>>().join("\n");
        if text.is_empty() { open } else { vec![(self.step(open, "box", &text), String::new())] }
    }

    fn statement(&mut self, statement: &Stmt, open: OpenEdges) -> OpenEdges {
        match &statement.kind {
            StmtKind::Block(block) => self.block(block, open),
            StmtKind::If { condition, then, otherwise } => {
                let node = self.step(open, "diamond", &expr(condition));
                let mut after = self.statement(then, vec![(node, "true".to_owned())]);
                let other = vec![(node, "false".to_owned())];
                after.extend(match otherwise {
                    Some(otherwise) => self.statement(otherwise, other),
                    None => other,
                });
                after
            }
            StmtKind::Switch { subject, cases } => self.switch(subject, cases, open),
            StmtKind::For { init, condition, update, body } => {
                let open = self.lines(&mut init.iter().map(simple).collect(), open);
                let node = self.step(open, "diamond", &expr(condition));
                self.repeat(node, body, update)
            }
            StmtKind::ForIn { name, from, to, body, .. } => {
                let to = to.as_ref().map_or_else(String::new, |to| format!(" .. {}", expr(to)));
                let node = self.step(open, "diamond", &format!("{} in {}{to}", name.name, expr(from)));
                self.repeat(node, body, &[])
            }
            StmtKind::Return(_) | StmtKind::Exit => {
                let node = self.step(open, "box", &simple(statement));
                self.edge(node, self.end, "");
                OpenEdges::new()
            }
            StmtKind::Break => self.leave(open, |l| &mut l.left),
            StmtKind::Continue => self.leave(open, |l| &mut l.next),
            _ => match self.applied(statement) {
                Some(table) => vec![(self.step(open, "cylinder", &table), String::new())],
                None => self.lines(&mut vec![line_of(statement)], open),
            },
        }
    }

    fn switch(&mut self, subject: &Expr, cases: &[SwitchCase], open: OpenEdges) -> OpenEdges {
        let node = self.step(open, "diamond", &expr(subject));
        let (mut after, mut labels) = (OpenEdges::new(), Vec::new());
        for case in cases {
            labels.push(expr(&case.label));
            // A label without a block falls through to the next block.
            if let Some(block) = &case.body {
                after.extend(self.block(block, vec![(node, std::mem::take(&mut labels).join(", "))]));
            }
        }
        if !cases.iter().any(|c| matches!(c.label.kind, ExprKind::Default)) {
            labels.push("no case".to_owned());
        }
        if !labels.is_empty() {
            after.push((node, labels.join(", ")));
        }
        after
    }

    /// Draws the rest of a loop whose condition is `node`.
    fn repeat(&mut self, node: NodeId, body: &Stmt, update: &[Stmt]) -> OpenEdges {
        self.loops.push(LoopEdges { next: OpenEdges::new(), left: vec![(node, "false".to_owned())] });
        let mut next = self.statement(body, vec![(node, "true".to_owned())]);
        let LoopEdges { next: continued, left } = self.loops.pop().unwrap_or_default();
        next.extend(continued);
        let again = self.lines(&mut update.iter().map(simple).collect(), next);
        self.join(again, node);
        left
    }

    /// Draws `break` or `continue`.
    fn leave(&mut self, open: OpenEdges, to: impl FnOnce(&mut LoopEdges) -> &mut OpenEdges) -> OpenEdges {
        // The checker has refused it outside of a loop.
        if let Some(inner) = self.loops.last_mut() {
            to(inner).extend(open);
        }
        OpenEdges::new()
    }

    /// Returns the label of the table that a statement applies.
    fn applied(&self, statement: &Stmt) -> Option<String> {
        let StmtKind::Call(call) = &statement.kind else { return None };
        let ExprKind::Call { callee, .. } = &call.kind else { return None };
        let ExprKind::Member(object, method) = &callee.kind else { return None };
        let ExprKind::Path { name, .. } = &object.kind else { return None };
        (&*method.name == "apply").then(|| self.tables.get(&name.name).cloned()).flatten()
    }
}

/// Whether a statement has no effect on the control flow.
const fn is_plain(statement: &Stmt) -> bool {
    matches!(
        statement.kind,
        StmtKind::Empty | StmtKind::Assign { .. } | StmtKind::Call(_) | StmtKind::Decl(_)
    )
}

/// Prints a statement of a state, or between decisions, on one line.
fn line_of(statement: &Stmt) -> String {
    match &statement.kind {
        StmtKind::If { condition, .. } => format!("if ({}) ...", expr(condition)),
        StmtKind::Block(block) => block.stmts.iter().map(line_of).collect::<Vec<_>>().join("\n"),
        _ => simple(statement),
    }
}

/// Whether a keyset matches every value.
fn takes_all(key: &Expr) -> bool {
    match &key.kind {
        ExprKind::Default | ExprKind::DontCare | ExprKind::Dots => true,
        ExprKind::List(keys) => keys.iter().all(takes_all),
        _ => false,
    }
}

/// Returns the name of a table and its label with keys and actions.
fn table(decl: &Decl) -> Option<(Name, String)> {
    let DeclKind::Table(properties) = &decl.kind else { return None };
    let mut text = format!("table {}", decl.name.name);
    for property in properties {
        match &property.kind {
            PropertyKind::Key(keys) => {
                for key in keys {
                    let _ = write!(text, "\n{}: {}", expr(&key.value), key.match_kind.name);
                }
            }
            PropertyKind::Actions(actions) => {
                let _ = write!(text, "\n{{ {} }}", list(actions, |a| expr(&a.value)));
            }
            PropertyKind::Entries(_) | PropertyKind::Other { .. } => {}
        }
    }
    Some((decl.name.name.clone(), text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::Sink;
    use std::collections::HashSet;

    fn graph(text: &str) -> String {
        let mut sink = Sink::default();
        let tokens = crate::lexer::lex(text, 0, &mut sink);
        let program = crate::parser::parse(&tokens, &mut sink);
        assert!(!sink.has_errors(), "{:#?}\n{text}", sink.into_items());
        draw(&program)
    }

    /// Returns the edges as `from -label-> to`, by the first lines of nodes.
    fn edges(graph: &str) -> Vec<String> {
        let label = |line: &str| {
            let text = line.split_once("label=\"").map_or("", |(_, text)| text);
            text.split("\"]").next().unwrap_or_default().split("\\l").next().unwrap_or_default().to_owned()
        };
        let number = |word: &str| word.trim_matches(|c: char| !c.is_ascii_digit()).to_owned();
        let (drawn, nodes): (Vec<&str>, Vec<&str>) =
            graph.lines().filter(|l| l.starts_with("        n")).partition(|l| l.contains(" -> "));
        let nodes: HashMap<_, _> =
            nodes.iter().map(|l| (number(l.split(" [").next().unwrap()), label(l))).collect();
        let edge = |line: &&str| {
            let (from, to) = line.split(" [label").next().unwrap().split_once(" -> ").unwrap();
            format!("{} -{}-> {}", nodes[&number(from)], label(line), nodes[&number(to)])
        };
        drawn.iter().map(edge).collect()
    }

    #[test]
    fn states_and_selects_are_nodes() {
        let text = "parser P(packet_in p) {
            state start { p.extract(h); transition select(h.kind) { 1: next; 2 &&& 6: accept; } }
            state next { transition select(h.a, h.b) { (1, _): start; default: accept; } }
            state unused { }
        }";
        let expected = [
            "start --> h.kind",
            "h.kind -1-> next",
            "h.kind -2 &&& 6-> accept",
            "h.kind -no case-> reject",
            "next --> h.a, h.b",
            "h.a, h.b -(1, _)-> start",
            "h.a, h.b -default-> accept",
            "unused --> reject",
        ];
        assert_eq!(edges(&graph(text)), expected);
    }

    #[test]
    fn decisions_and_tables_are_nodes_and_the_rest_shares_one() {
        let text = "control C(inout bit<8> x) {
            action a() { x = 1; }
            table t { key = { x : exact; } actions = { a; } }
            apply {
                x = 2; x = 3;
                if (x == 4) { t.apply(); } else { return; }
                switch (t.apply().action_run) { a: { x = 5; } }
                for (bit<8> i = 0; i < 9; i = i + 1) {
                    if (x == 6) { break; } if (x == 7) { continue; } x = 8; }
            }
        }";
        let expected = [
            "apply --> x = 2",
            "x = 2 --> (x == 4)",
            "(x == 4) -true-> table t",
            "(x == 4) -false-> return",
            "return --> end",
            "table t --> t.apply().action_run",
            "t.apply().action_run -a-> x = 5",
            "x = 5 --> bit<8> i = 0",
            "t.apply().action_run -no case-> bit<8> i = 0",
            "bit<8> i = 0 --> (i < 9)",
            "(i < 9) -true-> (x == 6)",
            "(x == 6) -false-> (x == 7)",
            "(x == 7) -false-> x = 8",
            "x = 8 --> i = (i + 1)",
            "(x == 7) -true-> i = (i + 1)",
            "i = (i + 1) --> (i < 9)",
            "(i < 9) -false-> end",
            "(x == 6) -true-> end",
        ];
        assert_eq!(edges(&graph(text)), expected);
    }

    #[test]
    fn labels_are_escaped() {
        let drawn = graph(include_str!("../tests/grammar.p4"));
        assert!(drawn.matches('{').count() >= 3);
        let declared: HashSet<&str> = drawn
            .lines()
            .filter(|l| l.contains(" [shape="))
            .filter_map(|l| l.trim().split(' ').next())
            .collect();
        for line in drawn.lines().filter(|l| l.contains(" -> ")) {
            let nodes = line.trim().trim_end_matches(';').split(" [label").next().unwrap();
            assert!(nodes.split(" -> ").all(|n| declared.contains(n)), "{line}");
        }
        assert_eq!(quoted("log(\"a\\b\")\nx"), "log(\\\"a\\\\b\\\")\\lx\\l");
    }
}
