//! `p4shield switch load`: another program, while packets flow.

use super::*;
use p4shield_testbed::ping;

/// The router with a table of its own before the routes, and a counter.
fn with_acl() -> String {
    let router = std::fs::read_to_string(example("programs/router.p4")).unwrap();
    let acl = "
    counter(4, CounterType.packets) seen;
    table acl {
        key = { hdr.ipv4.source: ternary; }
        actions = { drop; NoAction; }
        default_action = NoAction();
    }
    apply {
        seen.count(1);
";
    let condition = "        if (hdr.ipv4.isValid() && hdr.ipv4.ttl > 1";
    let (before, after) = router.split_once(&format!("    apply {{\n{condition}")).unwrap();
    let after = after.replacen("routes.apply();", "routes.apply();\n            acl.apply();", 1);
    format!("{before}{acl}{condition}{after}")
}

#[test]
fn a_program_is_replaced_without_a_lost_packet() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start();
    scene.add_routes();
    wait_until("a ping through the switch", 20, || scene.pings()).unwrap();
    let (router, acl) = (example("programs/router.p4"), scene.file("acl.p4", &with_acl()));
    let (mut answered, mut replaced) = (0, 0);
    // Once, unless the switch has no core at the end.
    for _ in 0..5 {
        let mut ping = scene.left.command("ping");
        let pinging = std::thread::spawn(move || run(ping.args(["-i0.003", "-c1300", "10.9.2.1"])));
        while !pinging.is_finished() {
            let (program, kept) = if replaced % 2 == 0 {
                (&acl, "keeps its state: RouterIngress.routes\n")
            } else {
                (
                    &router,
                    "keeps its state: RouterIngress.routes\nlost: RouterIngress.seen, RouterIngress.acl\n",
                )
            };
            assert_eq!(scene.asks(&["load", program]), kept);
            replaced += 1;
        }
        let result = pinging.join().unwrap().unwrap_or_default();
        assert_eq!(ping::lost(&result), 0, "{replaced} replacements: {result}");
        answered = ping::answered(&result).len();
        if answered > 1000 {
            break;
        }
    }
    assert!(answered > 1000 && replaced > 2, "{answered} pings, {replaced} replacements");
}

#[test]
fn a_replaced_program_keeps_what_both_declare() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start();
    scene.add_routes();
    let routes = scene.asks(&["table", "list", "routes"]);
    scene.asks(&["load", &scene.file("acl.p4", &with_acl())]);
    assert_eq!(scene.asks(&["table", "list", "routes"]), routes);
    scene.asks(&["table", "add", "acl", "10.9.1.1", "--priority", "1", "--action", "drop"]);
    assert!(!scene.pings(), "the new table drops");
    // A larger counter is another one; entries of both tables stay.
    let larger = with_acl().replace("counter(4,", "counter(8,");
    let answer = scene.asks(&["load", &scene.file("larger.p4", &larger), "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["lost"], serde_json::json!(["RouterIngress.seen"]));
    assert_eq!(scene.asks(&["table", "list", "routes"]), routes);
    assert!(!scene.pings(), "the entry drops");
    let status: serde_json::Value = serde_json::from_str(&scene.asks(&["status", "--json"])).unwrap();
    assert!(status["program"].as_str().unwrap().ends_with("larger.p4"), "{status}");

    scene.asks(&["table", "delete", "acl", "10.9.1.1", "--priority", "1"]);
    wait_until("a ping through the new program", 20, || scene.pings()).unwrap();
    for (file, text, why) in [
        ("wrong.p4", larger.replace("routes.apply();", "roads.apply();"), "roads"),
        ("wrong.o", "no object".to_owned(), "wrong.o"),
    ] {
        scene.refuses(&["load", &scene.file(file, &text)], why);
    }
    assert_eq!(scene.asks(&["table", "list", "routes"]), routes);
    assert!(scene.answers(), "the program that ran goes on");
}
