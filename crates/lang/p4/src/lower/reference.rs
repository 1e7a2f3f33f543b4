//! The reference of functions, docs/reference/functions.md: made from the models, and from what the functions
//! read.

use super::information::{InfoExtern, information};
use crate::preprocess::MODELS;
use p4shield_abi::info;
use std::fmt::Write;
use std::path::Path;

/// Functions or members that share a comment.
#[derive(Default)]
struct Group {
    declarations: Vec<String>,
    comment: String,
    /// The extern object that they belong to.
    object: Option<String>,
}

impl Group {
    /// Whether it is an object's constructor, which the object's comment describes.
    fn is_constructor(&self) -> bool {
        let object = self.object.as_ref().and_then(|o| o.split('<').next());
        object.is_some_and(|object| self.declarations.iter().all(|d| d.starts_with(&format!("{object}("))))
    }
}

/// Returns the comment at the start of a model: paragraphs, and lists with their items on lines of their own.
fn introduction(model: &str) -> String {
    let mut text = String::new();
    for line in model.lines().map_while(|line| line.strip_prefix("//")) {
        match line.trim() {
            "" => text.push_str("\n\n"),
            item if item.starts_with("- ") => text.push_str(&format!("\n{item}")),
            more => text.push_str(&format!(" {more}")),
        }
    }
    text.trim().replace("\n\n ", "\n\n").replace(":\n- ", ":\n\n- ")
}

/// Returns the functions and the objects' members of a model. Of two versions it takes the newer one.
fn groups(model: &str) -> Vec<Group> {
    let (mut groups, mut group, mut object) = (Vec::new(), Group::default(), None);
    let mut is_old = false;
    for line in model.lines().map(str::trim) {
        is_old = if line.starts_with("#else") { true } else { is_old && !line.starts_with("#endif") };
        let is_member = object.is_some() && line.ends_with(';');
        if let Some(comment) = line.strip_prefix("///") {
            if !group.declarations.is_empty() {
                groups.push(std::mem::take(&mut group));
            }
            group.comment.push_str(comment);
        } else if line.is_empty() || line == "}" {
            if !group.declarations.is_empty() {
                groups.push(std::mem::take(&mut group));
            }
            group = Group::default();
            if line == "}" {
                object = None;
            }
        } else if is_old {
        } else if let Some(name) = line.strip_prefix("extern ").and_then(|l| l.strip_suffix(" {")) {
            group.declarations.push(format!("extern {name}"));
            groups.push(std::mem::take(&mut group));
            object = Some(name.to_owned());
        } else if let Some(declaration) = line.strip_suffix(';').filter(|_| is_member) {
            group.declarations.push(declaration.to_owned());
            group.object.clone_from(&object);
        } else if let Some(declaration) = line.strip_prefix("extern ").and_then(|l| l.strip_suffix(';')) {
            group.declarations.push(declaration.to_owned());
        }
    }
    groups
}

/// Returns the name of a declared function.
fn name(declaration: &str) -> &str {
    let before = declaration.split(['(', '<']).next().unwrap_or_default();
    let before =
        if before.ends_with("bit") { declaration.split('>').nth(1).unwrap_or_default() } else { before };
    before.split('(').next().unwrap_or_default().rsplit(' ').next().unwrap_or_default()
}

/// Returns the number of the field that a function reads, and the value of an unknown one.
fn field(declaration: &str) -> Option<(String, String)> {
    let unknown = |field| match info::unknown_value(field) {
        0 => "0".to_owned(),
        u64::MAX => "all ones".to_owned(),
        other => format!("{other:#x}"),
    };
    let zero = || "0".to_owned();
    Some(match information(name(declaration))? {
        InfoExtern::Field(f) => (f.to_string(), unknown(f)),
        InfoExtern::Interface(f) => {
            let first = info::field::INTERFACE_BASE + f;
            (format!("{first} + {} × `index`", info::field::INTERFACE_STRIDE), zero())
        }
        InfoExtern::AppValue => (format!("{} + `slot`", info::field::APP_BASE), zero()),
        InfoExtern::ByNumber => ("`field`".to_owned(), "as of that field".to_owned()),
        InfoExtern::Status | InfoExtern::Known => return None,
    })
}

