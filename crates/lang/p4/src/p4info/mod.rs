//! P4Info: the description of a program for a P4Runtime controller.
//!
//! Messages and numbers are those of `p4/config/v1/p4info.proto` and `p4types.proto` (P4Runtime
//! 1.4). The description is built from the resolved program before any lowering, so that a program
//! that this compiler cannot translate has one too.

mod annotations;
mod externs;
mod ids;
mod message;
mod objects;
mod types;
mod walk;

use crate::diagnostics::{Code, Diagnostics, Sink};
use crate::hir::Program;
use crate::lexer::Tok;
use crate::types::Type;
use crate::{FrontEnd, Options, Resolver};
use annotations::{AnnotationIndex, Annotations};
use ids::{Ids, Prefix, Symbols};
use message::{FieldValue, Message};
use types::Types;
use walk::Objects;

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
    let (front, sources, mut sink) = crate::front_end(name, text, resolver, options);
    let info = front.map(|front| describe(&front, &mut sink));
    match info.filter(|_| !sink.has_errors()) {
        Some(info) => Ok(info),
        None => Err(sink.finish(sources)),
    }
}

/// The inputs of a P4Info's parts.
struct P4InfoBuilder<'a> {
    hir: &'a Program,
    annotation_index: &'a AnnotationIndex<'a>,
    found: &'a Objects,
    ids: &'a Ids,
    types: Types<'a>,
    sink: &'a mut Sink,
}

fn describe(front: &FrontEnd, sink: &mut Sink) -> P4Info {
    let Some(main) = front.hir.main else { return P4Info(Message::default()) };
    let annotation_index = AnnotationIndex::new(&front.ast, &front.hir.annotation_values);
    let found = walk::walk(&front.hir, &front.ast, &annotation_index);
    if found.too_many {
        let message = "the program has too many objects for the control plane";
        sink.report(Code::TooLarge, front.end, message, "instantiate fewer controls within controls");
    }
    let headers = front.hir.headers.iter().map(|h| Type::Composite(h.clone()));
    let kept = found.externs.iter().map(|e| e.instance.ty.clone());
    if found.digests.iter().cloned().chain(kept).chain(headers).any(|t| types::is_too_deep(&t)) {
        let message = "a type that the control plane accesses is nested too deeply";
        sink.report(Code::TooDeep, front.end, message, "nest fewer structs");
        return P4Info(Message::default());
    }
    let ids = symbols(&front.hir, &annotation_index, &found, sink).finish();
    let types = Types::new(&annotation_index, &front.hir.errors);
    let main = &front.hir.instances[main.0 as usize];
    let package = package(&annotation_index.at(main.span, &main.name), architecture(&main.ty));
    let info = P4InfoBuilder {
        hir: &front.hir,
        annotation_index: &annotation_index,
        found: &found,
        ids: &ids,
        types,
        sink,
    };
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
fn symbols(
    hir: &Program,
    annotation_index: &AnnotationIndex<'_>,
    found: &Objects,
    sink: &mut Sink,
) -> Symbols {
    let mut symbols = Symbols::default();
    let mut add = |prefix, name: &str, annotations: Annotations<'_>, at| {
        symbols.add(prefix, name, annotations.number("id"), at, sink);
    };
    for t in &found.tables {
        let (table, location) = (&t.table, t.table.span);
        add(Prefix::Table, &t.name, annotation_index.at(location, &table.declared), location);
    }
    for found in &found.actions {
        let a = &hir.actions[found.id.0 as usize];
        add(Prefix::Action, &found.name, annotation_index.at(a.span, &a.name), a.span);
    }
    for e in &found.externs {
        if let Some(prefix) = externs::prefix(&e.instance.ty) {
            let (location, name) = &e.annotated;
            add(prefix, &e.name, annotation_index.at(*location, name), *location);
        }
    }
    for (set, name) in &found.value_sets {
        let set = &hir.value_sets[set.0 as usize];
        add(Prefix::ValueSet, name, annotation_index.at(set.span, &set.name), set.span);
    }
    for d in objects::controller_headers(annotation_index) {
        let annotations = annotation_index.of_type(&d.name.name);
        add(Prefix::ControllerHeader, &annotations.full_name("", &d.name.name), annotations, d.span);
    }
    for name in crate::control_names::digest_names(&found.digests) {
        symbols.add(Prefix::Digest, &name, None, crate::source::Span::default(), sink);
    }
    symbols
}

/// Builds `PkgInfo`.
fn package(annotations: &Annotations<'_>, architecture: &str) -> Message {
    let field = |key: &str| {
        let text = |(k, t): (&str, &Tok)| match t {
            Tok::Str(s) if k == key => Some(s.to_string()),
            _ => None,
        };
        annotations.pairs("pkginfo").find_map(text).unwrap_or_default()
    };
    let number = |key: &str| {
        let value = |(k, t): (&str, &Tok)| if k == key { annotations::number(t) } else { None };
        annotations.pairs("platform_property").find_map(value).unwrap_or(0)
    };
    let excluded = ["pkginfo", "platform_property"];
    let m = Message::default().text(1, "name", &field("name")).text(2, "version", &field("version"));
    let m = annotations
        .add_unstructured(annotations.add_doc(m, 3), 4, &excluded)
        .text(5, "arch", architecture)
        .text(6, "organization", &field("organization"))
        .text(7, "contact", &field("contact"))
        .text(8, "url", &field("url"));
    let mut m = annotations.add_structured(m, 9, &excluded);
    if annotations.has("platform_property") {
        let properties = [
            "multicast_group_table_size",
            "multicast_group_table_total_replicas",
            "multicast_group_table_max_replicas_per_entry",
        ];
        let platform = (1..).zip(properties).fold(Message::default(), |m, (i, p)| m.number(i, p, number(p)));
        m = m.message(11, "platform_properties", platform);
    }
    m
}

impl P4InfoBuilder<'_> {
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
    fn preamble(&self, prefix: Prefix, name: &str, annotations: &Annotations<'_>) -> Message {
        annotations.add_all(names(self.ids, prefix, name), &[])
    }

    /// Numbers the parts of an object by their `@id`s or their order.
    fn part_ids(&mut self, parts: &[Annotations<'_>], at: crate::source::Span) -> Vec<u32> {
        let wanted: Vec<Option<u32>> = parts.iter().map(|n| n.number("id")).collect();
        let (ids, wrong) = ids::number_parts(&wanted);
        if let Some(id) = wrong {
            let message = format!("@id({id}) is 0 or a duplicate");
            self.sink.report(Code::BadAnnotation, at, message, "give each part its own number from 1");
        }
        ids
    }
}

/// Builds the first fields of `Preamble`.
fn names(ids: &Ids, prefix: Prefix, name: &str) -> Message {
    let m = Message::default().number(1, "id", ids.of(prefix, name));
    m.text(2, "name", name).text(3, "alias", ids.alias(name))
}

/// Adds the width of a value, unless it has a type name.
fn with_width(m: Message, width: u32) -> Message {
    m.with(4, "bitwidth", FieldValue::Number(width.into()))
}
