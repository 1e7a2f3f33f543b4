//! The P4_16 compiler: source text to eBPF object.
//!
//! # Stages
//!
//! preprocessor (includes, macros) → lexer → parser (the whole P4_16 grammar) → checker (names, types,
//! constants) → lints (warnings about likely mistakes) → lowering (inlines everything, emits SSA form) →
//! optimiser → eBPF code generation → ELF object. A construct that the language allows but a stage cannot
//! translate yet is reported with its location as [`diagnostics::Code::Unsupported`].
//!
//! A reader follows a program through `preprocess`, `parser`, `check`, `lint`, `lower`, `opt` and
//! `codegen`, in this order; `ast`, `hir` and `ir` define the data that passes between them.
//!
//! # Promises
//!
//! - The crate does no I/O: the caller's [`Resolver`] supplies included files, and [`compile`]
//!   returns the object as bytes.
//! - No input makes it panic, hang or use unbounded memory: every stage limits depth and size.
//! - The verifier accepts every object that the compiler emits, except those that are too long for it, of
//!   which the compiler warns; any other refused object is a compiler bug.
//! - The same source gives the same bytes.
//!
//! # Semantics beyond the language specification
//!
//! - A packet is dropped if the parser rejects it, or if it is shorter than the headers that the parser
//!   extracts. The parser reads the header copy only, so bytes beyond the copy count as missing.
//! - Unwritten variables and the fields of headers that were never extracted read as 0.
//! - A shift by the width or more gives 0 (or all sign bits), division by zero at run time gives 0.
//! - A read at a register or counter index out of range gives 0; a write there has no effect.

#![forbid(unsafe_code)]

mod ast;
mod ast_print;
mod check;
mod codegen;
mod constant;
mod control_names;
mod ctypes;
pub mod diagnostics;
#[cfg(test)]
#[path = "../tests/evaluator/mod.rs"]
mod evaluator;
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

use diagnostics::{Code, Diagnostics, Sink};
use lower::Settings;
use p4shield_abi::division::MAX_BLOCK_SIZE;
use p4shield_abi::object::need;
use p4shield_tables::model;
use p4shield_tables::trace::TracePoint;
use source::{SourceMap, Span};

pub use preprocess::{Included, NoIncludes, Resolver, built_in_files};

/// Compiler options.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Macros to define: names and replacement texts.
    pub defines: Vec<(String, String)>,
    /// The fate of packets that the parser rejects.
    pub reject: Reject,
    /// True if the program records what each run does ([`p4shield_abi::trace`]). It does the same otherwise,
    /// and is longer.
    pub trace: bool,
    /// Where functions run that the source marks with `@compartment`.
    pub placement: Placement,
}

/// Where functions run that a program's source marks with `@compartment`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// In the program, as any other function.
    #[default]
    Inline,
    /// In a compartment: the program is divided at each call ([`p4shield_abi::call`]), and
    /// [`Compiled::functions`] calls them.
    Extern,
}

/// The fate of packets that a parser rejects, for architectures that do not specify it (`v1model` does).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reject {
    /// The packets are dropped.
    #[default]
    Drop,
    /// The packets pass unchanged, as with p4c-ubpf. Needed by tests that were written for it.
    Pass,
}

/// Properties of a compiled program.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The architecture that the program targets.
    pub architecture: model::Architecture,
    /// The program is divided ([`p4shield_abi::division`]): it multicasts, clones, resubmits or recirculates
    /// packets, or reads how long they waited in queues.
    pub divided: bool,
    /// Registers, counters and meters.
    pub arrays: Vec<model::ArrayFacts>,
    /// Parser value sets.
    pub value_sets: Vec<model::ValueSetFacts>,
    /// Maps, in the order of the `maps` section.
    pub maps: Vec<MapFacts>,
    /// Tables, in the order of their first application.
    pub tables: Vec<model::TableFacts>,
    /// The tenant's own extern functions, which must be linked.
    pub externs: Vec<String>,
    /// Those of them that run in a compartment, by their number there; they must be linked with
    /// [`Compiled::functions`].
    pub placed: Vec<String>,
    /// Bytes of the longest message to them ([`p4shield_abi::call`]); 0 without such functions.
    pub longest_message: usize,
    /// Number of instructions.
    pub instructions: usize,
    /// Instructions on the longest path through the program; a 64-bit constant counts as one.
    pub longest_path: usize,
    /// The declaration that most of the code comes from; `None` if no code comes from one.
    pub largest: Option<LargestPart>,
}

/// An action, function, control or parser, with everything inlined into it from elsewhere left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LargestPart {
    /// Its name.
    pub name: String,
    /// File and line.
    pub place: String,
    /// The number of its instructions, in all copies of it.
    pub instructions: usize,
}

/// A map of a compiled program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapFacts {
    /// The map's symbol.
    pub name: String,
    /// The definition that the object declares.
    pub definition: p4shield_abi::map::MapDefinition,
    /// Number of entries that are installed at load.
    pub initial_entries: usize,
}

