//! The tutorials for operators and P4 authors, and README's story of a switch, executed word for word: the
//! commands are those of the page, and what they print is compared with what the page shows.

use std::path::Path;
use std::process::{Command, Stdio};

use p4shield_testbed::process::find;

const OPERATOR: &str = include_str!("../../../../../docs/tutorials/operator.md");
const TENANT_SWITCHES: &str = include_str!("../../../../../docs/tutorials/tenant-switches.md");
const SWITCH: &str = include_str!("../../../../../docs/tutorials/switch.md");
const README: &str = include_str!("../../../../../README.md");
const ROUTER: &str = include_str!("../../../../../examples/programs/router.p4");

/// What differs between machines and runs, as commands of sed. Everything else is compared.
const SAME: &str = r"
s/[0-9a-f]{64}/DIGEST/g
s/\b[0-9a-f]{12}\b/DIGEST/g
s/key [0-9a-f]{16}/key ID/
s/process [0-9]+/process PID/g
s/cgroup: .*/cgroup/
s/[0-9]+ (packets|passed|log records)/N \1/g
s/[0-9]+ dropped.*/N dropped/
s/[0-9]+ (to it|pings without)/N \1/g
s/(to it, dropped ).*/\1N/
s/^([a-z]+ +)[0-9]+( +[0-9]+MiB)/\1N\2/
s/[0-9]{4}-[0-9-]+T[0-9:]+Z/TIME/
s/curl: \(28\) .*/curl: (28) TIMEOUT/
s/(ingress|egress) at (xdp|tcx|tc)/\1 at HOOK/g
/^\[[0-9]+\].*Terminated/d
s/(\} )[0-9]+$/\1N/
s/, time [0-9]+ms/, time N/
s/^rtt .*/rtt/
s/(ran for|waited) [0-9.]+ s/\1 N s/g
s/p4shield [0-9.]+ \(/p4shield VERSION (/
";

/// A step of the page.
struct Step {
    commands: String,
    /// What they print, if the page shows it.
    output: Option<String>,
}

/// Returns the page's code blocks as steps: `sh` is executed, `toml` is written to the file that the line
/// before it names, and `text` is what the step before it prints.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = page.lines();
    let mut before = "";
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else {
            before = if line.is_empty() { before } else { line };
            continue;
        };
        let block: String = lines.by_ref().take_while(|l| *l != "```").map(|l| format!("{l}\n")).collect();
        match language {
            "sh" => steps.push(Step { commands: block, output: None }),
            "toml" => {
                // A P4 VM that has no core for a while answers all the same: a missed deadline is a problem
                // for minutes.
                let key = "key_file = \"alice.key\"\n";
                let block = block.replace(key, &format!("{key}deadline = \"10s\"\n"));
                let path = before.strip_prefix("Write `").and_then(|l| l.strip_suffix("`:"));
                let path = path.unwrap_or_else(|| panic!("no file is named before:\n{block}"));
                steps.push(Step { commands: format!("cat >{path} <<'TOML'\n{block}TOML\n"), output: None });
            }
            "p4" => assert!(ROUTER.contains(&block), "router.p4 says something else:\n{block}"),
            // A drawing precedes the first command of its section.
            "text" if block.contains('│') => {}
            "text" => {
                let step = steps.last_mut().expect("a step precedes its output");
                assert!(step.output.is_none(), "two outputs of one step:\n{block}");
                step.output = Some(block);
            }
            other => panic!("the test does not know code blocks of {other:?}"),
        }
    }
    steps
}

/// Returns what this machine lacks for the test.
fn missing() -> Option<String> {
    if let Err(why) = p4shield_testbed::usable() {
        return Some(why);
    }
    let absent = ["unshare", "curl", "python3"].into_iter().find(|command| find(command).is_none());
    if let Some(command) = absent {
        return Some(format!("the command {command} is missing"));
    }
    let overlay = "mount -t tmpfs none /mnt && mkdir /mnt/u /mnt/w /mnt/r && \
                   mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/u,workdir=/mnt/w /mnt/r";
    let mounted = Command::new("unshare").args(["-m", "sh", "-c", overlay]).output();
    mounted.is_ok_and(|o| !o.status.success()).then(|| "this container must not mount an overlay".into())
}

#[test]
fn the_operators_tutorial_works_word_for_word() {
    tour("tutorial", OPERATOR);
}

#[test]
fn the_tutorial_of_tenant_switches_works_word_for_word() {
    if let Err(why) = p4shield_testbed::OpenVswitch::usable() {
        p4shield_need::skip("openvswitch", why);
        return;
    }
    tour("tenant-switches", TENANT_SWITCHES);
}

#[test]
fn the_tutorial_of_p4_authors_works_word_for_word() {
    tour("switch-tutorial", SWITCH);
}

#[test]
fn the_readmes_switch_works_word_for_word() {
    let (_, story) = README.split_once("## A P4 switch of your own\n").unwrap();
    let (story, _) = story.split_once("\n## ").unwrap();
    tour("readme-switch", story);
}

/// Executes a page.
fn tour(name: &str, page: &str) {
    if let Some(why) = missing() {
        p4shield_need::skip("machine", why);
        return;
    }
    let folder = p4shield_testbed::leftover::folder(name).unwrap();
    let steps = steps(page);
    let shown = steps.iter().filter(|step| step.output.is_some()).count();
    assert!(steps.len() > 6 && shown >= 4, "{} steps, {shown} with output", steps.len());
    std::fs::create_dir(folder.path().join("steps")).unwrap();
    std::fs::write(folder.path().join("same.sed"), SAME).unwrap();
    for (n, step) in steps.iter().enumerate() {
        let file = folder.path().join("steps").join(n.to_string());
        std::fs::write(&file, &step.commands).unwrap();
        if let Some(output) = &step.output {
            std::fs::write(file.with_extension("expected"), output).unwrap();
        }
    }
    let binary = Path::new(env!("CARGO_BIN_EXE_p4shield"));
    let own = std::env::current_exe().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().unwrap();
    // The script's processes end with the first process of its PID namespace, and its mounts with them.
    let toured = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash"])
        .arg(source.join("crates/cli/p4shield/tests/tutorial.sh"))
        .env("P4SHIELD", binary)
        .env("LIBRARIES", own.parent().unwrap())
        .env("P4VM", p4shield_testbed::guest::p4vm_program().unwrap())
        .env("SWITCHVM", p4shield_testbed::guest::switch_program().unwrap())
        .env("TENANTVM", p4shield_testbed::guest::tenant_switch_program().unwrap())
        .env("SOURCE", &source)
        .env("FOLDER", folder.path())
        .env_remove("P4SHIELD_LOG")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&toured.stdout).into_owned();
    let complained = String::from_utf8_lossy(&toured.stderr).into_owned();
    assert!(toured.status.success() && said.ends_with("the tour is over\n"), "{said}\n---\n{complained}");
}

#[test]
fn a_block_is_a_step_a_file_or_an_output() {
    let page = "a\n\n```sh\nx\n```\n\n```text\ny\n```\n\nWrite `/z`:\n\n```toml\nk = 1\n```\n";
    let steps = steps(page);
    assert_eq!(steps.len(), 2);
    assert_eq!((steps[0].commands.as_str(), steps[0].output.as_deref()), ("x\n", Some("y\n")));
    assert_eq!(steps[1].commands, "cat >/z <<'TOML'\nk = 1\nTOML\n");
}
