//! What `p4shield run --check` reports: files that the configuration names and that `run` could not use.
//!
//! Nothing is started, created or changed.

use super::machines;
use crate::config::{Config, Problem};
use crate::programs::bundle_files as bundles;
use crate::programs::read_objects;
use p4shield_probe::Host;
use p4shield_seal::TenantKey;
use p4shield_text::chain;
use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Opens and reads what the daemon would: keys, objects, pages, and the folders of sockets and state.
/// `verify` verifies the program that consists of these objects, or returns why a P4 VM refuses it.
///
/// Returns all problems, in the order of the configuration.
pub fn preflight(config: &Config, verify: &mut dyn FnMut(&[PathBuf]) -> Result<(), String>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut report = |path: &Path, message: String| problems.push(config.problem_with(path, message));
    for (key, _) in config.tenants.iter().flat_map(|t| t.key_files()) {
        if let Err(error) = TenantKey::load(key) {
            report(key, format!("key_file: {}", chain(&error)));
        }
    }
    let vms = || config.tenants.iter().flat_map(|t| &t.vms);
    let mut verified = HashSet::new();
    bundles::check(config).into_iter().for_each(|(path, message)| report(&path, message));
    let of_objects = config.tenants.iter().filter(|t| t.bundle_key.is_none());
    let programs = of_objects.flat_map(|t| &t.vms).flat_map(|vm| &vm.programs);
    for objects in programs.filter(|o| !o.is_empty()) {
        if verified.insert(objects) {
            program(objects, verify).into_iter().for_each(|(path, message)| report(path, message));
        }
    }
    for page in vms().flat_map(crate::config::Vm::pages) {
        if std::fs::symlink_metadata(page).is_ok_and(|file| file.is_dir()) {
            report(page, format!("page: {} is a folder; write the path of a file", page.display()));
        }
        check_folder("page", page).into_iter().for_each(|message| report(page, message));
    }
    machines::problems(config, &Host::this()).into_iter().for_each(|(path, message)| report(path, message));
    let daemon = &config.daemon;
    for (what, path) in [("socket", &daemon.socket), ("attach_socket", &daemon.attach_socket)] {
        check_folder(what, path).into_iter().for_each(|message| report(path, message));
    }
    problems.sort_by_key(|p| (p.line, p.column));
    problems
}

/// Returns the objects that cannot be used, with the reasons.
fn program<'o>(
    objects: &'o [PathBuf],
    verify: &mut dyn FnMut(&[PathBuf]) -> Result<(), String>,
) -> Vec<(&'o Path, String)> {
    let unreadable = |object: &'o PathBuf| {
        let error = read_objects(std::slice::from_ref(object)).err()?;
        Some((object.as_path(), error))
    };
    let unreadable: Vec<_> = objects.iter().filter_map(unreadable).collect();
    if !unreadable.is_empty() {
        return unreadable;
    }
    verify(objects).err().map(|why| (objects[0].as_path(), format!("program: {why}"))).into_iter().collect()
}

/// Returns why the folder of this path neither exists nor can be created.
fn check_folder(what: &str, path: &Path) -> Option<String> {
    for folder in path.parent()?.ancestors().filter(|folder| !folder.as_os_str().is_empty()) {
        match std::fs::metadata(folder) {
            Ok(file) if file.is_dir() => return None,
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            other => {
                let why = other.err().map_or_else(|| "is not a folder".to_owned(), |e| e.to_string());
                return Some(format!(
                    "{what}: {} cannot be created: {}: {why}",
                    path.display(),
                    folder.display()
                ));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const CONFIG: &str = r#"
[daemon]
socket = "file/p4shield.sock"
[[tenant]]
name = "alice"
key_file = "alice.key"
[[tenant.vm]]
name = "web"
addresses = ["10.0.0.2"]
ingress = ["pipe", "missing.o"]
egress = ["right.o"]
info_page = "file/web.info"
log_page = "folder"
[[tenant.vm]]
name = "db"
addresses = ["10.0.0.3"]
ingress = ["refused.o"]
egress = ["right.o"]
"#;

    #[test]
    fn machines_that_could_not_start_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let text = "[machine]\nimage = \"image\"\nqemu = \"./qemu\"\n[[tenant]]\nname = \"alice\"\n\
                    compartment = \"COMPARTMENT\"\n[[tenant.vm]]\nname = \"web\"\n\
                    addresses = [\"10.0.0.2\"]\n";
        let found = |compartment: &str| {
            let text = text.replace("COMPARTMENT", compartment);
            let config = Config::parse(&folder.path().join("p4shield.toml"), &text).unwrap();
            let problems = preflight(&config, &mut |_| Ok(()));
            let shown = problems.iter().map(ToString::to_string).filter(|p| !p.contains("socket"));
            shown.collect::<Vec<_>>()
        };
        assert_eq!(found("process"), [""; 0]);
        let shown = found("vm");
        assert!(
            shown[0].starts_with("2:9: image: cannot read ") && shown[0].contains("image build"),
            "{shown:#?}"
        );
        assert!(shown[1].starts_with("3:8: qemu: ") && shown[1].contains("qemu-system-x86"), "{shown:#?}");
    }

    #[test]
    fn all_files_that_run_could_not_use_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["file", "right.o", "refused.o"] {
            std::fs::write(at(name), "").unwrap();
        }
        std::fs::create_dir(at("folder")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RUSR).unwrap();
        TenantKey::generate(&at("alice.key")).unwrap();
        std::fs::set_permissions(at("alice.key"), std::fs::Permissions::from_mode(0o644)).unwrap();
        let config = Config::parse(&at("p4shield.toml"), CONFIG).unwrap();
        let mut verified = Vec::new();
        let problems = preflight(&config, &mut |objects| {
            verified.push(objects.to_vec());
            if objects == [at("refused.o")] { Err("it never ends".into()) } else { Ok(()) }
        });
        assert_eq!(verified, [[at("right.o")], [at("refused.o")]], "each program once");
        let shown: Vec<_> = problems.iter().map(ToString::to_string).collect();
        let expected = [
            ("1:1", "socket: "),
            ("6:12", "key_file: "),
            ("10:12", "is not a regular file"),
            ("10:20", "cannot read object"),
            ("12:13", "is not a folder"),
            ("13:12", "is a folder"),
            ("17:12", "program: it never ends"),
        ];
        assert_eq!(shown.len(), expected.len(), "{shown:#?}");
        for (shown, (place, text)) in shown.iter().zip(expected) {
            assert!(shown.starts_with(&format!("{place}: ")) && shown.contains(text), "{shown}");
        }
    }
}
