//! The tenant's user VM: a guest with server, agent and auditor.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use p4shield_testbed::process::{product, run};
use p4shield_testbed::{Guest, Product};

use super::inside::RELEASE;
use super::program::{ENDED, Program, ended};
use crate::audit_output::AuditOutput;
use crate::scene::{TENANT, VM, VM_NAME};

const SERVER: Program = Program { name: "server", title: "the server (p4shield-dev, in the user VM)" };
const AGENT: Program = Program { name: "agent", title: "the agent (p4shield agent, in the user VM)" };
const AUDIT: Program = Program { name: "audit", title: "the auditor (p4shield audit, in the user VM)" };

/// The Ethernet address of its interface.
pub(super) const MAC: [u8; 6] = [0x52, 0x54, 0, 0, 0x77, 2];

/// The tenant's files in the guest.
const KEY: &str = "/etc/p4shield/tenant.key";
const OBJECT: &str = "/etc/p4shield/program.o";

/// The settings that the auditor expects, and the time that it grants to emulation on busy cores.
const EXPECTED: &str = "--log-interval-ms 400 --hold-ms 1500 --expect-age-limit 3000 --expect-egress none";

/// A guest with the tenant's server, agent and auditor.
#[derive(Debug)]
pub(super) struct UserVm {
    /// The guest.
    pub(super) guest: Guest,
    /// The output of its auditor.
    pub(super) audit: AuditOutput,
    /// Bytes of the auditor's output that were read.
    read: usize,
    used: u64,
}

impl UserVm {
    /// Starts the guest with the devices that `p4shield vm devices` names; it boots once the switch has
    /// connected.
    pub(super) fn start(product: &Product, this_program: &Path) -> anyhow::Result<Self> {
        let file = |name: &str| {
            let path = product.at(name);
            std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let setup = Guest::setup().program(this_program).program(&binary()?);
        let setup = setup.file(KEY, &file("tenant.key")?).file(OBJECT, &file("program.o")?);
        let guest = setup.options(devices(product)?).start()?;
        Ok(Self { guest, audit: AuditOutput::default(), read: 0, used: 0 })
    }

    /// Lets a receiver's buffers hold enough to fill memory with few connections.
    pub(super) fn prepare(&mut self) -> anyhow::Result<()> {
        self.guest.must("echo '4096 2097152 4194304' >/proc/sys/net/ipv4/tcp_rmem")?;
        self.guest.must(&format!("chmod 600 {KEY}"))?;
        Ok(())
    }

    /// Starts the server with the command line `words`.
    pub(super) fn serve(&mut self, words: &str) -> anyhow::Result<()> {
        SERVER.start(&mut self.guest, &format!("{words} {VM}"))
    }

    /// Starts the agent with this threshold of TCP memory in bytes.
    pub(super) fn start_agent(&mut self, threshold: u64) -> anyhow::Result<()> {
        let identity = format!("--tenant {TENANT} --vm {VM_NAME} --key {KEY} --interface eth0");
        let files = "--info-page pci:auto --state /run/info.epoch --socket /run/agent.sock";
        let line =
            format!("p4shield agent run {identity} {files} --tcp-threshold {threshold} --interval-ms 50");
        AGENT.start(&mut self.guest, &line)
    }

    /// Starts the auditor.
    pub(super) fn start_auditor(&mut self) -> anyhow::Result<()> {
        let identity = format!("--tenant {TENANT} --vm {VM_NAME} --key {KEY} --interface eth0");
        let expected = format!("{EXPECTED} --expect-ingress {OBJECT}");
        let line = format!("p4shield audit --json {identity} --log-page pci:auto {expected}");
        AUDIT.start(&mut self.guest, &line)
    }

    /// Closes the server's connections with unread data.
    pub(super) fn release(&mut self) -> anyhow::Result<()> {
        SERVER.tell(&mut self.guest, RELEASE)
    }

    /// Reads the guest's TCP memory and what the auditor printed since. Returns what has ended, with the end
    /// of its log.
    pub(super) fn look(&mut self) -> anyhow::Result<Option<String>> {
        let line = format!(
            "grep ^TCP: /proc/net/sockstat; {ENDED}; echo --; [ ! -e /run/audit.out ] || tail -c +{} \
             /run/audit.out",
            self.read + 1
        );
        let shown = self.guest.must(&line)?;
        let (state, said) = shown.split_once("--\n").unwrap_or((&shown, ""));
        for line in state.lines() {
            if let Some((program, code)) = ended(&[SERVER, AGENT, AUDIT], line) {
                let log = program.log_end(&mut self.guest);
                let title = program.title;
                return Ok(Some(format!("{title} ended (exit code {code}); the end of its log:\n{log}")));
            }
        }
        self.used = used_memory(state)?;
        // The last line may not be whole yet.
        let whole = said.rfind('\n').map_or(0, |end| end + 1);
        self.read += whole;
        said[..whole].lines().for_each(|line| self.audit.read(line));
        Ok(None)
    }

    /// Returns the bytes of TCP memory that the guest used when [`Self::look`] was called.
    pub(super) const fn used(&self) -> u64 {
        self.used
    }

    /// Returns the ends of the logs of agent and auditor.
    pub(super) fn logs(&mut self) -> String {
        [AGENT, AUDIT].map(|program| program.log_end(&mut self.guest)).join("\n")
    }
}

/// Returns the bytes of TCP memory in the text of `/proc/net/sockstat`, which counts pages of x86-64.
fn used_memory(state: &str) -> anyhow::Result<u64> {
    let mut words = state.lines().find(|l| l.starts_with("TCP:")).unwrap_or_default().split_whitespace();
    let pages: Option<u64> = words.find(|w| *w == "mem").and_then(|_| words.next()?.parse().ok());
    Ok(pages.with_context(|| format!("the user VM tells no TCP memory: {state}"))? * 4096)
}

/// Returns the `p4shield` of this build.
fn binary() -> anyhow::Result<PathBuf> {
    Ok(product()?)
}

/// Returns QEMU's options for pages and port, as `p4shield vm devices` prints them.
fn devices(product: &Product) -> anyhow::Result<Vec<String>> {
    let mac = MAC.map(|byte| format!("{byte:02x}")).join(":");
    let mut command = Command::new(binary()?);
    command.args(["vm", "devices", &format!("{TENANT}/{VM_NAME}"), "--qemu", "--memory", "512MiB"]);
    let printed = run(command.args(["--mac", &mac, "--config"]).arg(product.at("p4shield.toml")))?;
    let mut options = Vec::new();
    for line in printed.lines() {
        let Some((option, value)) = line.split_once(' ') else { bail!("{line:?} is no option with a value") };
        // Without KVM, QEMU 7.2 follows a null pointer when a guest masks a vector of this device. A long
        // queue holds what comes while the guest gets no core.
        let more =
            if value.starts_with("virtio-net-pci,") { ",romfile=,vectors=0,rx_queue_size=1024" } else { "" };
        options.extend([option.to_owned(), format!("{value}{more}")]);
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_memory_is_read_in_pages() {
        let state = "TCP: inuse 3 orphan 0 tw 0 alloc 5 mem 256\nended agent 1\n";
        assert_eq!(used_memory(state).unwrap(), 1 << 20);
        assert!(used_memory("UDP: inuse 1").is_err());
    }
}
