//! `p4shield switch table load` and `run --entries`: files that people already have.

use super::*;

const COMMANDS: &str = "# Both hosts, each by its own route\ntable_set_default routes drop\n\
    table_add routes forward 10.9.1.0/24 => 02:00:00:00:00:01 1 // left\n\n\
    table_add RouterIngress.routes forward 10.9.2.0/24 =>  02:00:00:00:00:02 2\n\
    mc_mgrp_create 5\nmc_node_create 9 1 2\nmc_node_associate 5 0\n";

const RUNTIME: &str = r#"{
  "target": "bmv2", "p4info": "build/router.p4.p4info.txtpb", "bmv2_json": "build/router.json",
  "table_entries": [
    { "table": "RouterIngress.routes", "default_action": true, "action_name": "RouterIngress.drop",
      "action_params": {} },
    { "table": "RouterIngress.routes", "match": { "hdr.ipv4.destination": ["10.9.1.0", 24] },
      "action_name": "RouterIngress.forward",
      "action_params": { "next_hop": "02:00:00:00:00:01", "port": 1 } },
    { "table": "RouterIngress.routes", "match": { "hdr.ipv4.destination": ["10.9.2.0", 24] },
      "action_name": "RouterIngress.forward",
      "action_params": { "next_hop": "02:00:00:00:00:02", "port": 2 } }
  ],
  "multicast_group_entries": [ { "multicast_group_id": 5, "replicas": [
    { "egress_port": 1, "instance": 9 }, { "egress_port": 2, "instance": 9 } ] } ]
}
"#;

const CSV: &str = "destination,action,next_hop,port\n10.9.1.0/24,forward,02:00:00:00:00:01,1\n\
                   10.9.2.0/24,forward,02:00:00:00:00:02,2\n";

#[test]
fn files_of_three_formats_load_the_same_entries() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start();
    let mut shown = Vec::new();
    let files = [
        (scene.file("s1-commands.txt", COMMANDS), &[][..]),
        (scene.file("s1-runtime.json", RUNTIME), &["--replace"]),
        (scene.file("routes.csv", CSV), &["--replace", "--table", "routes"]),
    ];
    for (file, options) in &files {
        scene.asks(&[&["table", "load", file], *options].concat());
        wait_until("a ping by the file's routes", 20, || scene.pings()).unwrap();
        shown.push((scene.asks(&["table", "list"]), scene.asks(&["group", "list"])));
        // What the file does not replace, it need not change.
        scene.asks(&["table", "set", "routes", "10.9.2.0/24", "--action", "drop"]);
        assert!(!scene.pings(), "the entry drops");
    }
    assert!(shown[0].0.contains("2 of 1024 entries") && shown[0].1.contains("1:9 2:9"), "{shown:?}");
    assert!(shown.iter().all(|s| *s == shown[0]), "{shown:?}");
}

#[test]
fn a_file_with_a_wrong_line_changes_nothing() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start();
    scene.add_routes();
    scene.asks(&["group", "set", "5", "1"]);
    let state = || (scene.asks(&["table", "list"]), scene.asks(&["group", "list"]));
    let before = state();
    // More than the packet thread applies at once, then one that the table cannot take.
    let many = |last: &str| {
        let line = |n: u32| format!("table_add routes drop 10.8.{n}.0/24 =>\n");
        (0..200).map(line).chain(["mc_mgrp_create 5\n".into(), last.into()]).collect::<String>()
    };
    for (text, line, why) in [
        (many("table_add routes drop 10.9.2.0/24 =>\n"), 202, "matches the same"),
        (many("table_add routes forward 10.9.3.0/24 => 1 512\n"), 202, "port does not fit 9 bits"),
        (many("mirroring_add 1 3\n"), 202, "the switch has no port 3"),
        (many("mc_node_create 1 3\nmc_node_associate 5 0\n"), 203, "the switch has no port 3"),
        (
            (0..1100)
                .map(|n| format!("table_add routes drop 10.{}.{}.0/24 =>\n", n / 256, n % 256))
                .collect(),
            1023,
            "is full",
        ),
    ] {
        let file = scene.file("wrong.txt", &text);
        let answer = scene.ask(&["table", "load", &file]);
        let place = format!("wrong.txt:{line}: ");
        assert_eq!(code(&answer), 3, "{}", stderr(&answer));
        assert!(stderr(&answer).contains(&place) && stderr(&answer).contains(why), "{}", stderr(&answer));
        assert_eq!(state(), before, "{why}");
    }
    let wrong = scene.file("wrong.json", &RUNTIME.replace("\"10.9.2.0\", 24", "\"10.9.2.0\", 33"));
    scene.refuses(&["table", "load", &wrong], "wrong.json:9: `10.9.2.0/33` has a prefix");
    scene.refuses(&["table", "load", &scene.file("x.csv", CSV)], "name it with --table");
    let missing = scene.ask(&["table", "load", "nowhere.txt"]);
    assert!(
        code(&missing) == 1 && stderr(&missing).contains("cannot read nowhere.txt"),
        "{}",
        stderr(&missing)
    );
    assert_eq!(state(), before);
}

#[test]
fn a_switch_starts_with_the_entries_of_a_file() {
    let Some(scene) = Scene::new() else { return };
    let wrong = scene.file("wrong.txt", "table_add routes drop 10.0.0.0/8 =>\ntable_add nowhere drop 1 =>\n");
    let refused = scene.run_command(&["--entries", &wrong]).output().unwrap();
    let why = "wrong.txt:2: unknown table `nowhere`";
    assert!(code(&refused) == 3 && stderr(&refused).contains(why), "{}", stderr(&refused));
    let commands = scene.file("s1-commands.txt", COMMANDS);
    let _switch = scene.start_command(&mut scene.run_command(&["--entries", &commands]));
    wait_until("a ping by the file's routes", 20, || scene.pings()).unwrap();
    assert!(scene.asks(&["table", "list"]).contains("2 of 1024 entries"));
}
