//! Pairs of interfaces, one end of which moves into another namespace.

use p4shield_links::{
    PairEnd, add_pair, delete, divide_sent, index_of, limit_merging, move_as, names, start_in,
};
use p4shield_testbed::NetNs;
use std::fs::File;
use std::os::fd::AsFd as _;

#[test]
fn an_end_of_a_pair_moves_under_another_name() {
    if let Err(why) = p4shield_testbed::usable() {
        return p4shield_need::skip("machine", why);
    }
    let [here, there] = ["links-here", "links-there"].map(|name| NetNs::create(name).unwrap());
    let namespace = there.inside(|| File::open("/proc/thread-self/ns/net").unwrap());
    here.inside(|| {
        let first = PairEnd { name: "p0", mac: None };
        let second = PairEnd { name: "p1", mac: Some([2, 0, 0, 0, 0, 7]) };
        add_pair(first, second).unwrap();
        assert!(add_pair(first, second).is_err(), "the names are in use");
        limit_merging("p1").unwrap();
        divide_sent("p1").unwrap();
        move_as(namespace.as_fd(), "p1", "gw-1").unwrap();
        assert!(index_of("p1").is_err() && index_of("gw-1").is_err());
        start_in(namespace.as_fd(), "gw-1").unwrap();
        assert!(names().unwrap().contains(&"p0".to_owned()));
    });
    let shown = there.ip("-d link show gw-1").unwrap();
    let has_all = |parts: [&str; 4]| parts.into_iter().all(|part| shown.contains(part));
    assert!(
        has_all(["02:00:00:00:00:07", "gro_max_size 1 ", "gso_max_segs 1 ", "gso_max_size 512 "]),
        "{shown}"
    );
    here.inside(|| delete("p0").unwrap());
    there.inside(|| assert!(!names().unwrap().contains(&"gw-1".to_owned()), "both ends are gone"));
}
