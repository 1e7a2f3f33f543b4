//! Rules of the source tree that neither rustc nor clippy checks, on this repository.
//!
//! `make lint` runs them. Each check returns findings, one line each; an empty list passes.
//!
//! | module | rule |
//! |---|---|
//! | [`architecture`] | the tables of ARCHITECTURE.md state what each crate depends on |
//! | [`arrows`] | a crate depends on no crate of a higher group; switch libraries and the guest's program stay light |
//! | [`circles`] | the files of a crate import each other in one direction |
//! | [`comments`] | identifiers in comments exist; fewer and fewer doc comments begin with What, Whether, Why |
//! | [`copies`] | no block of ten lines stands twice |
//! | [`documents`] | links and paths in documents lead somewhere; the threat model's tests exist |
//! | [`events`] | each log line of the product has an event, which docs/reference/log-events.md lists |
//! | [`protocol`] | a P4 VM executes no request that the daemon never sends |
//! | [`style`] | files, lines and test names are short; placeholders for actors are absent |
//! | [`unsafe_code`] | only the crates that ARCHITECTURE.md lists contain `unsafe` |

mod architecture;
mod arrows;
mod circles;
mod comments;
mod copies;
mod documents;
mod events;
mod protocol;
mod style;
mod tree;
mod unsafe_code;

fn none(rule: &str, found: &[String]) {
    assert!(found.is_empty(), "{rule}: {}\n{}", found.len(), found.join("\n"));
}

#[test]
fn files_import_each_other_in_one_direction() {
    let mut found = Vec::new();
    for c in tree::crates().iter().filter(|c| c.folder.join("src").is_dir()) {
        for circle in circles::circles(&c.folder) {
            found.push(format!("{}: {}", c.name, circles::links(&c.folder, &circle).join(", ")));
        }
    }
    none("circles of files", &found);
}

#[test]
fn crates_depend_on_lower_groups_only() {
    none("arrows", &arrows::upward());
}

#[test]
fn architectures_tables_state_each_crates_dependencies() {
    none("rows of ARCHITECTURE.md", &architecture::wrong_rows());
}

#[test]
fn switch_libraries_contain_no_heavy_crate() {
    none("heavy crates in switch libraries", &arrows::heavy());
}

#[test]
fn a_virtual_machines_program_contains_no_host_code() {
    none("crates of the guest's program that are not listed", &arrows::unlisted_in_the_guest());
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
fn every_claim_says_in_which_compartments_it_holds() {
    let model = tree::read(&tree::root().join("docs/explanation/threat-model.md"));
    none("claims without compartments", &documents::claims_without_compartments(&model));
    for wrong in ["| c | yes | yes | a :: `t` |", "| c | yes | no | hw | a :: `t` |", "| c | a :: `t` |"] {
        assert_eq!(documents::claims_without_compartments(wrong).len(), 1, "{wrong}");
    }
}

#[test]
fn every_log_line_has_a_documented_event() {
    none("log events that differ from docs/reference/log-events.md", &events::findings());
}

#[test]
fn hosts_send_every_request_of_the_protocol() {
    let (unsent, requests) = protocol::unsent();
    none("requests that only a hostile host sends", &unsent);
    assert!(requests > 15, "only {requests} requests were found; has the protocol's form changed?");
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

#[test]
fn pages_are_linked_from_an_index() {
    none("pages that no index links", &documents::unlinked_pages());
}

#[test]
fn the_glossary_defines_each_term_once() {
    none("terms with two definitions", &documents::terms_defined_twice());
}

#[test]
fn identifiers_in_comments_exist() {
    none("identifiers that no code has", &comments::unknown_identifiers());
}

#[test]
fn no_block_of_code_stands_twice() {
    none("identical blocks", &copies::blocks());
}

#[test]
fn habits_that_are_going_away_do_not_return() {
    let (questions, tuples) = (comments::questions(), style::tuple_parameters());
    let limits = (comments::MAX_QUESTIONS, style::MAX_TUPLES);
    assert!(questions <= limits.0, "{questions} doc comments begin with What, Whether or Why");
    assert!(tuples <= limits.1, "{tuples} parameters are tuples");
    assert_eq!((questions, tuples), limits, "fewer than before: lower the limits");
}
