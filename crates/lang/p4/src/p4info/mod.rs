//! P4Info: the description of a program for a P4Runtime controller.
//!
//! Messages and numbers are those of `p4/config/v1/p4info.proto` and `p4types.proto` (P4Runtime
//! 1.4). The description is built from the resolved program before any lowering, so that a program
//! that this compiler cannot translate has one too.

mod externs;
mod ids;
mod message;
mod notes;
mod objects;
mod types;
mod walk;

use crate::diagnostics::{Code, Diagnostic, Diagnostics, Sink};
use crate::hir::Program;
use crate::lexer::Tok;
use crate::source::SourceMap;
use crate::types::Type;
use crate::{FrontEnd, Options, Resolver};
use ids::{Ids, Prefix, Symbols};
use message::{Message, Value};
use notes::{Noted, Notes};
use types::Types;
use walk::Found;

/// A program's P4Info.
#[derive(Clone, Debug)]
pub struct P4Info(Message);

impl P4Info {
    /// Returns the text format, which people and most controllers read.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out =
            String::from("# proto-file: p4/config/v1/p4info.proto\n# proto-message: p4.config.v1.P4Info\n\n");
        self.0.print(0, &mut out);
        out
    }

    /// Returns the binary protocol buffer message.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.encode()
    }
}

/// Returns the P4Info of a program, which is read as by [`crate::compile`]. A file without `main`
/// has an empty one.
///
/// # Errors
/// All diagnostics, if the program is invalid or has ids that P4Runtime does not allow.
pub fn p4info(
    name: &str,
    text: &str,
    resolver: &dyn Resolver,
    options: &Options,
) -> Result<P4Info, Diagnostics> {
    let (mut sources, mut sink) = (SourceMap::default(), Sink::default());
    let info = crate::front_end(name, text, resolver, options, &mut sources, &mut sink)
        .map(|front| describe(&front, &mut sink));
    match info.filter(|_| !sink.has_errors()) {
        Some(info) => Ok(info),
        None => Err(Diagnostics::new(sources, sink.into_items())),
    }
}

/// The inputs of a P4Info's parts.
struct Info<'a> {
    hir: &'a Program,
    notes: &'a Notes<'a>,
    found: &'a Found,
    ids: &'a Ids,
    types: Types<'a>,
    sink: &'a mut Sink,
}

fn describe(front: &FrontEnd, sink: &mut Sink) -> P4Info {
    let Some(main) = front.hir.main else { return P4Info(Message::default()) };
    let notes = Notes::new(&front.ast, &front.hir.annotation_values);
    let found = walk::walk(&front.hir, &front.ast, &notes);
    if found.too_many {
        let message = "the program has too many objects for the control plane";
        let d = Diagnostic::new(Code::TooLarge, front.end, message);
        sink.add(d.hint("instantiate fewer controls within controls"));
    }
    let headers = front.hir.headers.iter().map(|h| Type::Composite(h.clone()));
    let kept = found.externs.iter().map(|e| e.instance.ty.clone());
    if found.digests.iter().cloned().chain(kept).chain(headers).any(|t| types::is_too_deep(&t)) {
        let message = "a type that the control plane accesses is nested too deeply";
        let d = Diagnostic::new(Code::TooDeep, front.end, message);
        sink.add(d.hint("nest fewer structs"));
        return P4Info(Message::default());
    }
    let ids = symbols(&front.hir, &notes, &found, sink).finish();
    let types = Types::new(&notes, &front.hir.errors);
    let main = &front.hir.instances[main.0 as usize];
    let package = package(&notes.at(main.span, &main.name), architecture(&main.ty));
    let info = Info { hir: &front.hir, notes: &notes, found: &found, ids: &ids, types, sink };
    P4Info(info.message(package))
}

/// Returns P4Runtime's name of the architecture that declares a package; the package's own name if
/// the architecture is unknown.
fn architecture(package: &Type) -> &str {
    let Type::Object(o) = package else { return "" };
    match &*o.name {
        "V1Switch" => "v1model",
        "ubpf" => "ubpf",
        "ebpfFilter" => "ebpf",
        other => other,
    }
}

