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

/// Redirects jumps to jumps to the final target.
fn retarget(p: &mut MachineCode) {
    for i in (0..p.insns.len()).rev() {
        let t = p.insns[i].target(i);
        if p.insns[i].jumps() && p.insns.get(t).is_some_and(|x| x.flow() == ControlFlow::Jump) {
            p.insns[i].offset = p.insns[t].target(t) as i32 - i as i32 - 1;
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
        if matches!(insn.flow(), ControlFlow::Next | ControlFlow::Branch) {
            reached[i + 1] = true;
        }
        if insn.jumps() {
            reached[insn.target(i).min(p.insns.len())] = true;
        }
    }
    let idle = |(i, insn): (usize, &Insn)| {
        let self_move = insn.code == MOV | X | CLASS_ALU64 && insn.dst == insn.src;
        let to_next = insn.jumps() && insn.offset == 0;
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
        if p.insns[i].jumps() {
            let t = p.insns[i].target(i).min(p.insns.len());
            p.insns[i].offset = kept[t] as i32 - kept[i] as i32 - 1;
        }
    }
    let mut lives = dead.iter().chain(dead).map(|dead| !dead);
    p.insns.retain(|_| lives.next().unwrap_or(true));
    p.spans.retain(|_| lives.next().unwrap_or(true));
}
