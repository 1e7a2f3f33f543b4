//! The P4_16 compiler: source text to eBPF object.
//!
//! # Stages
//!
//! preprocessor (includes, macros) → lexer → parser (the whole P4_16 grammar) → checker (names, types, constants)
//! → warnings about likely mistakes → lowering (everything inlined, SSA form) → optimiser → eBPF code generation →
//! ELF object. What the language allows and a stage cannot translate yet is refused by name and place with
//! [`diagnostics::Code::Unsupported`].
//!
//! # Promises
//!
//! - The crate does no I/O: included files come from the caller's [`Resolver`], the object is returned as bytes.
//! - No input makes it panic, hang or use unbounded memory; depth and size of everything are limited.
//! - Every object it emits is accepted by the verifier; one that is not is a bug of the compiler.
//! - The same source gives the same bytes.
//!
//! # Semantics beyond the language specification
//!
//! - A packet that the parser rejects, or that is shorter than what the parser extracts, is dropped. Headers are
//!   parsed in the header copy, so what lies beyond it counts as missing.
//! - Variables that were never written, and fields of headers that were never extracted, read as 0.
//! - A shift by the width or more gives 0 (or all sign bits), division by zero at run time gives 0.
//! - A register or counter index that does not exist reads as 0 and writes nothing.

#![forbid(unsafe_code)]

mod ast;
mod ast_print;
mod check;
mod codegen;
mod constant;
pub mod control;
mod ctypes;
pub mod diagnostics;
pub mod explain;
mod graph;
mod hir;
mod ir;
mod lexer;
mod lint;
mod lower;
mod opt;
pub mod p4info;
mod parser;
mod preprocess;
pub mod source;
mod types;

use diagnostics::{Code, Diagnostic, Diagnostics, Sink};
use source::{SourceMap, Span};

pub use control::{ActionFacts, KeyFacts, ParamFacts, TableFacts};
pub use preprocess::{Included, NoIncludes, Resolver};

/// How to compile.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Macros to define, each with its text.
    pub defines: Vec<(String, String)>,
    /// What becomes of packets that the parser rejects.
    pub reject: Reject,
}

/// What becomes of packets that a parser rejects, where the architecture does not say (`v1model` does).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reject {
    /// They are dropped.
    #[default]
    Drop,
    /// They pass unchanged, as p4c-ubpf has it. For tests that were written for it.
    Pass,
}

/// What is worth knowing about a compiled program.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// What the program was written for.
    pub architecture: control::Architecture,
    /// It sends packets to multicast groups, so that only who can replicate packets may run it.
    pub replicates: bool,
    /// Registers, counters and meters.
    pub arrays: Vec<control::ArrayFacts>,
    /// Parser value sets.
    pub value_sets: Vec<control::ValueSetFacts>,
    /// Maps, in the order of the `maps` section.
    pub maps: Vec<MapFacts>,
    /// Tables, in the order in which they are applied first.
    pub tables: Vec<TableFacts>,
    /// The tenant's own extern functions, which have to be linked.
    pub externs: Vec<String>,
    /// Instructions in all.
    pub instructions: usize,
    /// Instructions on the longest way through the program; a 64-bit constant counts as one.
    pub longest_path: usize,
}

/// A map of a compiled program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapFacts {
    /// Its symbol.
    pub name: String,
    /// As the object declares it.
    pub definition: p4shield_abi::map::MapDefinition,
    /// Entries that are installed at load.
    pub initial_entries: usize,
}

/// A compiled program.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The ELF object.
    pub object: Vec<u8>,
    /// Warnings only.
    pub warnings: Diagnostics,
    /// The code as text, with source lines as comments.
    pub asm: String,
    /// The optimised intermediate representation as text.
    pub ir: String,
    /// The syntax tree as P4 text, macros and includes resolved and every operator in parentheses.
    pub ast: String,
    /// The flow of parsers and controls, in the DOT language of Graphviz.
    pub graph: String,
    /// A C header that declares the tenant's own extern functions and the types that they exchange; empty if the
    /// program calls none.
    pub c_header: String,
    /// Maps, tables and sizes.
    pub facts: Facts,
}

