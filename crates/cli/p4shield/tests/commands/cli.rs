//! The binary, as a user or a script runs it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{code, completed, example, p4shield, stderr, stdout};

fn programs() -> Vec<PathBuf> {
    let folder = std::fs::read_dir(example("programs")).unwrap();
    folder.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "p4")).collect()
}

#[test]
fn every_example_program_compiles_and_verifies() {
    let folder = tempfile::tempdir().unwrap();
    let all = programs();
    assert!(all.len() >= 2);
    for program in all {
        let object = folder.path().join("x.o").display().to_string();
        let made = p4shield(&["compile", program.to_str().unwrap(), "-o", &object, "--json"]);
        assert_eq!(code(&made), 0, "{}: {}", program.display(), stderr(&made));
        let facts: serde_json::Value = serde_json::from_str(&stdout(&made)).unwrap();
        if facts["externs"].as_array().unwrap().is_empty() {
            let verification = &facts["verification"];
            assert_eq!(verification["accepted"], true, "{facts}");
            assert!(verification["seconds"].as_f64().is_some_and(|s| s > 0.0), "{facts}");
            assert!(facts["largest_part"]["instructions"].as_u64().is_some(), "{facts}");
            let judged = p4shield(&["verify", &object]);
            assert_eq!(code(&judged), 0, "{}: {}", program.display(), stderr(&judged));
        }
    }
}

#[test]
fn the_guard_stays_within_its_instruction_bar() {
    let object = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guard.o").display().to_string();
    let made = p4shield(&["compile", &example("programs/tcp_guard.p4"), "-o", &object, "--json"]);
    let facts: serde_json::Value = serde_json::from_str(&stdout(&made)).unwrap();
    assert!(facts["longest_path"].as_u64().unwrap() <= 60, "{facts}");
}

#[test]
fn errors_have_a_location_and_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("bad.p4");
    let text = std::fs::read_to_string(example("programs/tcp_guard.p4")).unwrap();
    std::fs::write(&program, text.replace("hdr.tcp.flags &", "hdr.tcp.flagz &")).unwrap();
    let made = p4shield(&["compile", program.to_str().unwrap()]);
    assert_eq!(code(&made), 3);
    let said = stderr(&made);
    for part in ["bad.p4:", "hdr.tcp.flagz", "flags", "E0"] {
        assert!(said.contains(part), "{part} is missing in:\n{said}");
    }
    assert!(!said.contains('\u{1b}'), "colours only on a terminal");
    assert!(!program.with_extension("o").exists(), "nothing is written for a program with errors");
    let checked = p4shield(&["check", "--json", program.to_str().unwrap()]);
    assert_eq!(code(&checked), 3);
    let found: serde_json::Value = serde_json::from_str(&stdout(&checked)).unwrap();
    assert_eq!(found[0]["error"], true);
    assert!(found[0]["line"].as_u64().unwrap() > 1);
}

#[test]
fn the_verifiers_refusal_names_the_instruction() {
    let folder = tempfile::tempdir().unwrap();
    let (source, object) = (folder.path().join("x.c"), folder.path().join("x.o"));
    let text = "struct c { unsigned long data, end; };\n\
                __attribute__((section(\"p4\"))) int p4_main(struct c *c) { return *(char *)c->data; }\n";
    std::fs::write(&source, text).unwrap();
    let clang =
        Command::new("clang").args(["-O2", "-target", "bpf", "-c", "-o"]).args([&object, &source]).status();
    if !clang.is_ok_and(|s| s.success()) {
        p4shield_need::skip("clang", "no clang compiles for bpf");
        return;
    }
    let judged = p4shield(&["verify", object.to_str().unwrap()]);
    assert_eq!(code(&judged), 3);
    let said = stderr(&judged);
    assert!(said.contains("instruction") && said.contains("data_end"), "{said}");
}