/// A compiled program.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The ELF object.
    pub object: Vec<u8>,
    /// The ELF object of the compartment's program ([`p4shield_abi::call`]), if the program calls functions
    /// in one. Their object has to be linked with it.
    pub functions: Option<Vec<u8>>,
    /// Warnings only.
    pub warnings: Diagnostics,
    /// The code as text, with the source lines as comments.
    pub asm: String,
    /// The optimised intermediate representation as text.
    pub ir: String,
    /// The syntax tree as P4 text: macros and includes resolved, every operation in parentheses.
    pub ast: String,
    /// The control flow of parsers and controls, in the DOT language of Graphviz.
    pub graph: String,
    /// A C header with the tenant's own extern functions and the types of their parameters; empty
    /// if the program calls none.
    pub c_header: String,
    /// Maps, tables and sizes.
    pub facts: Facts,
}

/// Compiles a program. Messages refer to it as `name`, which is also the `from` of its includes.
///
/// # Errors
/// All diagnostics, if at least one of them is an error.
pub fn compile(
    name: &str,
    text: &str,
    resolver: &dyn Resolver,
    options: &Options,
) -> Result<Compiled, Diagnostics> {
    let (front, sources, mut sink) = front_end(name, text, resolver, options);
    let Some(front) = front else { return Err(sink.finish(sources)) };
    let Some(Generated { lowered, program, ir, object, functions, divided }) =
        generate_to_fit(&front, options, &sources, &mut sink)
    else {
        return Err(sink.finish(sources));
    };
    let f = &lowered.function;
    let largest = codegen::size::largest(&program, &front.ast);
    codegen::size::warn(&program, largest.as_ref(), &front.ast, front.end, &mut sink);
    let largest = largest.map(|l| LargestPart {
        name: l.name.to_string(),
        place: {
            let (file, at) = sources.locate(l.at);
            format!("{file}:{}", at.line)
        },
        instructions: l.instructions,
    });
    let asm = codegen::asm::listing(&program, f, &sources);
    let map = |m: &ir::Map| MapFacts {
        name: m.name.clone(),
        definition: m.definition,
        initial_entries: m.entries.len(),
    };
    let facts = Facts {
        architecture: lowered.architecture,
        divided,
        arrays: lowered.arrays,
        value_sets: lowered.value_sets,
        maps: f.maps.iter().map(map).collect(),
        tables: lowered.tables,
        externs: lowered.externs.into_iter().collect(),
        placed: lowered.placed.iter().map(|f| f.name.to_string()).collect(),
        longest_message: lowered.placed.iter().map(|f| f.length as usize).max().unwrap_or(0),
        instructions: program.insns.len(),
        longest_path: codegen::longest_path(&program.insns),
        largest,
    };
    let (ast, graph) = (ast_print::print(&front.ast), graph::draw(&front.ast));
    let warnings = sink.finish(sources);
    Ok(Compiled { object, functions, warnings, asm, ir, ast, graph, c_header: lowered.c_header, facts })
}

/// The back end's result.
struct Generated {
    lowered: lower::Lowered,
    program: codegen::MachineCode,
    ir: String,
    object: Vec<u8>,
    functions: Option<Vec<u8>>,
    divided: bool,
}

/// Generates code. A program that is too long to load gets fewer iterations of parser loops that have no
/// bound of their own, if it fits then: it is of more use than one that no P4 VM loads.
fn generate_to_fit(
    front: &FrontEnd,
    options: &Options,
    sources: &SourceMap,
    sink: &mut Sink,
) -> Option<Generated> {
    let mut first = None;
    for part in [1, 2, 4, 8] {
        let mut own = Sink::default();
        let settings = Settings { rounds: lower::MAX_ROUNDS / part, ..Settings::of(options) };
        let made = generate(front, settings, sources, &mut own);
        let (long, cut) =
            made.as_ref().map_or((false, false), |(made, long)| (*long, made.lowered.cut_parser));
        if !long {
            first = Some((own, made));
            break;
        }
        first.get_or_insert((own, made));
        if !cut {
            break;
        }
    }
    let (own, made) = first?;
    own.into_items().into_iter().for_each(|d| sink.add(d));
    made.map(|(made, _)| made).filter(|_| !sink.has_errors())
}

