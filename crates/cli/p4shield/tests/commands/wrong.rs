//! Wrong configurations: `run --check` reports each with its place and what to do, and accepts none.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::common::{code, p4shield, stderr};

const RIGHT: &str = r#"[daemon]
socket = "p4shield.sock"
metrics = "127.0.0.1:9464"
[[tenant]]
name = "alice"
key_file = "alice.key"
deadline = "200ms"
max_held = 1024
slots = 1024
memory = "512MiB"
[[tenant.vm]]
name = "web"
addresses = ["10.0.0.1", "fd00::1"]
ingress = ["right.o"]
info_page = "web.info"
log_page = "web.log"
[[tenant]]
name = "bob"
key_file = "bob.key"
[[tenant.vm]]
name = "db"
addresses = ["10.0.0.2"]
log_page = "db.log"
[[wire]]
vm_interface = "tap0"
switch_interface = "sw0"
tenant = "alice"
vm = "web"
"#;

/// What is replaced by what, the place that is reported, and a part of the report.
const WRONG: &[(&str, &str, &str, &str)] = &[
    ("socket = \"p4shield.sock\"", "sokcet = \"p4shield.sock\"", "2:1", "unknown field `sokcet`"),
    ("[[wire]]", "[[wire", "24:", "expected"),
    ("attachment", "attachment", "1:14", "attachment: \"switch\" is unknown"),
    ("127.0.0.1:9464", "0.0.0.0:9464", "3:11", "is not a loopback address"),
    ("socket = ", "allow_missing = [\"secomp\"]\nsocket = ", "2:18", "there is no sandbox measure"),
    ("name = \"bob\"", "name = \"alice\"", "18:8", "alice"),
    ("name = \"bob\"", "name = \"b b\"", "18:8", "is not a valid name"),
    ("name = \"bob\"", "name = \"bob\"\nfail = \"dorp\"", "19:8", "fail: \"dorp\""),
    ("\"200ms\"", "2", "7:12", "\"2ms\""),
    ("\"200ms\"", "\"90s\"", "7:12", "deadline"),
    ("max_held = 1024", "max_held = 0", "8:12", "max_held"),
    ("slots = 1024", "slots = 1000", "9:9", "is not a power of two; write slots = 1024"),
    ("512MiB", "5MiB", "10:10", "is not a size of at least 64MiB"),
    ("10.0.0.2", "10.0.0", "22:14", "10.0.0"),
    ("10.0.0.2", "224.0.0.1", "22:14", "multicast"),
    ("10.0.0.2", "255.255.255.255", "22:14", "broadcast"),
    ("10.0.0.2", "0.0.0.0", "22:14", "0.0.0.0"),
    ("10.0.0.2", "fd00:0::1", "22:14", "fd00::1"),
    ("alice.key", "missing.key", "6:12", "missing.key"),
    ("alice.key", "open.key", "6:12", "open.key"),
    ("alice.key", "short.key", "6:12", "short.key"),
    ("bob.key", "alice.key", "19:12", "alice.key"),
    ("right.o", "missing.o", "14:12", "cannot read object"),
    ("right.o", "text.o", "14:12", "program: "),
    ("right.o", "endless.o", "14:12", "program: "),
    ("right.o", "pipe", "14:12", "is not a regular file"),
    ("db.log", "web.log", "23:12", "web.log"),
    ("web.info", "text.o/web.info", "15:13", "cannot be created"),
    ("tenant = \"alice\"", "tenant = \"carol\"", "27:10", "there is no [[tenant]] named \"carol\""),
    ("vm = \"web\"", "vm = \"wbe\"", "28:6", "has no VM named \"wbe\""),
    ("\"sw0\"", "\"tap0\"", "26:20", "tap0"),
    ("[[wire]]", "[[port]]\nname = \"p0\"\nrole = \"uplink\"\n[[wire]]", "25:8", "[[port]] needs attachment"),
];

fn prepare(folder: &Path) {
    let at = |name: &str| folder.join(name).display().to_string();
    for key in ["alice.key", "bob.key", "open.key"] {
        assert_eq!(code(&p4shield(&["keygen", &at(key)])), 0);
    }
    std::fs::set_permissions(folder.join("open.key"), PermissionsExt::from_mode(0o644)).unwrap();
    std::fs::write(folder.join("short.key"), [7; 31]).unwrap();
    std::fs::set_permissions(folder.join("short.key"), PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::write(folder.join("text.o"), "not an object").unwrap();
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, folder.join("pipe"), mode).unwrap();
    let program = |body: &str| {
        format!("__attribute__((section(\"p4\"))) long p4_main(unsigned long long *c) {{ {body} }}")
    };
    for (name, body) in [("right", "return 1;"), ("endless", "for (;;) c[0] = 1;")] {
        let source = at(&format!("{name}.c"));
        std::fs::write(&source, program(body)).unwrap();
        let mut clang = std::process::Command::new("clang");
        clang.args(["-O2", "-target", "bpf", "-mcpu=v3", "-c", &source, "-o", &at(&format!("{name}.o"))]);
        assert!(clang.status().unwrap().success());
    }
}

#[test]
fn wrong_configurations_are_reported_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
    let file = folder.path().join("p4shield.toml");
    let check = |text: &str| {
        std::fs::write(&file, text).unwrap();
        p4shield(&["run", "--check", "--config", file.to_str().unwrap()])
    };
    let right = check(RIGHT);
    assert_eq!(code(&right), 0, "{}", stderr(&right));
    assert!(WRONG.len() >= 25);
    let mut unexpected = Vec::new();
    for (old, new, place, part) in WRONG {
        let text = match *old {
            "attachment" => format!("attachment = \"switch\"\n{RIGHT}"),
            old => RIGHT.replacen(old, new, 1),
        };
        let wrong = check(&text);
        let report = stderr(&wrong);
        if text == RIGHT
            || code(&wrong) != 3
            || !report.contains(&format!(":{place}"))
            || !report.contains(part)
        {
            unexpected.push(format!("{old} -> {new}, {place} {part}: {report}"));
        }
    }
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
}