#[test]
fn keygen_writes_a_private_file_once() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("tenants/alice/key");
    let make = || p4shield(&["keygen", key.to_str().unwrap()]);
    assert_eq!(code(&make()), 0);
    assert_eq!(std::fs::metadata(key.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let again = make();
    assert_eq!(code(&again), 1);
    assert!(stderr(&again).contains("exists already"));
}

#[test]
fn configuration_errors_have_a_location() {
    let right = p4shield(&["run", "--check", "--text-only", "--config", &example("p4shield.toml")]);
    assert_eq!(code(&right), 0, "{}", stderr(&right));
    let folder = tempfile::tempdir().unwrap();
    let wrong = folder.path().join("wrong.toml");
    std::fs::write(&wrong, "placement = \"moon\"\n").unwrap();
    let refused = p4shield(&["run", "--check", "--config", wrong.to_str().unwrap()]);
    assert_eq!(code(&refused), 3);
    let said = stderr(&refused);
    assert!(said.contains("wrong.toml:1") && said.contains("p4vm"), "{said}");
}

#[test]
fn check_opens_what_run_would_use() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let file = at("p4shield.toml");
    let text = "[[tenant]]\nname = \"alice\"\nkey_file = \"alice.key\"\n[[tenant.vm]]\nname = \"web\"\n\
                addresses = [\"10.0.0.2\"]\ningress = [\"guard.o\"]\n";
    std::fs::write(&file, text).unwrap();
    let check = || p4shield(&["run", "--check", "--config", &file]);
    let missing = check();
    assert_eq!(code(&missing), 3);
    let said = stderr(&missing);
    for problem in ["p4shield.toml:3:12: key_file: ", "p4shield.toml:7:12: cannot read object "] {
        assert!(said.contains(problem), "{said}");
    }
    assert_eq!(code(&p4shield(&["keygen", &at("alice.key")])), 0);
    std::fs::write(at("guard.o"), "no object").unwrap();
    let refused = check();
    assert!(stderr(&refused).contains("p4shield.toml:7:12: program: "), "{}", stderr(&refused));
    let guard = p4shield(&["compile", &example("programs/tcp_guard.p4"), "-o", &at("guard.o")]);
    assert_eq!(code(&guard), 0, "{}", stderr(&guard));
    let right = check();
    assert_eq!(code(&right), 0, "{}", stderr(&right));
}

#[test]
fn the_readmes_configurations_are_valid() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../README.md");
    let text = std::fs::read_to_string(readme).unwrap();
    let blocks: Vec<_> =
        text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), 2, "tenants' switches, and an operator's configuration");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("readme.toml");
    for toml in blocks {
        std::fs::write(&file, toml).unwrap();
        let checked = p4shield(&["run", "--check", "--text-only", "--config", file.to_str().unwrap()]);
        assert_eq!(code(&checked), 0, "{}\n{toml}", stderr(&checked));
    }
}

#[test]
fn an_absent_daemon_is_reported_with_its_socket() {
    for arguments in [
        &["status", "--socket", "/nonexistent.sock"][..],
        &["metrics", "--socket", "/nonexistent.sock"],
        &["agent", "status", "--socket", "/nonexistent.sock"],
    ] {
        let out = p4shield(arguments);
        assert_eq!(code(&out), 1);
        assert!(stderr(&out).contains("/nonexistent.sock"), "{}", stderr(&out));
    }
}

#[test]
fn wrong_usage_is_2_and_names_the_argument() {
    let out = p4shield(&["agent", "set", "load"]);
    assert_eq!(code(&out), 2);
    assert!(stderr(&out).contains("VALUE"));
    assert_eq!(code(&p4shield(&["p4vm", "--control-fd", "0", "--uid", "1"])), 1, "not to be started by hand");
}

/// Writes a program's text to a file in a folder of its own.
fn program(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.p4").display().to_string();
    std::fs::write(&file, text).unwrap();
    (folder, file)
}

#[test]
fn json_diagnostics_have_related_locations() {
    let (_folder, file) = program("const bit<8> A = 1;\n  const bit<8> A = 2;\n");
    let checked = p4shield(&["check", "--json", &file]);
    assert_eq!(code(&checked), 3);
    let found: serde_json::Value = serde_json::from_str(&stdout(&checked)).unwrap();
    let (twice, first) = (&found[0], &found[0]["related"][0]);
    assert_eq!((&twice["code"], &twice["line"], &twice["column"]), (&"E0302".into(), &2.into(), &16.into()));
    assert_eq!((&first["line"], &first["column"], &first["end_column"]), (&1.into(), &14.into(), &15.into()));
    assert_eq!((&first["file"], &first["message"]), (&file.into(), &"first declared here".into()));
}

#[test]
fn json_output_of_compile_has_the_warnings() {
    let text = std::fs::read_to_string(example("programs/tcp_guard.p4")).unwrap();
    let (folder, file) = program(&format!("#warning mind the gap\n{text}"));
    let object = folder.path().join("x.o").display().to_string();
    let made = p4shield(&["compile", &file, "-o", &object, "--json"]);
    assert_eq!(code(&made), 0, "{}", stderr(&made));
    let facts: serde_json::Value = serde_json::from_str(&stdout(&made)).unwrap();
    let warning = &facts["warnings"][0];
    assert_eq!(
        (&warning["code"], &warning["error"], &warning["line"]),
        (&"W0106".into(), &false.into(), &1.into())
    );
    let clean = p4shield(&["compile", &example("programs/tcp_guard.p4"), "-o", &object, "--json"]);
    let facts: serde_json::Value = serde_json::from_str(&stdout(&clean)).unwrap();
    assert_eq!(facts["warnings"], serde_json::json!([]));
}

