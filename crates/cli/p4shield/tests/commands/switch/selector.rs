//! Action selectors and parser value sets of a switch, by file and by command.

use super::Scene;
use p4shield_testbed::wait_until;

const PROGRAM: &str = r"
#include <v1model.p4>
header eth_t { bit<48> dst; bit<48> src; bit<16> type; }
struct headers_t { eth_t eth; }
struct metadata_t { bit<1> good; }
parser prs(packet_in p, out headers_t hdr, inout metadata_t m, inout standard_metadata_t s) {
    value_set<bit<16>>(4) allowed;
    state start {
        p.extract(hdr.eth);
        transition select(hdr.eth.type) { allowed: good; default: accept; }
    }
    state good { m.good = 1; transition accept; }
}
control none(inout headers_t hdr, inout metadata_t m) { apply { } }
control ing(inout headers_t hdr, inout metadata_t m, inout standard_metadata_t s) {
    action forward(bit<9> port) { s.egress_spec = port; }
    action drop() { mark_to_drop(s); }
    action_selector(HashAlgorithm.crc16, 4, 10) choice;
    table next {
        key = { s.ingress_port : exact; hdr.eth.src : selector; }
        actions = { forward; drop; }
        implementation = choice;
        default_action = drop();
    }
    apply {
        next.apply();
        if (m.good == 0) { mark_to_drop(s); }
    }
}
control eg(inout headers_t hdr, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control dprs(packet_out p, in headers_t hdr) { apply { p.emit(hdr.eth); } }
V1Switch(prs(), none(), ing(), eg(), none(), dprs()) main;
";

const FILE: &str = "pvs_add allowed 0x0800\npvs_add allowed 0x0806\n\
                    act_prof_create_member choice forward 2\nact_prof_create_member choice forward 1\n\
                    act_prof_create_group choice\nact_prof_add_member_to_group choice 0 0\n\
                    table_indirect_add_with_group next 1 => 0\ntable_indirect_add next 2 => 1\n";

#[test]
fn groups_and_value_sets_are_set_by_file_and_command() {
    let Some(scene) = Scene::new() else { return };
    scene.neighbours();
    let _switch = scene.start_program(&scene.file("choice.p4", PROGRAM));
    assert!(!scene.pings(), "there is no entry");
    scene.asks(&["table", "load", &scene.file("choice.txt", FILE)]);
    wait_until("a ping by the group", 20, || scene.pings()).unwrap();
    // A group of one member that drops, then of two that do not.
    scene.asks(&["selector", "set", "next", "0", "drop"]);
    assert!(!scene.pings(), "the member drops");
    scene.asks(&["selector", "set", "next", "0", "forward port=2", "forward 2"]);
    assert!(scene.answers(), "either member forwards");
    scene.refuses(&["selector", "set", "next", "0", "nowhere 2"], "unknown action `nowhere`");
    scene.refuses(
        &["selector", "set", "next", "0", "drop", "drop", "drop", "drop", "drop"],
        "enlarge its action_selector",
    );
    assert!(scene.answers(), "the group is as before");
    scene.asks(&["table", "set", "next", "1", "--action", "$group", "7"]);
    assert!(!scene.pings(), "that group has no members");
    scene.asks(&["table", "set", "next", "1", "--action", "$group", "0"]);
    assert!(scene.answers(), "the entry refers to the first group again");

    scene.asks(&["value", "delete", "allowed", "0x0800"]);
    assert!(!scene.pings(), "the parser does not select IPv4");
    scene.refuses(&["value", "delete", "allowed", "0x0800"], "allowed has no such member");
    scene.refuses(&["value", "add", "allow", "1"], "unknown value set `allow`; known: ");
    scene.asks(&["value", "add", "allowed", "0x0800"]);
    assert!(scene.answers(), "the parser selects IPv4 again");
}
