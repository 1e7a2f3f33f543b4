//! Log events: each line that the product logs has a name, and docs/reference/log-events.md lists the names.

use crate::tree;
use std::collections::{BTreeMap, BTreeSet};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Result};
use syn::visit::{self, Visit};
use syn::{Expr, Ident, LitStr, Token};

/// Folders of the product's crates.
const PRODUCT: [&str; 8] = ["attach", "base", "cli", "datapath", "guest", "host", "lang", "trust"];
/// Levels whose lines have an event.
const LEVELS: [&str; 3] = ["error", "info", "warn"];

/// Levels and fields of an event.
#[derive(Debug, Default, PartialEq, Eq)]
struct Described {
    levels: BTreeSet<String>,
    fields: BTreeSet<String>,
}

type Events = BTreeMap<String, Described>;

/// Differences between the code and the document, and lines without an event.
pub(crate) fn findings() -> Vec<String> {
    let mut found = Calls::default();
    for folder in PRODUCT {
        for file in tree::files(&tree::root().join("crates").join(folder), ".rs") {
            let shown = tree::shown(&file);
            if shown.contains("/src/") && !shown.starts_with("crates/cli/dev/") {
                found.file = shown;
                let parsed = syn::parse_file(&tree::read(&file)).expect("cargo compiles it");
                found.visit_file(&parsed);
            }
        }
    }
    assert!(found.events.len() > 20, "only {} events were found", found.events.len());
    let listed = listed(&tree::read(&tree::root().join("docs/reference/log-events.md")));
    let mut findings = found.findings;
    for name in found.events.keys().chain(listed.keys()).collect::<BTreeSet<_>>() {
        let (code, text) = (found.events.get(name), listed.get(name));
        if code != text {
            findings.push(format!("{name}:\n  code:     {code:?}\n  document: {text:?}"));
        }
    }
    findings
}

/// Reads the tables of events, by their first columns: event, level, fields.
fn listed(document: &str) -> Events {
    let words = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    let mut events = Events::new();
    let mut inside = false;
    for line in document.lines() {
        inside = line.starts_with("| event | level | fields |") || (inside && line.starts_with('|'));
        let cells: Vec<_> = line.split(" | ").collect();
        if let (true, [name, levels, fields, ..]) = (inside && line.starts_with("| `"), &cells[..]) {
            let levels = levels.split(", ").map(|level| level.trim().to_owned()).collect();
            let name = name.trim_matches(['|', ' ', '`']).to_owned();
            events.insert(name, Described { levels, fields: words(fields) });
        }
    }
    events
}

/// The calls of `tracing`'s macros in the code.
#[derive(Default)]
struct Calls {
    file: String,
    events: Events,
    findings: Vec<String>,
}

impl<'a> Visit<'a> for Calls {
    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        let is_test = |a: &syn::Attribute| a.path().is_ident("cfg") && has_word(a, "test");
        if !item.attrs.iter().any(is_test) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_macro(&mut self, mac: &'a syn::Macro) {
        let path: Vec<_> = mac.path.segments.iter().map(|s| s.ident.to_string()).collect();
        let [library, level] = &path[..] else { return };
        if library != "tracing" || !LEVELS.contains(&level.as_str()) {
            return;
        }
        match mac.parse_body_with(line) {
            Ok((Some(event), fields)) if is_name(&event) => {
                let described = self.events.entry(event).or_default();
                described.levels.insert(level.clone());
                described.fields.extend(fields);
            }
            Ok((event, _)) => self.findings.push(format!("{}: {level}! has event {event:?}", self.file)),
            Err(error) => self.findings.push(format!("{}: {level}!: {error}", self.file)),
        }
    }
}

fn has_word(attribute: &syn::Attribute, word: &str) -> bool {
    attribute.parse_args::<Ident>().is_ok_and(|ident| ident == word)
}

fn is_name(event: &str) -> bool {
    !event.is_empty() && event.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// Parses the arguments of a macro: fields, then a message. Returns the event and the other fields.
fn line(input: ParseStream<'_>) -> Result<(Option<String>, Vec<String>)> {
    let (mut event, mut fields) = (None, Vec::new());
    while !input.is_empty() && !input.peek(LitStr) {
        sigil(input)?;
        let name = Ident::parse_any(input)?.to_string();
        if input.peek(Token![=]) {
            input.parse::<Token![=]>()?;
            sigil(input)?;
            let value: Expr = input.parse()?;
            if name == "event" {
                event = literal(&value);
            }
        }
        if name != "event" {
            fields.push(name);
        }
        if input.peek(Token![,]) {
            input.parse::<Token![,]>()?;
        }
    }
    // The message and its arguments.
    while !input.is_empty() {
        sigil(input)?;
        input.parse::<Expr>()?;
        if input.peek(Token![,]) {
            input.parse::<Token![,]>()?;
        }
    }
    Ok((event, fields))
}

/// Skips the mark of a field's format.
fn sigil(input: ParseStream<'_>) -> Result<()> {
    if input.peek(Token![%]) {
        input.parse::<Token![%]>()?;
    } else if input.peek(Token![?]) {
        input.parse::<Token![?]>()?;
    }
    Ok(())
}

fn literal(value: &Expr) -> Option<String> {
    match value {
        Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_a_name_is_found() {
        let mut calls = Calls::default();
        let code = "fn f() { tracing::warn!(%error, pid = 3, \"text {}\", error); }
                    fn g() { tracing::info!(event = \"started\", ?kind, \"text\"); }
                    #[cfg(test)] mod tests { fn h() { tracing::warn!(\"text\"); } }";
        calls.visit_file(&syn::parse_file(code).unwrap());
        assert_eq!(calls.findings.len(), 1, "{:?}", calls.findings);
        let started = &calls.events["started"];
        assert!(started.levels.contains("info") && started.fields.contains("kind"));
    }

    #[test]
    fn a_table_lists_names_levels_and_fields() {
        let table = "| event | level | fields | meaning |\n|---|---|---|---|\n\
                     | `a_b` | info, warn | `x`, `y` | z |\n\n| `c` |";
        let events = listed(table);
        assert_eq!(events.len(), 1);
        assert_eq!(events["a_b"].levels.len(), 2);
        assert_eq!(events["a_b"].fields, BTreeSet::from(["x".into(), "y".into()]));
    }
}