/// Collects every object of the program that needs an id.
fn symbols(hir: &Program, notes: &Notes<'_>, found: &Found, sink: &mut Sink) -> Symbols {
    let mut symbols = Symbols::default();
    for t in &found.tables {
        let noted = notes.at(t.table.span, &t.table.declared);
        symbols.add(Prefix::Table, &t.name, noted.number("id"), t.table.span, sink);
    }
    for found in &found.actions {
        let a = &hir.actions[found.id.0 as usize];
        symbols.add(Prefix::Action, &found.name, notes.at(a.span, &a.name).number("id"), a.span, sink);
    }
    for e in &found.externs {
        if let Some(prefix) = externs::prefix(&e.instance.ty) {
            let id = notes.at(e.noted.0, &e.noted.1).number("id");
            symbols.add(prefix, &e.name, id, e.noted.0, sink);
        }
    }
    for (set, name) in &found.value_sets {
        let set = &hir.value_sets[set.0 as usize];
        symbols.add(Prefix::ValueSet, name, notes.at(set.span, &set.name).number("id"), set.span, sink);
    }
    for d in objects::controller_headers(notes) {
        let noted = notes.of_type(&d.name.name);
        let name = noted.full_name("", &d.name.name);
        symbols.add(Prefix::ControllerHeader, &name, noted.number("id"), d.span, sink);
    }
    for name in objects::digest_names(&found.digests) {
        symbols.add(Prefix::Digest, &name, None, crate::source::Span::default(), sink);
    }
    symbols
}

/// Builds `PkgInfo`.
fn package(noted: &Noted<'_>, architecture: &str) -> Message {
    let field = |key: &str| {
        let text = |(k, t): (&str, &Tok)| match t {
            Tok::Str(s) if k == key => Some(s.to_string()),
            _ => None,
        };
        noted.pairs("pkginfo").find_map(text).unwrap_or_default()
    };
    let number = |key: &str| {
        let value = |(k, t): (&str, &Tok)| if k == key { notes::number(t) } else { None };
        noted.pairs("platform_property").find_map(value).unwrap_or(0)
    };
    let excluded = ["pkginfo", "platform_property"];
    let m = Message::default().text(1, "name", &field("name")).text(2, "version", &field("version"));
    let m = noted
        .annotations(noted.doc(m, 3), 4, &excluded)
        .text(5, "arch", architecture)
        .text(6, "organization", &field("organization"))
        .text(7, "contact", &field("contact"))
        .text(8, "url", &field("url"));
    let mut m = noted.structured(m, 9, &excluded);
    if noted.has("platform_property") {
        let platform = Message::default()
            .number(1, "multicast_group_table_size", number("multicast_group_table_size"))
            .number(2, "multicast_group_table_total_replicas", number("multicast_group_table_total_replicas"))
            .number(
                3,
                "multicast_group_table_max_replicas_per_entry",
                number("multicast_group_table_max_replicas_per_entry"),
            );
        m = m.message(11, "platform_properties", platform);
    }
    m
}

impl Info<'_> {
    fn message(mut self, package: Message) -> Message {
        let found = self.found;
        let tables: Vec<Message> = found.tables.iter().map(|t| self.table(t)).collect();
        let actions: Vec<Message> = found.actions.iter().map(|a| self.action(a)).collect();
        let mut m = Message::default()
            .message(1, "pkg_info", package)
            .repeated(2, "tables", tables)
            .repeated(3, "actions", actions);
        m = self.externs(m);
        let headers = self.controller_headers();
        let sets: Vec<Message> =
            found.value_sets.iter().map(|(id, name)| self.value_set(*id, name)).collect();
        m = m.repeated(9, "controller_packet_metadata", headers).repeated(10, "value_sets", sets);
        m = self.registers(m);
        let digests = self.digests();
        m.repeated(12, "digests", digests).repeated(200, "type_info", self.types.info())
    }

    /// Builds `Preamble`.
    fn preamble(&self, prefix: Prefix, name: &str, noted: &Noted<'_>, excluded: &[&str]) -> Message {
        let m = Message::default().number(1, "id", self.ids.of(prefix, name)).text(2, "name", name).text(
            3,
            "alias",
            self.ids.alias(name),
        );
        noted.structured(noted.doc(noted.annotations(m, 4, excluded), 5), 6, excluded)
    }

    /// Numbers the parts of an object by their `@id`s or their order.
    fn part_ids(&mut self, parts: &[Noted<'_>], at: crate::source::Span) -> Vec<u32> {
        let wanted: Vec<Option<u32>> = parts.iter().map(|n| n.number("id")).collect();
        let (ids, wrong) = ids::number_parts(&wanted);
        if let Some(id) = wrong {
            let message = format!("@id({id}) is 0 or a duplicate");
            let d = Diagnostic::new(Code::BadAnnotation, at, message);
            self.sink.add(d.hint("give each part its own number from 1"));
        }
        ids
    }
}

/// Adds the width of a value, unless it has a type name.
fn with_width(m: Message, width: u32) -> Message {
    m.with(4, "bitwidth", Value::Number(width.into()))
}
