//! `p4shield program counters`, `registers` and `tables` with a daemon and a P4 VM.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{code, example, p4shield, stderr, stdout};

const CONFIG: &str = r#"
attachment = "dpdk"
[daemon]
socket = "daemon.sock"
attach_socket = "attach.sock"
[[tenant]]
name = "alice"
[[tenant.vm]]
name = "web"
addresses = ["10.0.0.2"]
ingress = ["filter.o"]
"#;

/// A daemon, killed when dropped.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a daemon for one VM with an example program, and waits until the program runs.
fn daemon(folder: &Path) -> Daemon {
    let object = folder.join("filter.o").display().to_string();
    let made = p4shield(&["compile", &example("programs/port_filter.p4"), "-o", &object]);
    assert_eq!(code(&made), 0, "{}", stderr(&made));
    std::fs::write(folder.join("p4shield.toml"), CONFIG).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_p4shield"));
    command.args(["run", "--config"]).arg(folder.join("p4shield.toml")).stdin(Stdio::null());
    let daemon = Daemon(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let end = Instant::now() + Duration::from_secs(60);
    while !stdout(&p4shield(&["metrics", "--socket", &socket(folder)])).contains("p4shield_program_info{") {
        assert!(Instant::now() < end, "the program never ran");
        std::thread::sleep(Duration::from_millis(50));
    }
    daemon
}

fn socket(folder: &Path) -> String {
    folder.join("daemon.sock").display().to_string()
}

#[test]
fn the_state_of_a_running_program_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let _daemon = daemon(folder.path());
    let socket = socket(folder.path());
    let show = |words: &[&str]| p4shield(&[&["program"], words, &["--socket", &socket]].concat());

    let tables = show(&["tables", "web"]);
    let text = stdout(&tables);
    assert_eq!(code(&tables), 0, "{}", stderr(&tables));
    for part in
        ["tenant alice, VM web, ingress: program ", "\ntable ", " exact 16 bits", "=0x0050", "-> ", "default"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let counters =
        show(&["counters", "web", "--tenant", "alice", "--direction", "ingress", "--all", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&stdout(&counters)).unwrap();
    let counter = &json["directions"][0]["objects"][0];
    assert_eq!(
        (counter["kind"].as_str(), counter["rows"][0]["packets"].as_u64()),
        (Some("counter"), Some(0))
    );
    let registers = show(&["registers", "web"]);
    assert!(stdout(&registers).contains("the program has no registers"), "{}", stdout(&registers));

    for (words, error) in [
        (&["counters", "mail"][..], "no VM \"mail\""),
        (&["counters", "web", "--direction", "egress"], "no egress program"),
        (&["tables", "web", "--name", "nothing"], "it has: "),
    ] {
        let failed = show(words);
        assert_eq!(code(&failed), 1, "{words:?}");
        assert!(stderr(&failed).contains(error), "{error}: {}", stderr(&failed));
    }
    assert_eq!(code(&show(&["counters", "web", "--limit", "3", "--all"])), 2, "contradictory options");
}

#[test]
fn a_watched_program_is_shown_again_and_again() {
    use std::io::{BufRead, BufReader};
    let folder = tempfile::tempdir().unwrap();
    let _daemon = daemon(folder.path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_p4shield"));
    command.args([
        "program",
        "counters",
        "web",
        "--json",
        "--watch",
        "0.1",
        "--socket",
        &socket(folder.path()),
    ]);
    let mut watch = Daemon(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap());
    let lines = BufReader::new(watch.0.stdout.take().unwrap()).lines();
    let shown: Vec<serde_json::Value> =
        lines.take(3).map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    assert!(shown.iter().all(|view| view["vm"] == "web"), "{shown:?}");
    // The reader is gone.
    assert!(watch.0.wait().unwrap().success());
}