/// Returns whether a group belongs to the object that another one declares.
fn is_of(member: &Group, object: &Group) -> bool {
    let declared = object.declarations[0].strip_prefix("extern ");
    declared.is_some() && member.object.as_deref() == declared
}

fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

fn page() -> String {
    let mut page =
        "# Functions that programs may call\n\nMade from the models, which the compiler has built in: \
                    `p4shield compile --show p4shield.p4` prints\none, and they are installed in \
                    `share/p4shield/models`. What a program declares beside these is an extern of its\nown \
                    ([C externs](../how-to/c-externs.md)).\n"
            .to_owned();
    let mut models: Vec<_> = MODELS.iter().collect();
    models.sort_by_key(|(name, _)| *name != "p4shield.p4");
    for (file, text) in models {
        let _ = write!(page, "\n## `{file}`\n\n{}\n", introduction(text));
        let groups = groups(text);
        let (information, others): (Vec<&Group>, Vec<&Group>) =
            groups.iter().partition(|g| g.declarations.iter().any(|d| field(d).is_some()));
        if !information.is_empty() {
            page.push_str("\n| function | value | field | unknown reads as |\n|---|---|---|---|\n");
        }
        for group in &information {
            for declaration in &group.declarations {
                let (field, unknown) = field(declaration).expect("all of a group read information");
                let comment = group.comment.trim().split(" Unknown:").next().unwrap_or_default();
                let _ = writeln!(page, "| {} | {comment} | {field} | {unknown} |", code(declaration));
            }
        }
        page.push_str("\n| function | what it does |\n|---|---|\n");
        for group in others.iter().filter(|group| !group.is_constructor()) {
            let mut declarations: Vec<_> = group.declarations.iter().map(|d| code(d)).collect();
            let constructed = |c: &&&Group| c.is_constructor() && is_of(c, group);
            declarations.extend(others.iter().find(constructed).map(|c| code(&c.declarations[0])));
            let of = group.object.as_ref().map(|o| format!("{}: ", code(o))).unwrap_or_default();
            let _ = writeln!(page, "| {of}{} | {} |", declarations.join("<br>"), group.comment.trim());
        }
    }
    page
}

#[test]
fn the_reference_of_functions_is_made_from_the_models() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference/functions.md");
    let page = page();
    if std::env::var_os("P4SHIELD_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).unwrap_or_default() == page,
        "docs/reference/functions.md differs from the models; write it with `P4SHIELD_BLESS=1 cargo test -p \
         p4shield-p4 --lib reference`"
    );
}

#[test]
fn every_function_of_the_models_has_a_comment() {
    for (file, text) in MODELS {
        for group in groups(text) {
            let is_object = group.declarations[0].starts_with("extern ");
            let needs_none = is_object || group.is_constructor();
            assert!(needs_none || !group.comment.is_empty(), "{file}: {:?}", group.declarations);
        }
    }
}

/// The comment is what an author reads; the value is what the program gets.
#[test]
fn comments_state_unknown_values_other_than_zero() {
    let (_, model) = MODELS.iter().find(|(name, _)| *name == "p4shield.p4").unwrap();
    let mut seen = 0;
    for group in groups(model) {
        for (_, unknown) in group.declarations.iter().filter_map(|d| field(d)) {
            let is_plain = unknown == "0" || unknown == "as of that field";
            assert!(is_plain || group.comment.contains("Unknown:"), "{:?}: {unknown}", group.declarations);
            seen += 1;
        }
    }
    assert_eq!(seen, 18, "the functions that read information");
}
