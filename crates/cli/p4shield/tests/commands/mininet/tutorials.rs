//! The P4 tutorials' exercises whose control plane is a file, with their own scripts: the solutions do what
//! the texts promise.

use std::path::PathBuf;

use super::{namespace, runs};
use crate::common::{code, stderr, stdout};

/// An exercise on one of its topologies.
struct Exercise {
    name: &'static str,
    topology: &'static str,
    /// Commands on hosts, one after the other.
    commands: &'static [&'static str],
    /// True if the last one fails.
    fails: bool,
    /// Parts of the output.
    says: &'static [&'static str],
}

const fn exercise(
    name: &'static str,
    topology: &'static str,
    commands: &'static [&'static str],
    says: &'static [&'static str],
) -> Exercise {
    Exercise { name, topology, commands, fails: false, says }
}

const POD: &str = "pod-topo/topology.json";
const RECEIVE: &str = "h2 /usr/bin/python3 -u receive.py &";

const EXERCISES: [Exercise; 14] = [
    exercise("basic", POD, &["h1 ping -c1 h2", "h1 ping -c1 h4", "h3 ping -c1 h2"], &[]),
    exercise("basic", "triangle-topo/topology.json", &["h1 ping -c1 h2", "h1 ping -c1 h3"], &[]),
    exercise(
        "basic_tunnel",
        "topology.json",
        &[
            RECEIVE,
            "h1 ping -c1 h3",
            "h1 /usr/bin/python3 send.py 10.0.3.3 tunnelled --dst_id 2",
            "h1 sleep 1",
        ],
        &["got a packet", "dst_id    = 2"],
    ),
    exercise(
        "calc",
        "topology.json",
        &[r#"h1 sh -c 'printf "21+21\n50-8\n106&43\n9|2\n9^2\nquit\n" | /usr/bin/python3 calc.py'"#],
        &["21+21\n42\n", "50-8\n42\n", "106&43\n42\n", "9|2\n11\n", "9^2\n11\n"],
    ),
    exercise(
        "ecn",
        "topology.json",
        &[
            RECEIVE,
            "h22 iperf -s -u &",
            "h11 iperf -c 10.0.2.22 -t 15 -u &",
            "h1 /usr/bin/python3 send.py 10.0.2.2 congested 5",
        ],
        &["tos       = 0x3"],
    ),
    exercise("firewall", POD, &["h3 iperf -s &", "h1 ping -c1 h3", "h1 iperf -c h3 -t 1"], &["bits/sec"]),
    Exercise {
        name: "firewall",
        topology: POD,
        commands: &["h1 iperf -s &", "h3 timeout -s KILL 4 iperf -c h1 -t 1"],
        fails: true,
        says: &[],
    },
    exercise(
        "link_monitor",
        POD,
        &["h1 /usr/bin/python3 send.py &", "h1 sh -c 'timeout 5 /usr/bin/python3 -u receive.py; true'"],
        &["Switch 1 - Port 4: ", "Switch 4 - Port 1: ", "Switch 2 - Port 4: ", "Switch 3 - Port 1: "],
    ),
    exercise(
        "load_balance",
        "topology.json",
        &[
            RECEIVE,
            "h3 /usr/bin/python3 -u receive.py &",
            "h1 sh -c 'for n in 1 2 3 4 5 6 7 8 9 10 11 12; do /usr/bin/python3 send.py 10.0.0.1 $n; done'",
            "h1 sleep 1",
        ],
        &["dst       = 10.0.2.2", "dst       = 10.0.3.3"],
    ),
    exercise(
        "mri",
        "topology.json",
        &[
            RECEIVE,
            "h22 iperf -s -u &",
            "h11 iperf -c 10.0.2.22 -t 15 -u &",
            "h1 /usr/bin/python3 send.py 10.0.2.2 traced 5",
        ],
        // The queue of the slow link is full.
        &["count     = 2", "swid      = 1", "swid      = 2", "qdepth    = 6"],
    ),
    exercise(
        "multicast",
        "sig-topo/topology.json",
        &["h1 ping -c1 h2", "h1 ping -c1 h3", "h3 ping -c1 h2"],
        &[],
    ),
    Exercise {
        name: "multicast",
        topology: "sig-topo/topology.json",
        commands: &["h1 ping -c1 -W1 h4"],
        fails: true,
        says: &["100% packet loss"],
    },
    exercise(
        "qos",
        "topology.json",
        &[
            RECEIVE,
            "h1 sleep 1",
            "h1 /usr/bin/python3 send.py --p=UDP --des=10.0.2.2 --m=first --dur=2",
            "h1 /usr/bin/python3 send.py --p=TCP --des=10.0.2.2 --m=second --dur=2",
            "h1 sleep 1",
        ],
        &["tos       = 0xb9", "tos       = 0xb1"],
    ),
    exercise(
        "source_routing",
        "topology.json",
        &[RECEIVE, r#"h1 sh -c 'printf "2 3 2 2 1\nq\n" | /usr/bin/python3 send.py 10.0.2.2'"#, "h1 sleep 1"],
        // Five switches on the way.
        &["got a packet", "ttl       = 59"],
    ),
];

#[test]
fn the_p4_tutorials_exercises_do_what_their_texts_say() {
    let Some(namespace) = namespace() else { return };
    let Some(tutorials) = std::env::var_os("P4_TUTORIALS").map(PathBuf::from) else {
        p4shield_need::skip("p4-tutorials", "set P4_TUTORIALS to a checkout of github.com/p4lang/tutorials");
        return;
    };
    for Exercise { name, topology, commands, fails, says } in EXERCISES {
        let logs = tempfile::tempdir().unwrap();
        let (program, folder) = (format!("solution/{name}.p4"), tutorials.join("exercises").join(name));
        let mut words = vec![topology, "--program", &program];
        commands.iter().for_each(|command| words.extend(["--run", command]));
        let ran = runs(&namespace, &folder, &words, logs.path());
        let out = stdout(&ran);
        assert_eq!(code(&ran), i32::from(fails), "{name}: {out} {}", stderr(&ran));
        for part in says {
            assert!(out.contains(part), "{name} does not say {part:?}: {out} {}", stderr(&ran));
        }
        println!("{name} on {topology}: as its text says");
    }
}
