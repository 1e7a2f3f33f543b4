//! Removal of instructions that have no effect after register allocation.

use super::MachineCode;
use super::insn::{CLASS_ALU64, ControlFlow, Insn, MOV, X};

/// Repeats until no instruction can be removed.
pub(super) fn run(p: &mut MachineCode) {
    loop {
        retarget(p);
        let dead = superfluous(p);
        if !dead.contains(&true) {
            return;
        }
        remove(p, &dead);
    }
}

fn target(i: usize, insn: &Insn) -> usize {
    (i as i64 + 1 + i64::from(insn.offset)).max(0) as usize
}

/// Redirects jumps to jumps to the final target.
fn retarget(p: &mut MachineCode) {
    for i in (0..p.insns.len()).rev() {
        if !matches!(p.insns[i].flow(), ControlFlow::Jump | ControlFlow::Branch) {
            continue;
        }
        let t = target(i, &p.insns[i]);
        if p.insns.get(t).is_some_and(|x| x.flow() == ControlFlow::Jump) {
            let end = target(t, &p.insns[t]);
            p.insns[i].offset = end as i32 - i as i32 - 1;
        }
    }
}

fn superfluous(p: &MachineCode) -> Vec<bool> {
    let mut reached = vec![false; p.insns.len() + 1];
    if let Some(first) = reached.first_mut() {
        *first = true;
    }
    // All jumps go forward, so one pass reaches all code.
    for (i, insn) in p.insns.iter().enumerate() {
        if !reached[i] {
            continue;
        }
        let flow = insn.flow();
        if matches!(flow, ControlFlow::Next | ControlFlow::Branch) {
            reached[i + 1] = true;
        }
        if matches!(flow, ControlFlow::Jump | ControlFlow::Branch) {
            reached[target(i, insn).min(p.insns.len())] = true;
        }
    }
    let idle = |(i, insn): (usize, &Insn)| {
        let self_move = insn.code == MOV | X | CLASS_ALU64 && insn.dst == insn.src;
        let to_next = matches!(insn.flow(), ControlFlow::Jump | ControlFlow::Branch) && insn.offset == 0;
        !reached[i] || self_move || to_next
    };
    p.insns.iter().enumerate().map(idle).collect()
}

fn remove(p: &mut MachineCode, dead: &[bool]) {
    // The number of remaining instructions before each position.
    let mut kept = vec![0usize; p.insns.len() + 1];
    for i in 0..p.insns.len() {
        kept[i + 1] = kept[i] + usize::from(!dead[i]);
    }
    for i in 0..p.insns.len() {
        if matches!(p.insns[i].flow(), ControlFlow::Jump | ControlFlow::Branch) {
            let t = target(i, &p.insns[i]).min(p.insns.len());
            p.insns[i].offset = kept[t] as i32 - kept[i] as i32 - 1;
        }
    }
    let mut at = 0;
    p.insns.retain(|_| {
        at += 1;
        !dead[at - 1]
    });
    let mut at = 0;
    p.spans.retain(|_| {
        at += 1;
        !dead[at - 1]
    });
}
