//! Statements of the documents about this binary.

use std::path::Path;

use crate::common::{code, p4shield, stderr, stdout};

#[test]
fn the_exit_codes_of_the_audit_are_documented() {
    use p4shield_agent::audit::finding::exit_code as code;
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference/exit-codes.md");
    let text = std::fs::read_to_string(page).unwrap();
    for n in code::BY_WEIGHT {
        assert!(text.contains(&format!("| {n} |")), "exit code {n} is not in docs/reference/exit-codes.md");
    }
}

/// Appends the help of a command and of its subcommands.
fn describe(words: &[&str], page: &mut String) {
    let out = p4shield(&[words, &["--help"]].concat());
    let help = stdout(&out);
    let title = [&["p4shield"], words].concat().join(" ");
    let level = "#".repeat(words.len().min(2) + 1);
    page.push_str(&format!("\n{level} `{title}`\n\n```text\n{}\n```\n", help.trim_end()));
    let listed = help.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty());
    let names = listed.filter(|l| l.starts_with("  ") && !l.starts_with("   "));
    for name in names.filter_map(|l| l.split_whitespace().next()).filter(|name| *name != "help") {
        describe(&[words, &[name]].concat(), page);
    }
}

#[test]
fn the_command_reference_is_the_help() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference/cli.md");
    let mut page = String::from(
        "# Command reference\n\nGenerated from the help of `p4shield`; the tutorials show the commands at \
         work. Exit codes: [exit-codes.md](exit-codes.md).\n",
    );
    describe(&[], &mut page);
    let page = page.replacen("# `p4shield`\n", "## `p4shield`\n", 1);
    if std::env::var_os("P4SHIELD_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let current = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        current == page,
        "docs/reference/cli.md differs from the help; write it with \
         `P4SHIELD_BLESS=1 cargo test -p p4shield --test commands docs`"
    );
}

#[test]
fn built_in_files_are_shown_and_nothing_else_is_needed() {
    let shown = stdout(&p4shield(&["compile", "--show", "p4shield.p4"]));
    assert!(shown.contains("extern bit<64> get_cpu_pressure();"), "{shown}");
    let other = p4shield(&["compile", "--show", "psa.p4"]);
    assert!(code(&other) == 2 && stderr(&other).contains("built in are core.p4"), "{}", stderr(&other));
    assert_eq!(code(&p4shield(&["compile"])), 2, "a program is required otherwise");
}
