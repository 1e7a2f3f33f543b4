#!/usr/bin/python3
"""P4 Shield switches in Mininet.

In a script of your own, one line replaces another P4 switch:

    from p4shield_mininet import P4ShieldHost, P4ShieldSwitch
    s1 = net.addSwitch("s1", cls=P4ShieldSwitch, program="router.p4", entries=["s1-commands.txt"])

Or from a topology.json as in the P4 tutorials, as root, with Mininet's command line at the end:

    p4shield_mininet.py pod-topo/topology.json --program solution/basic.p4
    p4shield_mininet.py pod-topo/topology.json --program solution/basic.p4 --run "h1 ping -c1 h2"

A switch's ports have Mininet's numbers: s1-eth1 is port 1. Its output is in FOLDER/s1.log; s1.p4shield("status") asks it.
"""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time

from mininet.cli import CLI
from mininet.link import TCLink
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.node import Host, Switch
from mininet.topo import Topo

# A program that is verified for the first time takes seconds, on a busy machine many.
START_SECONDS = 120


class P4ShieldError(Exception):
    """A switch or topology that cannot be used, with the reason."""


class P4ShieldHost(Host):
    """A host with one interface, eth0, that computes its checksums itself and speaks no IPv6."""

    def config(self, **params):
        result = super().config(**params)
        if self.defaultIntf():
            self.defaultIntf().rename("eth0")
            for offload in ("rx", "tx", "sg"):
                self.cmd(f"ethtool --offload eth0 {offload} off")
        for scope in ("all", "default", "lo"):
            self.cmd(f"sysctl -w net.ipv6.conf.{scope}.disable_ipv6=1")
        return result