/// Compiles a program. `name` stands in messages and is the `from` of includes.
///
/// # Errors
/// All diagnostics, if there is an error among them.
pub fn compile(
    name: &str,
    text: &str,
    resolver: &dyn Resolver,
    options: &Options,
) -> Result<Compiled, Diagnostics> {
    let mut sources = SourceMap::default();
    let mut sink = Sink::default();
    let Some(front) = front_end(name, text, resolver, options, &mut sources, &mut sink) else {
        return Err(Diagnostics::new(sources, sink.into_items()));
    };
    let mut lowered = lower::lower(&front.hir, front.end, options.reject, &mut sink);
    if sink.has_errors() {
        return Err(Diagnostics::new(sources, sink.into_items()));
    }
    let f = &mut lowered.function;
    opt::optimise(f);
    let replicates = lowered.multicast.filter(|_| lower::replicates(f));
    let ir = ir::print::print(f);
    let program = codegen::generate(f, front.end, &mut sink);
    let object = codegen::elf::write(&program, f, &sources, replicates);
    let object = object.unwrap_or_else(|e| {
        sink.add(
            Diagnostic::new(Code::Internal, front.end, format!("internal error: {e}"))
                .hint("please report this"),
        );
        Vec::new()
    });
    if sink.has_errors() {
        return Err(Diagnostics::new(sources, sink.into_items()));
    }
    let asm = codegen::asm::listing(&program, f, &sources);
    let map = |m: &ir::Map| MapFacts {
        name: m.name.clone(),
        definition: m.definition,
        initial_entries: m.entries.len(),
    };
    let facts = Facts {
        architecture: lowered.architecture,
        replicates: replicates.is_some(),
        arrays: lowered.arrays,
        value_sets: lowered.value_sets,
        maps: f.maps.iter().map(map).collect(),
        tables: lowered.tables,
        externs: lowered.externs.into_iter().collect(),
        instructions: program.insns.len(),
        longest_path: codegen::longest_path(&program.insns),
    };
    let (ast, graph) = (ast_print::print(&front.ast), graph::draw(&front.ast));
    let warnings = Diagnostics::new(sources, sink.into_items());
    Ok(Compiled { object, warnings, asm, ir, ast, graph, c_header: lowered.c_header, facts })
}

/// Finds everything that is wrong with a program, without generating code.
#[must_use]
pub fn check(name: &str, text: &str, resolver: &dyn Resolver, options: &Options) -> Diagnostics {
    let mut sources = SourceMap::default();
    let mut sink = Sink::default();
    if let Some(front) = front_end(name, text, resolver, options, &mut sources, &mut sink) {
        // A file without `main`, such as one that others include, is right as it is.
        if front.hir.main.is_some() {
            lower::lower(&front.hir, front.end, options.reject, &mut sink);
        }
    }
    Diagnostics::new(sources, sink.into_items())
}

/// What the front end makes of a program without errors.
struct FrontEnd {
    ast: ast::Program,
    hir: hir::Program,
    /// The end of the program's own file.
    end: Span,
}

fn front_end(
    name: &str,
    text: &str,
    resolver: &dyn Resolver,
    options: &Options,
    sources: &mut SourceMap,
    sink: &mut Sink,
) -> Option<FrontEnd> {
    let tokens = preprocess::preprocess(name, text, &options.defines, resolver, sources, sink);
    let end = tokens.last().map(|t| t.span).unwrap_or_default();
    let ast = parser::parse(&tokens, sink);
    let hir = check::check(&ast, sink);
    if sink.has_errors() {
        return None;
    }
    lint::lint(&hir, sink);
    Some(FrontEnd { ast, hir, end })
}
