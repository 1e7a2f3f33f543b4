//! `p4shield bundle`, and `p4shield audit --bundle`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::common::{code, example, p4shield, stderr, stdout};
use p4shield_bundle::author::SigningKey;
use p4shield_bundle::{BundledProgram, Contents, Entry};
use serde_json::Value;
use tempfile::TempDir;

/// A tenant's folder with a key, a compiled program and a manifest.
struct Folder(TempDir);

const MANIFEST: &str = r#"version = 3
tenant = "alice"
vm = "web"
header_bytes = 96

[ingress]
objects = ["guard.o"]

[[check]]
name = "short-packets-pass"
direction = "ingress"
packet = "000102030405 060708090a0b 88b5"
expect = "pass"
"#;

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        folder.done(&[
            "compile",
            &example("programs/tcp_guard.p4"),
            "--no-verify",
            "-o",
            &folder.at("guard.o"),
        ]);
        folder.done(&["bundle", "key", "generate", &folder.at("alice.key")]);
        std::fs::write(folder.at("web.toml"), MANIFEST).unwrap();
        folder
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// Runs a command that has to succeed.
    fn done(&self, words: &[&str]) -> String {
        let out = p4shield(words);
        assert_eq!(code(&out), 0, "{words:?}: {}", stderr(&out));
        stdout(&out)
    }

    /// Runs a command that has to be refused for this reason.
    fn refused(&self, words: &[&str], exit: i32, why: &str) {
        let out = p4shield(words);
        assert_eq!(code(&out), exit, "{words:?}: {}", stderr(&out));
        assert!(stderr(&out).contains(why), "{words:?}: {}", stderr(&out));
    }

    fn build(&self, output: &str, key: &str) -> Value {
        let (manifest, output, key) = (self.at("web.toml"), self.at(output), self.at(key));
        let made = self.done(&["bundle", "build", &manifest, "-o", &output, "--key", &key, "--json"]);
        serde_json::from_str(&made).unwrap()
    }
}

