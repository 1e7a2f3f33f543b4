//! `p4shield switch mirror`.

use super::Scene;
use p4shield_testbed::wait_until;

/// Drops every packet, and clones it to the session with the number of its port.
const TAP: &str = r"
#include <v1model.p4>
header all_t { bit<112> ethernet; }
struct headers_t { all_t all; }
struct metadata_t { }
parser prs(packet_in p, out headers_t hdr, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(hdr.all); transition accept; }
}
control none(inout headers_t hdr, inout metadata_t m) { apply { } }
control ing(inout headers_t hdr, inout metadata_t m, inout standard_metadata_t s) {
    apply {
        mark_to_drop(s);
        clone(CloneType.I2E, (bit<32>) s.ingress_port);
    }
}
control eg(inout headers_t hdr, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control dprs(packet_out p, in headers_t hdr) { apply { p.emit(hdr.all); } }
V1Switch(prs(), none(), ing(), eg(), none(), dprs()) main;
";

#[test]
fn clones_leave_by_the_ports_of_their_session() {
    let Some(scene) = Scene::new() else { return };
    scene.neighbours();
    let _switch = scene.start_program(&scene.file("tap.p4", TAP));
    assert!(!scene.pings(), "there is no session");
    scene.asks(&["mirror", "set", "1", "--port", "2"]);
    scene.asks(&["group", "set", "9", "1:4"]);
    scene.asks(&["mirror", "set", "2", "--group", "9"]);
    wait_until("a ping by clones", 20, || scene.pings()).unwrap();
    let listed = "  session  port  group\n  1        2     -\n  2        -     9\n";
    assert_eq!(scene.asks(&["mirror", "list"]), listed);
    let json = r#"[{"session":1,"port":2},{"session":2,"group":9}]"#;
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(value(&scene.asks(&["mirror", "list", "--json"])), value(json));
    let status = scene.asks(&["status"]);
    assert!(status.contains("no_session") && status.contains("copies: "), "{status}");

    scene.refuses(&["mirror", "set", "1", "--port", "3"], "the switch has no port 3; it has 1, 2");
    scene.refuses(&["mirror", "set", "40000", "--port", "1"], "a session is 0 to 32767");
    scene.refuses(&["mirror", "delete", "7"], "there is no such clone session");
    assert!(scene.answers(), "the sessions are as before");

    scene.asks(&["mirror", "delete", "1"]);
    assert!(!scene.pings(), "the session is gone");
    scene.asks(&["table", "load", &scene.file("sessions.txt", "mirroring_add 1 2\n")]);
    assert!(scene.answers(), "the file's session");
}