class P4ShieldSwitch(Switch):
    """A switch whose data plane is a P4 program: `p4shield switch run`."""

    def __init__(self, name, program=None, entries=(), binary="p4shield", folder=None, **params):
        super().__init__(name, **params)
        if not program:
            raise P4ShieldError(f"{name}: name a P4 program with program=")
        self.program, self.entries, self.binary = program, list(entries), binary
        self.folder = folder or tempfile.mkdtemp(prefix="p4shield-mininet-")
        self.socket = os.path.join(self.folder, f"{name}.sock")
        self.log = os.path.join(self.folder, f"{name}.log")
        self.process = None

    def start(self, controllers):
        """Starts the switch, and returns once it forwards packets."""
        if self._answers():
            raise P4ShieldError(f"{self.name}: another switch answers at {self.socket}; end it, or name another folder")
        command = [self.binary, "switch", "run", self.program, "--socket", self.socket]
        for number, interface in self.intfs.items():
            if interface.name != "lo":
                command += ["--port", f"{number}={interface.name}"]
        for file in self.entries:
            command += ["--entries", file]
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = self.popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            ended = self.process.poll() is not None
            if ended or time.monotonic() > deadline:
                self._end()
                what = "did not start" if ended else f"did not start within {START_SECONDS} s"
                with open(self.log, encoding="utf-8") as log:
                    raise P4ShieldError(f"{self.name} {what}:\n{log.read()}")
            time.sleep(0.05)
        for number, interface in self.intfs.items():
            # AF_XDP passes the queues that Mininet gives an interface.
            bandwidth = getattr(interface, "params", {}).get("bw")
            if bandwidth:
                self.p4shield("queue", "set", str(number), "--bits", str(int(bandwidth * 1_000_000)))

    def _answers(self):
        """Whether the switch answers. Problems of a running switch are no reason to wait."""
        asked = [self.binary, "switch", "status", "--json", "--socket", self.socket]
        return bool(subprocess.run(asked, capture_output=True, check=False).stdout)

    def p4shield(self, *words):
        """Runs a command of `p4shield switch` on this switch, and returns its output."""
        command = [self.binary, "switch", *words, "--socket", self.socket]
        asked = subprocess.run(command, capture_output=True, text=True, check=False)
        if asked.returncode != 0:
            raise P4ShieldError(f"{self.name}: {asked.stderr.strip()}")
        return asked.stdout

    def _end(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait()
        self.process = None

    def stop(self, deleteIntfs=True):
        """Ends the switch, which leaves its interfaces as they were."""
        self._end()
        super().stop(deleteIntfs)


class TopologyFile(Topo):
    """The hosts, switches and links of a topology.json."""

    def build(self, file=None, program=None, binary="p4shield", folder=None):
        self.file = file
        for name, about in file.get("switches", {}).items():
            entries = [about[key] for key in ("cli_input", "runtime_json") if key in about]
            self.addSwitch(name, program=source(about.get("program"), program), entries=entries, binary=binary,
                           folder=folder)
        for name, about in file["hosts"].items():
            self.addHost(name, ip=about.get("ip"), mac=about.get("mac"))
        for first, second, *options in file["links"]:
            self.addLink(*endpoint(first), *endpoint(second), options)

    def addLink(self, first, first_port, second, second_port, options):
        latency, bandwidth = (options + [None, None])[:2]
        limits = {}
        if bandwidth:
            limits["bw"] = bandwidth
        if latency and latency not in ("0", "0ms"):
            limits["delay"] = latency if isinstance(latency, str) else f"{latency}ms"
        super().addLink(first, second, port1=first_port, port2=second_port, **limits)


def endpoint(text):
    """Returns the node and port of `s1-p2`; a host has one port, which Mininet numbers."""
    node, dash, port = text.partition("-p")
    return (node, int(port)) if dash else (node, None)


def source(own, default):
    """Returns the P4 source of a switch: a tutorial's build/firewall.json is of firewall.p4 beside --program."""
    if not own:
        return default
    if not own.endswith(".json"):
        return own
    folder = os.path.dirname(default or "")
    return os.path.join(folder, os.path.basename(own)[: -len(".json")] + ".p4")


def network(topology, program, binary="p4shield", folder=None):
    """Returns the network of a topology.json, not started. Paths in it are relative to the working folder."""
    with open(topology, encoding="utf-8") as text:
        file = json.load(text)
    folder = folder or tempfile.mkdtemp(prefix="p4shield-mininet-")
    topo = TopologyFile(file=file, program=program, binary=binary, folder=folder)
    return Mininet(topo=topo, host=P4ShieldHost, switch=P4ShieldSwitch, link=TCLink, controller=None)


def start(net):
    """Starts a network, and runs the hosts' commands of its topology.json."""
    net.start()
    for name, about in net.topo.file["hosts"].items():
        for command in about.get("commands", []):
            net.get(name).cmd(command)


def main():
    about = argparse.ArgumentParser(
        description="Run a topology.json of the P4 tutorials with P4 Shield switches (as root).",
        epilog="Exit code 1 if a switch does not start, or a command of --run fails.")
    about.add_argument("topology", help="topology.json")
    about.add_argument("--program", required=True, help="P4 source of the switches that name none")
    about.add_argument("--binary", default="p4shield", help="the p4shield to run (default: %(default)s)")
    about.add_argument("--folder", help="folder for logs and sockets (default: a new one in /tmp)")
    about.add_argument("--run", action="append", metavar="\"HOST COMMAND\"",
                       help="run this on a host instead of Mininet's command line, with & at its end in the background; "
                            "may be repeated")
    options = about.parse_args()
    # What ends this program ends its switches, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    setLogLevel("warning")
    net = network(options.topology, options.program, options.binary, options.folder)
    try:
        start(net)
        return run(net, options.run) if options.run else CLI(net) and 0
    except P4ShieldError as error:
        print(f"p4shield_mininet: {error}", file=sys.stderr)
        return 1
    finally:
        net.stop()


def run(net, commands):
    """Runs commands on hosts, whose names stand for their addresses. Returns 1 if one fails. One that ends with & runs
    beside those after it, and until they have ended."""
    failed, background = 0, []
    for command in commands:
        host, *words = shlex.split(command)
        words = [net.get(word).IP() if word in net.topo.hosts() else word for word in words]
        print(f"{host}> {' '.join(words)}", flush=True)
        beside = words[-1] == "&"
        process = net.get(host).popen(words[:-1] if beside else words, stdout=None, stderr=None)
        if beside:
            background.append(process)
            time.sleep(1)  # Servers need a moment before their clients come.
        else:
            failed |= process.wait() != 0
    for process in background:
        process.terminate()
        try:
            process.wait(2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