#[test]
fn a_bundle_is_built_shown_and_verified() {
    let folder = Folder::new();
    let summary = folder.build("web.bundle", "alice.key");
    let id = folder.done(&["bundle", "key", "id", &folder.at("alice.pub")]).trim().to_owned();
    assert_eq!(folder.done(&["bundle", "key", "id", &folder.at("alice.key")]).trim(), id);
    assert_eq!(
        (&summary["version"], &summary["vm"], &summary["key"]),
        (&3.into(), &"web".into(), &id.as_str().into())
    );
    assert_eq!((&summary["header_bytes"], &summary["egress"]), (&96.into(), &Value::Null));
    let verified = folder.done(&["verify", &folder.at("guard.o"), "--json"]);
    let verified: Value = serde_json::from_str(&verified).unwrap();
    assert_eq!(summary["ingress"]["digest"], verified["digest"], "the digest that P4 VM and auditor show");
    let (bundle, public) = (folder.at("web.bundle"), folder.at("alice.pub"));
    let text = folder.done(&["bundle", "verify", &bundle, "--key", &public]);
    assert!(text.contains(&format!("signed with key {id}: version 3 for VM web of tenant alice")), "{text}");
    let text = folder.done(&["bundle", "show", &bundle, "--key", &public]);
    let digest = verified["digest"].as_str().unwrap();
    for part in ["verified with key", digest, "at least 96", "egress        no program", "short-packets-pass"]
    {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
    let shown: Value =
        serde_json::from_str(&folder.done(&["bundle", "show", &bundle, "--key", &public, "--json"])).unwrap();
    assert_eq!(shown, summary);
    let before = std::fs::read(&bundle).unwrap();
    folder.build("web.bundle", "alice.key");
    assert_eq!(std::fs::read(&bundle).unwrap(), before, "the same inputs give the same bytes");
}

#[test]
fn a_bundle_that_is_not_verified_is_shown_as_such() {
    let folder = Folder::new();
    folder.build("web.bundle", "alice.key");
    let text = folder.done(&["bundle", "show", &folder.at("web.bundle")]);
    assert!(text.contains("NOT VERIFIED") && !text.contains("verified with"), "{text}");
    let json = folder.done(&["bundle", "show", &folder.at("web.bundle"), "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["verified"], false);
}

#[test]
fn a_strangers_text_reaches_no_terminal() {
    let folder = Folder::new();
    let entry = Entry { map: "\u{1b}[2J\nverified with key".into(), key: vec![1], value: vec![1] };
    let program = BundledProgram { objects: vec![vec![1]], p4info: None, entries: vec![entry] };
    let contents = Contents {
        version: 1,
        tenant: "alice".into(),
        vm: None,
        header_bytes: 64,
        programs: [Some(program), None],
        checks: Vec::new(),
    };
    let bytes = SigningKey::from_bytes(&[8; 32]).sign(&contents).unwrap();
    std::fs::write(folder.at("mallory.bundle"), bytes).unwrap();
    let text = folder.done(&["bundle", "show", &folder.at("mallory.bundle")]);
    assert!(text.contains("any VM of tenant alice") && !text.contains('\u{1b}'), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("verified")), "{text:?}");
}

#[test]
fn forged_and_foreign_bundles_are_refused_by_name() {
    let folder = Folder::new();
    folder.done(&["bundle", "key", "generate", &folder.at("mallory.key")]);
    folder.build("web.bundle", "alice.key");
    folder.build("forged.bundle", "mallory.key");
    let mut changed = std::fs::read(folder.at("web.bundle")).unwrap();
    *changed.last_mut().unwrap() ^= 1;
    std::fs::write(folder.at("changed.bundle"), changed).unwrap();
    let public = folder.at("alice.pub");
    for (file, why) in [
        ("forged.bundle", "is pinned"),
        ("changed.bundle", "a byte was changed"),
        ("guard.o", "this is no bundle"),
    ] {
        folder.refused(&["bundle", "verify", &folder.at(file), "--key", &public], 3, why);
        folder.refused(&["bundle", "show", &folder.at(file), "--key", &public], 3, why);
    }
    folder.refused(&["bundle", "show", &folder.at("changed.bundle")], 3, "a byte was changed");
    folder.refused(&["bundle", "verify", &folder.at("absent"), "--key", &public], 1, "cannot read");
    let private = folder.at("alice.key");
    folder.refused(&["bundle", "verify", &folder.at("web.bundle"), "--key", &private], 3, "no public key");
}

#[test]
fn keys_are_private_and_never_overwritten() {
    let folder = Folder::new();
    let private = folder.at("alice.key");
    assert_eq!(std::fs::metadata(&private).unwrap().permissions().mode() & 0o7777, 0o600);
    folder.refused(&["bundle", "key", "generate", &private], 1, "exists already");
    std::fs::remove_file(folder.at("alice.pub")).unwrap();
    folder.refused(&["bundle", "key", "generate", &private], 1, "never overwritten");
    folder.refused(&["bundle", "key", "generate", &folder.at("other.pub")], 3, "ends in .pub");
    std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (manifest, output) = (folder.at("web.toml"), folder.at("web.bundle"));
    folder.refused(&["bundle", "build", &manifest, "-o", &output, "--key", &private], 1, "chmod 600");
    assert!(!Path::new(&output).exists());
}

#[test]
fn a_manifest_with_problems_builds_nothing() {
    let folder = Folder::new();
    let entry = "[[ingress.entry]]\nmap = \"absent\"\nkey = \"00\"\nvalue = \"00\"\n\n[[check]]";
    for (text, exit, why) in [
        (MANIFEST.replace("version = 3", "version = 0"), 3, "web.toml:1:11: version: write 1"),
        (MANIFEST.replace("guard.o", "absent.o"), 3, "web.toml:7:12: "),
        (MANIFEST.replace("guard.o", "alice.pub"), 3, "ingress: object 1"),
        (MANIFEST.replace("[[check]]", entry), 3, "the program has no map \"absent\""),
    ] {
        std::fs::write(folder.at("web.toml"), text).unwrap();
        let (manifest, output, key) =
            (folder.at("web.toml"), folder.at("web.bundle"), folder.at("alice.key"));
        folder.refused(&["bundle", "build", &manifest, "-o", &output, "--key", &key], exit, why);
        assert!(!Path::new(&output).exists());
    }
    folder.refused(
        &["bundle", "build", "/nonexistent.toml", "-o", &folder.at("x"), "--key", &folder.at("alice.key")],
        1,
        "cannot read manifest",
    );
}

#[test]
fn an_audit_takes_no_bundle_that_is_not_the_tenants() {
    let folder = Folder::new();
    folder.done(&["bundle", "key", "generate", &folder.at("mallory.key")]);
    folder.build("web.bundle", "alice.key");
    folder.build("forged.bundle", "mallory.key");
    folder.done(&["keygen", &folder.at("vm.key")]);
    let audit = |tenant: &str, vm: &str, more: &[&str]| {
        let (key, page) = (folder.at("vm.key"), folder.at("absent.log"));
        let words: Vec<String> =
            ["audit", "--tenant", tenant, "--vm", vm, "--key", &key, "--log-page", &page]
                .into_iter()
                .chain(["--interface", "absent0", "--for", "1"])
                .chain(more.iter().copied())
                .map(str::to_owned)
                .collect();
        p4shield(&words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let (bundle, forged, public) =
        (folder.at("web.bundle"), folder.at("forged.bundle"), folder.at("alice.pub"));
    let with =
        |file: &'_ str| ["--bundle".to_owned(), file.to_owned(), "--bundle-key".to_owned(), public.clone()];
    let run = |tenant, vm, file: &str| {
        let more = with(file);
        audit(tenant, vm, &more.iter().map(String::as_str).collect::<Vec<_>>())
    };
    for (tenant, vm, file, why) in [
        ("alice", "web", &forged, "is pinned"),
        ("bob", "web", &bundle, "for tenant \"alice\""),
        ("alice", "db", &bundle, "for VM \"web\""),
    ] {
        let out = run(tenant, vm, file);
        assert_eq!(code(&out), 3, "{}", stderr(&out));
        assert!(stderr(&out).contains(why), "{}", stderr(&out));
    }
    // The right bundle is accepted: what is missing is the interface.
    let out = run("alice", "web", &bundle);
    assert!(code(&out) == 1 && stderr(&out).contains("absent0"), "{}", stderr(&out));
    for wrong in [
        &["--bundle", bundle.as_str()][..],
        &["--bundle-key", &public],
        &["--bundle", &bundle, "--bundle-key", &public, "--expect-ingress", "none"],
    ] {
        assert_eq!(code(&audit("alice", "web", wrong)), 2, "{wrong:?}");
    }
}
