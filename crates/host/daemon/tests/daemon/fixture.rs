//! Folders, keys, programs and configurations of a test.

use p4shield_daemon::config::Config;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Far longer than any step takes, so that a test that hangs ends.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with the files of two tenants: alice (10.0.0.1) and bob (10.0.0.2). Removed when dropped.
pub(crate) struct Fixture {
    pub(crate) folder: PathBuf,
}

pub(crate) const PASS: &str = "__attribute__((section(\"p4\"))) long p4_main(void *c) { return 1; }";
pub(crate) const DROP: &str = "__attribute__((section(\"p4\"))) long p4_main(void *c) { return 0; }";
pub(crate) const UNSAFE: &str =
    "__attribute__((section(\"p4\"))) long p4_main(unsigned long long *c) { return *(char *)(c[0] + 20); }";

impl Fixture {
    pub(crate) fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let fixture = Self { folder };
        fixture.object("pass", PASS);
        fixture.object("drop", DROP);
        fixture.object("unsafe", UNSAFE);
        p4shield_seal::TenantKey::generate(&fixture.at("bob.key")).unwrap();
        fixture
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn object(&self, name: &str, source: &str) {
        // Most fixtures have the same objects: each is compiled once.
        static COMPILED: Mutex<BTreeMap<String, Vec<u8>>> = Mutex::new(BTreeMap::new());
        let output = self.at(&format!("{name}.o"));
        let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(object) = compiled.get(source) {
            return std::fs::write(&output, object).unwrap();
        }
        let input = self.at(&format!("{name}.c"));
        std::fs::write(&input, source).unwrap();
        let mut clang = Command::new("clang");
        clang.args(["-O2", "-target", "bpf", "-mcpu=v3", "-c"]).arg(&input);
        assert!(clang.arg("-o").arg(&output).status().unwrap().success());
        compiled.insert(source.to_owned(), std::fs::read(&output).unwrap());
    }

    /// The configuration of both tenants, with bob's policy. A P4 VM that a busy machine does not let run for
    /// a while is not taken for dead: one that is stopped does not answer its keeper, either.
    pub(crate) fn text(&self, bobs_fail: &str) -> String {
        format!(
            r#"
[daemon]
socket = "daemon.sock"
[[tenant]]
name = "alice"
deadline = "10s"
stall = "30s"
[[tenant.vm]]
name = "web"
addresses = ["10.0.0.1"]
ingress = ["pass.o"]
egress = ["pass.o"]
[[tenant]]
name = "bob"
key_file = "bob.key"
fail = "{bobs_fail}"
deadline = "5ms"
stall = "30s"
[[tenant.vm]]
name = "db"
addresses = ["10.0.0.2"]
ingress = ["pass.o"]
egress = ["pass.o"]
info_page = "db.info"
log_page = "db.log"
"#
        )
    }

    pub(crate) fn config(&self, text: &str) -> Config {
        let path = self.at("p4shield.toml");
        std::fs::write(&path, text).unwrap();
        Config::load(&path).unwrap_or_else(|e| panic!("{e}"))
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Waits until `happened` returns true.
pub(crate) fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !happened() {
        assert!(Instant::now() < end, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