/// Generates code. Also returns whether the program is too long to load.
fn generate(
    front: &FrontEnd,
    settings: Settings,
    sources: &SourceMap,
    sink: &mut Sink,
) -> Option<(Generated, bool)> {
    let mut lowered = lower::lower(&front.hir, front.end, settings, sink);
    if sink.has_errors() {
        return None;
    }
    let f = &mut lowered.function;
    let carried = opt::Carried { block: lowered.block, calls: lowered.calls };
    let divided = opt::optimise(f, carried).unwrap_or_else(|e| {
        report_suspension(e, front.end, sink);
        false
    });
    if sink.has_errors() {
        return None;
    }
    let size = |map: Option<ir::MapId>| map.map_or(0, |m| f.maps[m.0 as usize].definition.value_size);
    let (block, calls) = (size(lowered.block), size(lowered.calls));
    if block as usize > MAX_BLOCK_SIZE {
        let message = format!("the program needs {block} bytes for values that egress takes from ingress");
        let hint = "use smaller headers and less metadata in egress";
        sink.report(Code::TooLarge, front.end, message, hint);
    }
    if calls as usize > MAX_BLOCK_SIZE {
        let first = lowered.needs.iter().find(|(need, _)| *need == need::CALLS);
        let at = first.map_or(front.end, |(_, span)| *span);
        let message = format!(
            "a call in a compartment keeps {calls} bytes of message and values; {MAX_BLOCK_SIZE} are the most"
        );
        sink.report(
            Code::TooLarge,
            at,
            message,
            "compute what is needed behind the call there, or keep less",
        );
    }
    let is_met = |(need, _): &&(u32, Span)| divided || *need == need::CALLS;
    let needs: Vec<_> = lowered.needs.iter().filter(is_met).copied().collect();
    let ir = ir::print::print(f);
    let stack = codegen::size::long_stack(&front.ast);
    let program = codegen::generate(f, front.end, stack.as_ref(), sink);
    let schema = codegen::schema::describe(&lowered);
    let f = &lowered.function;
    let points: Vec<_> = lowered.points.iter().map(|p| point(p, sources)).collect();
    let object = codegen::elf::write(&program, f, sources, &schema, &needs, &points);
    let object = object.unwrap_or_else(|e| {
        sink.report(Code::Internal, front.end, format!("internal error: {e}"), "please report this");
        Vec::new()
    });
    let long = codegen::size::is_too_long(&program);
    let functions = (!lowered.placed.is_empty()).then(|| functions(&lowered, front.end, sources, sink));
    Some((Generated { lowered, program, ir, object, functions, divided }, long))
}

/// Reports why a program cannot be divided at its calls.
fn report_suspension(e: opt::SuspendError, end: Span, sink: &mut Sink) {
    match e {
        opt::SuspendError::Address(at) => {
            sink.unsupported(at, "a call in a compartment while the program uses an entry found here");
        }
        opt::SuspendError::TooMany => {
            let hint = "call functions in a compartment from fewer places";
            sink.report(Code::TooLarge, end, "the program has too many calls in a compartment", hint);
        }
    }
}

/// Generates the object of the compartment's program.
fn functions(lowered: &lower::Lowered, end: Span, sources: &SourceMap, sink: &mut Sink) -> Vec<u8> {
    let mut f = lower::compartment(&lowered.placed);
    // It has no call of its own.
    let _ = opt::optimise(&mut f, opt::Carried::default());
    let program = codegen::generate(&mut f, end, None, sink);
    let schema = p4shield_abi::schema::Schema::default();
    codegen::elf::write(&program, &f, sources, &schema, &[], &[]).unwrap_or_else(|e| {
        sink.report(Code::Internal, end, format!("internal error: {e}"), "please report this");
        Vec::new()
    })
}

/// Returns a trace point with its place as text.
fn point(draft: &lower::PointDraft, sources: &SourceMap) -> TracePoint {
    let (file, at) = sources.locate(draft.at);
    let text = || sources.text(draft.at).split_whitespace().collect::<Vec<_>>().join(" ");
    let name = draft.name.clone().unwrap_or_else(text);
    let place = format!("{file}:{}", at.line);
    TracePoint { kind: draft.kind, name, place, values: draft.values.clone() }
}

/// Reports all errors and warnings of a program, without generating code.
#[must_use]
pub fn check(name: &str, text: &str, resolver: &dyn Resolver, options: &Options) -> Diagnostics {
    let (front, sources, mut sink) = front_end(name, text, resolver, options);
    // A file without `main` is valid: other files may include it.
    if let Some(front) = front.filter(|f| f.hir.main.is_some()) {
        lower::lower(&front.hir, front.end, Settings::of(options), &mut sink);
    }
    sink.finish(sources)
}

/// The front end's result for a program without errors.
struct FrontEnd {
    ast: ast::Program,
    hir: hir::Program,
    /// The end of the program's main file.
    end: Span,
}

/// A program unless the front end reported an error, its source files, and the diagnostics so far.
type Checked = (Option<FrontEnd>, SourceMap, Sink);

fn front_end(name: &str, text: &str, resolver: &dyn Resolver, options: &Options) -> Checked {
    let (mut sources, mut sink) = (SourceMap::default(), Sink::default());
    let tokens = preprocess::preprocess(name, text, &options.defines, resolver, &mut sources, &mut sink);
    let end = tokens.last().map(|t| t.span).unwrap_or_default();
    let ast = parser::parse(&tokens, &mut sink);
    let hir = check::check(&ast, &mut sink);
    if sink.has_errors() {
        return (None, sources, sink);
    }
    lint::lint(&hir, &mut sink);
    (Some(FrontEnd { ast, hir, end }), sources, sink)
}
