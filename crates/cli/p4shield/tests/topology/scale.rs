//! Many tenants, and the same tenants again and again.

use crate::scene::{Scene, pings};
use crate::two_tenants;

/// Names and addresses of tenants with a VM each.
fn tenants(count: u8) -> Vec<(&'static str, &'static str, &'static str)> {
    // The scene's words are constants elsewhere.
    let leaked = |text: String| -> &'static str { text.leak() };
    (1..=count).map(|n| (leaked(format!("t{n}")), "vm", leaked(format!("10.0.{n}.2")))).collect()
}

#[test]
fn many_tenants_reach_the_outside_and_leave_nothing() {
    let vms = tenants(p4shield_need::extent(16, 64));
    let Some(scene) = Scene::create(&vms) else { return };
    let names: Vec<_> = vms.iter().map(|(tenant, ..)| *tenant).collect();
    scene.configure("2", &names);
    assert_eq!(scene.topology("apply")["started"].as_array().unwrap().len(), vms.len());
    let answers: Vec<_> = std::thread::scope(|scope| {
        let Scene { outside, vms, .. } = &scene;
        let threads: Vec<_> = vms.iter().map(|vm| scope.spawn(|| pings(outside, vm.address))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(answers, vec![10; vms.len()]);
    assert_eq!(pings(&scene.vms[0].ns, scene.vms[1].address), 0, "another tenant");
    assert_eq!(scene.topology("apply")["started"].as_array().unwrap().len(), 0, "nothing changed");
    scene.topology("delete");
    assert_eq!(scene.leftovers(), Vec::<String>::new());
}

#[test]
fn switches_that_come_and_go_leave_nothing_behind() {
    let Some(scene) = two_tenants() else { return };
    // Names and addresses: the kernel is late with the states of new interfaces on a busy machine.
    let interfaces = || {
        let links = scene.host.ip("-br link").unwrap();
        let words = |link: &str| link.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        links.lines().map(words).map(|words| [words[0].clone(), words[2].clone()]).collect::<Vec<_>>()
    };
    let before = interfaces();
    for round in 0..p4shield_need::extent(3, 100) {
        scene.topology("apply");
        assert_eq!(pings(&scene.outside, scene.vms[2].address), 10, "round {round}");
        scene.topology("delete");
        assert_eq!(scene.leftovers(), Vec::<String>::new(), "round {round}");
        assert_eq!(interfaces(), before, "round {round}");
    }
}
