//! Groups and sessions, and the limits of what one packet causes. What follows a run is tested where programs
//! are: in `p4shield_switch`, and against the evaluator in `p4shield_p4`.

use crate::job::Jobs;
use crate::{Copy, GroupError, Groups, MAX_SESSION, Session, SessionError, Sessions};
use p4shield_bpf::Entry;

#[test]
fn sessions_that_lead_nowhere_are_refused() {
    let mut sessions = Sessions::default();
    let target = Session { port: Some(4), group: None };
    assert_eq!(sessions.set(MAX_SESSION + 1, target), Err(SessionError::TooLarge(MAX_SESSION + 1)));
    assert_eq!(sessions.set(1, Session::default()), Err(SessionError::Nowhere(1)));
    assert_eq!(sessions.set(1, target), Ok(()));
    assert_eq!((sessions.get(1), sessions.get(1 << 16 | 1)), (Some(target), None));
    assert!(sessions.delete(1) && !sessions.delete(1));
}

#[test]
fn a_refused_group_leaves_the_old_one() {
    let mut groups = Groups::default();
    let copy = Copy { port: 1, replica: 2 };
    groups.set(7, vec![copy]).unwrap();
    assert_eq!(groups.set(7, vec![copy; 5000]), Err(GroupError::TooMany(5000)));
    assert_eq!(groups.copies(7), [copy]);
    assert_eq!(groups.copies(u32::MAX), []);
}

#[test]
fn jobs_wait_in_their_order_while_there_is_room() {
    let mut jobs = Jobs::new();
    let entry = |number| Entry { number, ..Entry::default() };
    let room = (0..1000).take_while(|n| jobs.push(entry(*n), None, &[1, 2], &[3])).count();
    assert_eq!(room, 64);
    let first = jobs.pop().unwrap();
    assert_eq!(
        (first.entry.number, first.bytes.as_slice(), first.block.as_slice()),
        (0, &[1, 2][..], &[3][..])
    );
    assert!(!jobs.push(entry(0), None, &[], &[]), "its buffers are in use");
    jobs.done(first);
    assert!(jobs.push(entry(64), Some(1), &[], &[]));
    assert_eq!(jobs.pop().map(|j| j.entry.number), Some(1));
}
