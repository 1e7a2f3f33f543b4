use super::*;
use rustix::process::getpid;

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
    let folder = AdoptionFolder::beside(&outer.path().join("daemon.sock"));
    folder.create().unwrap();
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
        std::fs::write(folder.path.join("3.json"), damage).unwrap();
        assert_eq!(folder.load::<P4VmRecord>("3"), None, "{damage:?}");
    }
}

#[test]
fn only_its_user_may_enter_the_folder() {
    let (outer, folder) = folder();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder.path), 0o700);
    std::fs::set_permissions(&folder.path, PermissionsExt::from_mode(0o777)).unwrap();
    folder.create().unwrap();
    assert_eq!(mode(&folder.path), 0o700);
    let linked = AdoptionFolder::beside(&outer.path().join("linked.sock"));
    std::os::unix::fs::symlink(outer.path(), &linked.path).unwrap();
    assert!(linked.create().is_err(), "a link leads elsewhere");
}

#[test]
fn a_door_works_below_a_path_that_is_too_long_for_a_socket() {
    let outer = tempfile::tempdir().unwrap();
    let deep = outer.path().join("d".repeat(120));
    std::fs::create_dir(&deep).unwrap();
    let folder = AdoptionFolder::beside(&deep.join("daemon.sock"));
    folder.create().unwrap();
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
