//! bash completes the names of the program that runs.

use super::{Scene, wait_until};
use crate::common::completed;

#[test]
fn bash_completes_names_of_the_running_program() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start();
    let socket = scene.socket().display().to_string();
    let complete = |words: &[&str]| {
        let mut offered = Vec::new();
        // A switch that does not answer within a second completes no name.
        wait_until("names of the program", 20, || {
            offered = completed(&[&["p4shield", "switch"], words].concat());
            offered.first().is_some_and(|word| !word.is_empty() && !word.starts_with('-'))
        })
        .unwrap();
        offered
    };
    assert_eq!(complete(&["table", "--socket", &socket, "list", ""])[0], "routes", "before options");
    let add = ["table", "add", "--socket", &socket, "rou"];
    assert_eq!(complete(&add), ["routes"]);
    let add = ["table", "add", "--socket", &socket, "routes"];
    assert_eq!(complete(&[&add[..], &["hdr"]].concat()), ["hdr.ipv4.destination="]);
    let add = [&add[..], &["10.9.1.0/24", "--action"]].concat();
    assert_eq!(complete(&[&add[..], &["f"]].concat()), ["forward"]);
    assert_eq!(complete(&[&add[..], &["forward", ""]].concat())[..2], ["next_hop=", "port="]);
    assert_eq!(complete(&[&add[..], &["forward", "port=1", "n"]].concat()), ["next_hop="]);
}

#[test]
fn a_switch_that_does_not_run_completes_no_name() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("no.sock").display().to_string();
    let words = ["p4shield", "switch", "table", "list", "--socket", &socket, "rou"];
    assert_eq!(completed(&words), [""; 0]);
}
