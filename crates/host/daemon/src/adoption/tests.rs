use super::*;
use rustix::process::getpid;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

fn record() -> P4VmRecord {
    let process = ProcessIdentity::of(getpid()).unwrap();
    let mark = ProgramMark { objects: [1; 32], digest: [2; 32] };
    P4VmRecord {
        bundle_key: None,
        tenant: "alice".to_owned(),
        process,
        pages: vec![[None, None, None]],
        programs: vec![[Some(mark), None]],
    }
}

fn folder() -> (tempfile::TempDir, AdoptionFolder) {
    let outer = tempfile::tempdir().unwrap();
    let folder = AdoptionFolder::beside(&outer.path().join("daemon.sock")).unwrap();
    (outer, folder)
}

#[test]
fn a_record_is_read_as_it_was_written_and_forgotten() {
    let (_outer, folder) = folder();
    assert_eq!(folder.load::<P4VmRecord>("3"), None);
    folder.save("3", &record()).unwrap();
    assert_eq!(folder.load("3"), Some(record()));
    folder.forget("3");
    assert_eq!(folder.load::<P4VmRecord>("3"), None);
}

#[test]
fn a_damaged_record_is_none() {
    let (_outer, folder) = folder();
    for damage in ["", "{}", "[1", "\u{0}"] {
        std::fs::write(folder.at("3.json"), damage).unwrap();
        assert_eq!(folder.load::<P4VmRecord>("3"), None, "{damage:?}");
    }
}

/// What a planted folder would make the daemon do: kill the process that it names.
fn plant(folder: &Path) -> std::process::Child {
    let victim = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let process = ProcessIdentity::of(rustix::process::Pid::from_child(&victim)).unwrap();
    let record = serde_json::to_vec(&ProcessRecord { process }).unwrap();
    std::fs::write(folder.join("3.json"), record).unwrap();
    victim
}

#[test]
fn a_planted_folder_is_refused_before_it_is_read() {
    let (outer, _folder) = folder();
    let path = outer.path().join("daemon.sock.p4vms");
    let mode = |mode| std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    let mut victim = plant(&path);
    let socket = outer.path().join("daemon.sock");
    for planted in [0o770, 0o707, 0o1777] {
        mode(planted);
        let error = AdoptionFolder::beside(&socket).unwrap_err();
        assert!(matches!(error, DaemonError::Adoption { .. }), "{error}");
    }
    mode(0o700);
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(4242), None).unwrap();
        let error = AdoptionFolder::beside(&socket).unwrap_err();
        assert!(matches!(&error, DaemonError::Adoption { path: p, .. } if *p == path), "{error}");
        std::os::unix::fs::chown(&path, Some(0), None).unwrap();
    }
    assert!(victim.try_wait().unwrap().is_none(), "it was killed");
    victim.kill().unwrap();
    victim.wait().unwrap();
}

#[test]
fn a_link_in_the_place_of_the_folder_is_refused() {
    let outer = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(outer.path(), outer.path().join("linked.sock.p4vms")).unwrap();
    let error = AdoptionFolder::beside(&outer.path().join("linked.sock")).unwrap_err();
    assert!(error.to_string().contains("linked.sock.p4vms"), "{error}");
}

#[test]
fn an_opened_folder_stays_the_same_whatever_has_its_name() {
    let (outer, folder) = folder();
    folder.save("3", &record()).unwrap();
    let path = outer.path().join("daemon.sock.p4vms");
    std::fs::rename(&path, outer.path().join("moved")).unwrap();
    std::fs::create_dir(&path).unwrap();
    let mut victim = plant(&path);
    assert_eq!(folder.load("3"), Some(record()));
    folder.forget("3");
    folder.end_all();
    assert!(victim.try_wait().unwrap().is_none(), "it was killed");
    victim.kill().unwrap();
    victim.wait().unwrap();
}

#[test]
fn a_door_works_below_a_path_that_is_too_long_for_a_socket() {
    let outer = tempfile::tempdir().unwrap();
    let deep = outer.path().join("d".repeat(120));
    std::fs::create_dir(&deep).unwrap();
    let folder = AdoptionFolder::beside(&deep.join("daemon.sock")).unwrap();
    assert!(folder.connect("0").is_err());
    let door = folder.listen("0").unwrap();
    assert!(folder.connect("0").is_ok());
    drop(door);
    assert!(folder.connect("0").is_err(), "its process is gone");
}

#[test]
fn the_running_configuration_keeps_its_numbers() {
    let (outer, folder) = folder();
    let parse = |tenants: &[&str]| {
        let tenant = |t: &&str| {
            format!(
                "[[tenant]]\nname = \"{t}\"\n[[tenant.vm]]\nname = \"{t}\"\naddresses = [\"10.0.0.{}\"]\n",
                t.as_bytes()[0]
            )
        };
        let tenants = tenants.iter().map(tenant).collect::<String>();
        Config::parse(&outer.path().join("x.toml"), &tenants).unwrap()
    };
    let running = parse(&["b", "a"]).numbered_like(&parse(&["a", "c", "b"]));
    folder.save_running(&running).unwrap();
    assert_eq!(folder.running(&parse(&["d"])), None, "no P4 VM runs");
    folder.save("1", &record()).unwrap();
    assert_eq!(folder.running(&parse(&["d"])), Some(running));
}
