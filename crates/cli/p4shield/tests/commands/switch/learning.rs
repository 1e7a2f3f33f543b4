//! The command files of ETH Zürich's course, each on the program with which the course's topologies pair it.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

/// Files that no topology of the course names, and their programs.
const UNNAMED: [(&str, &str); 4] = [
    ("examples/manual_setup/s1-commands.txt", "examples/manual_setup/forwarding.p4"),
    ("examples/manual_setup/s2-commands.txt", "examples/manual_setup/forwarding.p4"),
    ("examples/resubmit_recirculate/s1-commands.txt", "examples/resubmit_recirculate/resubmit.p4"),
    ("examples/resubmit_recirculate/s1-commands.txt", "examples/resubmit_recirculate/recirculate.p4"),
];

/// A program that a switch runs once a text in one of its files is another one.
struct Changed {
    program: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
}

const CHANGED: [Changed; 2] = [
    // The course has its readers add `qid` to p4c's v1model by hand.
    Changed {
        program: "examples/multiqueueing/multi_queueing.p4",
        file: "multi_queueing.p4",
        from: "standard_metadata.qid",
        to: "standard_metadata.priority",
    },
    // A loop of 127 rounds is longer than a program may be.
    Changed {
        program: "examples/source_routing/p4src/source_routing.p4",
        file: "include/headers.p4",
        from: "MAX_HOPS 127",
        to: "MAX_HOPS 9",
    },
];

/// Programs that the course leaves unfinished for its readers, and what the compiler says of each.
const UNFINISHED: [(&str, &str); 5] = [
    ("exercises/03-L2_Basic_forwarding/thrift/p4src/l2_basic_forwarding.p4", "`headers` is not declared"),
    ("exercises/04-MPLS/thrift/mpls_basics/basics.p4", "headers has no field `mpls`"),
    ("exercises/04-MPLS/thrift/mpls_stacked/stacked.p4", "`TYPE_MPLS` is not declared"),
    ("exercises/05-ECMP/p4src/ecmp.p4", "table `ecmp_group_to_nhop` has no actions"),
    (
        "exercises/05-Flowlet_Switching/p4src/flowlet_switching.p4",
        "a brace or a semicolon is probably missing",
    ),
];

/// Files that are refused: the first wrong line, and the reason.
const REFUSED: [(&str, usize, &str); 0] = [];

fn files(folder: &Path, is: &dyn Fn(&str) -> bool, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            files(&path, is, found);
        } else if is(&name.to_string_lossy()) {
            found.push(path);
        }
    }
}

/// Returns each command file of a topology with its program.
fn paired(topology: &Path) -> Vec<(PathBuf, PathBuf)> {
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(topology).unwrap()).unwrap();
    let folder = topology.parent().unwrap();
    let own = json["p4_src"].as_str();
    let switches = json["topology"]["switches"].as_object().into_iter().flatten();
    let pair = |(_, switch): (&String, &serde_json::Value)| {
        let program = switch["p4_src"].as_str().or(own)?;
        Some((folder.join(switch["cli_input"].as_str()?), folder.join(program)))
    };
    switches.filter_map(pair).filter(|(commands, _)| commands.exists()).collect()
}

/// Returns the command files of the course by program.
fn by_program(course: &Path) -> BTreeMap<PathBuf, BTreeSet<PathBuf>> {
    let mut topologies = Vec::new();
    files(course, &|name| name.starts_with("p4app") && name.ends_with(".json"), &mut topologies);
    let named = topologies.iter().flat_map(|topology| paired(topology));
    let unnamed = UNNAMED.iter().map(|(commands, program)| (course.join(commands), course.join(program)));
    let mut all = BTreeMap::<_, BTreeSet<_>>::new();
    for (commands, program) in named.chain(unnamed) {
        all.entry(program).or_default().insert(commands);
    }
    all
}

/// Copies the folder of a program, with one text changed, and returns the program there.
fn changed(scene: &Scene, program: &Path, change: &Changed) -> PathBuf {
    let Changed { file, from, to, .. } = *change;
    let folder = program.parent().unwrap();
    let copy = scene.folder.path().join("changed");
    let mut sources = Vec::new();
    files(folder, &|name| name.ends_with(".p4"), &mut sources);
    for source in sources {
        let target = copy.join(source.strip_prefix(folder).unwrap());
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        std::fs::copy(&source, &target).unwrap();
    }
    let text = std::fs::read_to_string(copy.join(file)).unwrap();
    assert!(text.contains(from), "{file} has no {from}");
    std::fs::write(copy.join(file), text.replace(from, to)).unwrap();
    copy.join(program.file_name().unwrap())
}

#[test]
fn command_files_of_a_course_load_or_say_why_not() {
    let Some(scene) = Scene::new() else { return };
    let Some(course) = std::env::var_os("P4_LEARNING").map(PathBuf::from) else {
        p4shield_need::skip(
            "p4-learning",
            "set P4_LEARNING to a checkout of github.com/nsg-ethz/p4-learning",
        );
        return;
    };
    let empty = scene.file("hub.p4", HUB);
    let _switch = scene.start_program(&empty);
    for (port, interface) in [("3", "p2"), ("4", "p3")] {
        scene.host.ip(&format!("link add {interface} type veth peer name {interface}b")).unwrap();
        scene.host.ip(&format!("link set {interface} up")).unwrap();
        scene.asks(&["port", "add", &format!("{port}={interface}")]);
    }
    let named = |path: &Path| path.strip_prefix(&course).unwrap().display().to_string();
    let (mut loaded, mut wrong, mut seen) = (0, Vec::new(), BTreeSet::new());
    for (path, all) in by_program(&course) {
        seen.extend(all.iter().cloned());
        let name = named(&path);
        let change = CHANGED.iter().find(|change| change.program == name);
        let program = change.map_or(path.clone(), |change| changed(&scene, &path, change));
        let program = program.display().to_string();
        if let Some((_, why)) = UNFINISHED.iter().find(|(unfinished, _)| *unfinished == name) {
            scene.refuses(&["load", &program], why);
            continue;
        }
        for file in all {
            // No entry of the file before is left.
            scene.asks(&["load", &empty]);
            scene.asks(&["load", &program]);
            let expected = REFUSED.iter().find(|(refused, ..)| *refused == named(&file));
            let expected = expected.map(|(_, line, why)| format!("{}:{line}: {why}", file.display()));
            let answer = scene.ask(&["table", "load", &file.display().to_string()]);
            let said = stderr(&answer);
            match expected {
                None if code(&answer) == 0 => loaded += 1,
                Some(why) if code(&answer) == 3 && said.contains(&why) => {}
                _ => wrong.push(format!("{name}: {said}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.concat());
    let mut present = Vec::new();
    files(&course, &|name| name.contains("commands") && name.ends_with(".txt"), &mut present);
    let forgotten: Vec<_> = present.into_iter().filter(|file| !seen.contains(file)).collect();
    assert!(forgotten.is_empty(), "no program is known for {forgotten:?}");
    println!("{loaded} of {} command files load", seen.len());
}
