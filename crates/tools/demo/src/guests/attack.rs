//! The malicious cloud: packets that the switch sends of its own accord, and the end of a P4 VM's machine.

use std::net::IpAddr;

use anyhow::Context;
use p4shield_frame::ipv4;
use p4shield_testbed::OpenVswitch;
use p4shield_testbed::process::children;
use rustix::process::{Pid, Signal, kill_process};

use super::user_vm::MAC;
use crate::scene::{CLIENT, VM};

/// Makes the switch send packets to the user VM at `port` that came from no port.
pub(super) fn packets_out(switch: &OpenVswitch, port: &str, count: u8) -> anyhow::Result<()> {
    let number = switch.vsctl(&["get", "Interface", port, "ofport"])?;
    for identification in 0..count {
        let packet: String = packet(identification).iter().map(|byte| format!("{byte:02x}")).collect();
        let message = format!("in_port=controller packet={packet} actions=output:{}", number.trim());
        switch.ofctl("packet-out", &[&message])?;
    }
    Ok(())
}

/// Returns an Ethernet frame with an IPv4 packet from the client to the user VM, of a protocol for
/// experiments (RFC 3692): the program would pass it.
fn packet(identification: u8) -> Vec<u8> {
    let (IpAddr::V4(client), IpAddr::V4(vm)) = (CLIENT, VM) else { return Vec::new() };
    let payload = [identification; 26];
    let mut ip = [0_u8; 20];
    ip[0] = 0x45;
    ip[3] = 20 + payload.len() as u8;
    ip[5] = identification;
    ip[8] = 64;
    ip[9] = 253;
    ip[12..16].copy_from_slice(&client.octets());
    ip[16..20].copy_from_slice(&vm.octets());
    ipv4::set_checksum(&mut ip);
    [&MAC[..], &[2, 0, 0, 0, 0, 1], &[8, 0], &ip, &payload].concat()
}

/// Kills the P4 VM's machine, or its process if it is none. Returns what was killed.
pub(super) fn kill_p4vm(pid: i32) -> anyhow::Result<String> {
    let target = qemu_below(pid.into()).unwrap_or_else(|| pid.into());
    let name = name_of(target);
    let number = i32::try_from(target).ok().and_then(Pid::from_raw).context("no process number")?;
    kill_process(number, Signal::KILL).with_context(|| format!("cannot kill {name}, process {target}"))?;
    Ok(format!("{name}, process {target}"))
}

/// Returns QEMU among a process's descendants.
fn qemu_below(pid: i64) -> Option<i64> {
    let children = children(pid);
    let own = children.iter().find(|child| name_of(**child).starts_with("qemu-system")).copied();
    own.or_else(|| children.iter().find_map(|child| qemu_below(*child)))
}

fn name_of(pid: i64) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_of_the_switch_has_a_correct_header() {
        let frame = packet(3);
        assert!(ipv4::has_right_checksum(&frame[14..]));
        assert_eq!((frame.len(), &frame[..6]), (60, &MAC[..]));
    }
}
