//! Every rule, on this repository.

use p4shield_lint::{arrows, circles, documents, style, tree, unsafe_code};

fn none(rule: &str, found: &[String]) {
    assert!(found.is_empty(), "{rule}: {}\n{}", found.len(), found.join("\n"));
}

#[test]
fn files_import_each_other_in_one_direction() {
    let of = |c: &tree::Crate| {
        let circles = circles::circles(&c.folder);
        circles.into_iter().map(|circle| format!("{}: {}", c.name, circle.join(", "))).collect::<Vec<_>>()
    };
    none("circles of files", &tree::crates().iter().flat_map(of).collect::<Vec<_>>());
}

#[test]
fn crates_depend_on_lower_layers_only() {
    none("arrows", &arrows::upward());
}

#[test]
fn switch_libraries_contain_no_heavy_crate() {
    none("heavy crates in switch libraries", &arrows::heavy());
}

#[test]
fn only_listed_crates_contain_unsafe() {
    none("unsafe", &unsafe_code::findings());
}

#[test]
fn links_in_documents_lead_somewhere() {
    none("broken links", &documents::broken_links());
}

#[test]
fn paths_that_texts_mention_exist() {
    none("paths that do not exist", &documents::missing_paths());
}

#[test]
fn every_claim_of_the_threat_model_names_existing_tests() {
    let (missing, claims) = documents::missing_tests(&tree::root().join("docs/explanation/threat-model.md"));
    none("tests that do not exist", &missing);
    assert!(claims > 30, "only {claims} claims were found; has the document's form changed?");
}

#[test]
fn every_fuzz_target_is_built() {
    none("fuzz targets", &documents::fuzz_targets());
}

#[test]
fn lines_keep_the_formatters_limit() {
    none("lines that are too long", &style::long_lines());
}

#[test]
fn files_keep_one_idea() {
    none("files that are too long", &style::long_files());
}

#[test]
fn names_are_short_claims() {
    none("names that are too long", &style::long_names());
}

#[test]
fn identifiers_name_the_actor() {
    none("identifiers with a placeholder", &style::placeholder_identifiers());
}

#[test]
fn sentences_name_the_actor() {
    let found = style::placeholders();
    let most = style::MAX_PLACEHOLDERS;
    assert!(found.len() <= most, "{} sentences with a placeholder:\n{}", found.len(), found.join("\n"));
}