#[test]
fn p4info_is_written_as_text_and_as_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let object = folder.path().join("x.o").display().to_string();
    let written = |name: &str| {
        let file = folder.path().join(name);
        let to = file.display().to_string();
        let made =
            p4shield(&["compile", &example("programs/port_filter.p4"), "-o", &object, "--p4info", &to]);
        assert_eq!(code(&made), 0, "{}", stderr(&made));
        std::fs::read(file).unwrap()
    };
    let text = String::from_utf8(written("x.txtpb")).unwrap();
    assert!(text.contains("pkg_info {\n  arch: \"ubpf\"") && text.contains("tables {"), "{text}");
    assert!(written("x.bin").starts_with(b"\x0a\x06\x2a\x04ubpf"));
}

#[test]
fn programs_without_p4info_are_refused_before_any_write() {
    let text = std::fs::read_to_string(example("programs/port_filter.p4")).unwrap();
    let (folder, file) = program(&text.replacen("    table ", "    @id(0x01000001) table ", 1));
    let at = |name: &str| folder.path().join(name);
    let (object, info) = (at("x.o").display().to_string(), at("x.txtpb").display().to_string());
    let refused = p4shield(&["compile", &file, "-o", &object, "--p4info", &info]);
    assert_eq!(code(&refused), 3, "{}", stderr(&refused));
    assert!(stderr(&refused).contains("E0607"), "{}", stderr(&refused));
    assert!(!at("x.o").exists() && !at("x.txtpb").exists());
}

#[test]
fn every_stage_can_be_shown() {
    let stages = [("ast", "parser "), ("ir", "b0: ; entry"), ("asm", "r1"), ("graph", "digraph program {")];
    for (stage, part) in stages {
        let shown = p4shield(&["compile", &example("programs/tcp_guard.p4"), "--emit", stage]);
        assert_eq!(code(&shown), 0, "{}", stderr(&shown));
        assert!(stdout(&shown).contains(part), "{stage}: {}", stdout(&shown));
    }
}

#[test]
fn every_code_is_listed_and_an_unknown_one_says_where() {
    let listed = stdout(&p4shield(&["explain"]));
    for c in p4shield_p4::diagnostics::Code::ALL {
        assert!(listed.contains(&format!("{c}  {}", c.title())), "{c} is not in\n{listed}");
    }
    let one = stdout(&p4shield(&["explain", "e0302"]));
    assert!(one.contains("Mistake:") && one.contains("Correction:"), "{one}");
    let unknown = p4shield(&["explain", "E0000"]);
    assert_eq!(code(&unknown), 3);
    assert!(stderr(&unknown).contains("`p4shield explain` lists all codes"), "{}", stderr(&unknown));
}

/// Returns the commands that the help lists.
fn commands() -> Vec<String> {
    let help = stdout(&p4shield(&["--help"]));
    let listed =
        help.lines().skip_while(|l| !l.starts_with("Commands:")).skip(1).take_while(|l| !l.is_empty());
    let names = listed.filter(|l| l.starts_with("  ") && !l.starts_with("   "));
    names.filter_map(|l| l.split_whitespace().next()).filter(|c| *c != "help").map(str::to_owned).collect()
}

#[test]
fn the_help_of_every_command_has_an_example() {
    let all = commands();
    assert!(all.len() > 15, "{all:?}");
    for command in all {
        let out = p4shield(&[&command, "--help"]);
        let help = stdout(&out);
        assert_eq!(code(&out), 0, "{command}");
        assert!(help.contains("Example"), "the help of {command} has no example:\n{help}");
        assert!(help.contains(&format!("p4shield {command}")), "{help}");
        let mut written = help.lines().take_while(|l| !l.starts_with("Usage"));
        assert!(written.all(|l| l.chars().count() <= 100), "too wide for a terminal:\n{help}");
        let short = stdout(&p4shield(&[&command, "-h"]));
        assert!(short.lines().count() <= help.lines().count(), "{command}");
    }
}

#[test]
fn completions_and_man_pages_name_every_command() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(code(&p4shield(&["man", folder.path().to_str().unwrap()])), 0);
    let completions = completed(&["p4shield", ""]);
    for command in commands() {
        assert!(completions.contains(&command), "bash does not complete {command}: {completions:?}");
    }
    for shell in ["zsh", "fish"] {
        let script = stdout(&p4shield(&["completions", shell]));
        assert!(script.contains("P4SHIELD_COMPLETE"), "{shell}: {script}");
    }
    for command in commands() {
        let page = std::fs::read_to_string(folder.path().join(format!("p4shield-{command}.1")));
        assert!(page.is_ok_and(|p| p.contains("Example")), "{command} has no man page with an example");
    }
}
