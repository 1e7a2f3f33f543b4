use super::*;
use std::os::unix::fs::PermissionsExt;

fn key() -> ProgramKey {
    ProgramKey::new("alice", "web", Direction::Ingress)
}

fn load(store: &ProgramStore, bytes: &[u8], temporary: bool) -> Result<(), String> {
    let objects = vec![ObjectRecord { path: "/x.o".into(), sha256: digest(bytes) }];
    let record = ProgramRecord { objects, ..ProgramRecord::now(ProgramAction::Load, 1000, temporary) };
    store.record(&key(), record, vec![bytes.to_vec()])
}

fn revert(store: &ProgramStore) {
    store.record(&key(), ProgramRecord::now(ProgramAction::Revert, 0, false), Vec::new()).unwrap();
}

fn objects(store: &ProgramStore) -> Result<Objects, String> {
    store.objects(&key(), &[])
}

#[test]
fn a_loaded_program_survives_the_daemon() {
    let state = tempfile::tempdir().unwrap();
    let store = ProgramStore::open(Some(state.path()));
    assert_eq!((objects(&store), store.expects(&key(), false)), (Ok(Vec::new()), false));
    load(&store, b"one", false).unwrap();
    load(&store, b"two", false).unwrap();
    for store in [store, ProgramStore::open(Some(state.path()))] {
        assert_eq!(objects(&store), Ok(vec![b"two".to_vec()]));
        assert!(store.expects(&key(), false));
        let ProgramSource::Command(record) = store.source(&key()) else { panic!("a command loaded it") };
        assert_eq!((record.uid, record.objects[0].path.as_path()), (1000, Path::new("/x.o")));
        assert_eq!(store.history(&key()).len(), 2);
    }
    let files = std::fs::read_dir(state.path().join(FOLDER)).unwrap().flatten();
    let files: Vec<_> = files.map(|f| (f.path(), f.metadata().unwrap().permissions().mode())).collect();
    assert_eq!(files.len(), 2, "the record and one object: {files:?}");
    assert!(files.iter().all(|(_, mode)| mode & 0o077 == 0), "{files:?}");
    let store = ProgramStore::open(Some(state.path()));
    revert(&store);
    for store in [store, ProgramStore::open(Some(state.path()))] {
        assert_eq!((objects(&store), store.source(&key())), (Ok(Vec::new()), ProgramSource::Configuration));
        assert!(store.expects(&key(), true));
        assert_eq!(store.history(&key())[0].action, ProgramAction::Revert);
    }
    assert_eq!(std::fs::read_dir(state.path().join(FOLDER)).unwrap().count(), 1, "no object is left");
}

#[test]
fn an_unloaded_program_stays_unloaded() {
    let state = tempfile::tempdir().unwrap();
    let store = ProgramStore::open(Some(state.path()));
    store.record(&key(), ProgramRecord::now(ProgramAction::Unload, 0, false), Vec::new()).unwrap();
    let configured = state.path().join("configured.o");
    std::fs::write(&configured, "configured").unwrap();
    for store in [store, ProgramStore::open(Some(state.path()))] {
        assert_eq!(store.objects(&key(), std::slice::from_ref(&configured)), Ok(Vec::new()));
        assert!(!store.expects(&key(), true));
    }
}

#[test]
fn a_temporary_program_is_not_stored() {
    let state = tempfile::tempdir().unwrap();
    let store = ProgramStore::open(Some(state.path()));
    load(&store, b"lasting", false).unwrap();
    load(&store, b"temporary", true).unwrap();
    assert_eq!(objects(&store), Ok(vec![b"temporary".to_vec()]));
    assert_eq!(objects(&ProgramStore::open(Some(state.path()))), Ok(vec![b"lasting".to_vec()]));
    store.forget_temporary();
    assert_eq!(objects(&store), Ok(vec![b"lasting".to_vec()]));
    assert_eq!(store.history(&key()).len(), 2);
}

#[test]
fn without_a_state_folder_the_command_warns() {
    let store = ProgramStore::open(None);
    assert!(load(&store, b"one", false).unwrap_err().contains("daemon.state"));
    assert_eq!(objects(&store), Ok(vec![b"one".to_vec()]), "in force until the daemon ends");
    assert_eq!(load(&store, b"two", true), Ok(()));
    assert_eq!(objects(&store), Ok(vec![b"two".to_vec()]));
    store.forget_temporary();
    assert_eq!(objects(&store), Ok(vec![b"one".to_vec()]));
    revert(&store);
    assert_eq!(objects(&store), Ok(Vec::new()));
}

#[test]
fn what_is_damaged_is_refused_with_a_remedy() {
    let state = tempfile::tempdir().unwrap();
    load(&ProgramStore::open(Some(state.path())), b"one", false).unwrap();
    let folder = state.path().join(FOLDER);
    std::fs::write(object_path(&folder, &digest(b"one")), "other").unwrap();
    let store = ProgramStore::open(Some(state.path()));
    let error = objects(&store).unwrap_err();
    assert!(error.contains("is damaged") && error.contains("program revert"), "{error}");
    assert!(store.expects(&key(), false), "fail applies, not no_program");
    for garbage in ["", "{}", "{\"current\": 7, \"history\": []}", "\u{0}"] {
        std::fs::write(folder.join("alice+web+ingress.json"), garbage).unwrap();
        let store = ProgramStore::open(Some(state.path()));
        let error = objects(&store).unwrap_err();
        assert!(error.contains("cannot be read") && error.contains("program revert"), "{error}");
        assert!(store.expects(&key(), false), "fail applies, not no_program");
        load(&store, b"for a while", true).unwrap();
        assert_eq!(objects(&store), Ok(vec![b"for a while".to_vec()]));
        assert!(objects(&ProgramStore::open(Some(state.path()))).is_err(), "it is not repaired");
    }
    load(&ProgramStore::open(Some(state.path())), b"two", false).unwrap();
    assert_eq!(objects(&ProgramStore::open(Some(state.path()))), Ok(vec![b"two".to_vec()]));
    let outside = ObjectRecord { path: "x".into(), sha256: "../../etc/passwd".into() };
    let record =
        ProgramRecord { objects: vec![outside], ..ProgramRecord::now(ProgramAction::Load, 0, false) };
    assert!(read_stored(&folder, &record).is_err());
}

#[test]
fn the_history_is_bounded() {
    let store = ProgramStore::open(None);
    for n in 0..2 * MAX_HISTORY {
        load(&store, &n.to_le_bytes(), true).unwrap();
    }
    assert_eq!(store.history(&key()).len(), MAX_HISTORY);
}
