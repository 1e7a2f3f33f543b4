//! The OpenFlow rules of a switch: the chains of the MTS paper, and the answers to ARP and to neighbour
//! discovery (RFC 4861), which end at the switch.
//!
//! The chains take packets without a VLAN tag that were sent to the switch's own address. Ingress: from the
//! outside to a VM. Egress: from a VM to another one of its tenant, or to the outside's router, which also
//! receives what goes to another tenant's VM. All else is dropped. Whatever a switch sends has its own
//! address as the source, so the NIC switch learns no other.

use super::mac::text;
use super::model::{Compartment, Tenant, Vm};
use macaddr::MacAddr6;
use std::fmt::{Display, Write};
use std::net::IpAddr;

/// Upper half of the cookies of all rules of a plan, which [`COOKIE_MASK`] selects: "P4SH" in ASCII. The
/// lower half is the compartment's number.
pub const COOKIE: u64 = 0x5034_5348_0000_0000;
/// The bits of a cookie that mark a rule as a plan's.
pub const COOKIE_MASK: u64 = 0xffff_ffff_0000_0000;
/// Lowest and highest priority of a plan's rules in table 0, besides the drop of priority 0. Rules of other
/// origin have room on both sides.
pub const PRIORITIES: [u16; 2] = [TO_OUTSIDE, NO_TAG];

/// A packet with a VLAN tag is dropped: only the NIC switch tags.
const NO_TAG: u16 = 10_500;
/// A machine's question for an address of its own, which it asks to find others with it.
const OWN: u16 = 10_400;
/// Answers to questions for addresses.
const ANSWER: u16 = 10_300;
/// The rest of neighbour discovery is dropped: it never passes a router.
const NEIGHBOURS: u16 = 10_250;
/// Delivery to a VM.
const TO_VM: u16 = 10_200;
/// Delivery to the outside.
const TO_OUTSIDE: u16 = 10_100;

/// The table of packets that arrive.
const FIRST: u8 = 0;
/// The table that completes advertisements: their fields can only be set where the type is matched.
const ADVERTISE: u8 = 1;

/// The flags "solicited" and "override" of a neighbour advertisement (RFC 4861, section 4.4).
const SOLICITED_OVERRIDE: u32 = 0x6000_0000;
/// The same with the flag "router".
const ROUTER: u32 = SOLICITED_OVERRIDE | 0x8000_0000;

impl Compartment {
    /// Returns the rules of its switch, each as `ovs-ofctl add-flows` reads it, from Open vSwitch 2.11 on.
    /// Packets to the outside leave to the router `gateway_mac`. Ports have the numbers of
    /// [`Self::switch_ports`].
    #[must_use]
    pub fn flows(&self, gateway_mac: MacAddr6) -> Vec<String> {
        let mut rules = Rules { cookie: COOKIE | u64::from(self.number), lines: Vec::new() };
        rules.common();
        rules.advertise(Self::OUTSIDE, self.mac, SOLICITED_OVERRIDE);
        let sides: Vec<_> = self.tenants.iter().map(sides_of).collect();
        for (side, among) in sides.iter().flat_map(|sides| sides.iter().map(move |side| (side, sides))) {
            rules.questions_of_vms(side);
            for (vm, address) in side.vms.iter().flat_map(|vm| vm.addresses.iter().map(move |a| (vm, *a))) {
                rules.question_of_outside(self.mac, address);
                rules.deliver(&Delivery { from: Self::OUTSIDE, at: self.mac, vm, address }, side);
                for from in among {
                    rules.deliver(&Delivery { from: from.port, at: from.mac, vm, address }, side);
                }
            }
            for protocol in ["ip", "ipv6"] {
                let Side { port, mac, .. } = *side;
                rules.add(
                    TO_OUTSIDE,
                    format_args!("{protocol},in_port={port},dl_dst={}", text(mac)),
                    format_args!(
                        "set_field:{}->eth_src,set_field:{}->eth_dst,output:{}",
                        text(self.mac),
                        text(gateway_mac),
                        Self::OUTSIDE
                    ),
                );
            }
        }
        rules.lines
    }

    /// Returns the rules as lines that replace those of an earlier plan and no other: input of
    /// `ovs-ofctl --bundle add-flows`, which applies all or nothing.
    #[must_use]
    pub fn flow_bundle(&self, gateway_mac: MacAddr6) -> String {
        let mut bundle = format!("delete cookie={COOKIE:#x}/{COOKIE_MASK:#x}\n");
        for flow in self.flows(gateway_mac) {
            // Writing to a string cannot fail.
            let _ = writeln!(bundle, "add {flow}");
        }
        bundle
    }
}

/// Returns the ports behind which a tenant's VMs are: its gateway, or without one each VM's.
fn sides_of(t: &Tenant) -> Vec<Side<'_>> {
    let at_vm = |vm| Side { port: Vm::port(vm), mac: t.mac, vms: std::slice::from_ref(vm) };
    match &t.gateway {
        Some(_) => vec![Side { port: t.port(), mac: t.mac, vms: &t.vms }],
        None => t.vms.iter().map(at_vm).collect(),
    }
}

/// A port of the switch with VMs behind it.
struct Side<'p> {
    port: u16,
    /// The switch's address there.
    mac: MacAddr6,
    vms: &'p [Vm],
}

/// Packets for an address of a VM.
struct Delivery<'p> {
    /// The port where they come in.
    from: u16,
    /// The switch's address there.
    at: MacAddr6,
    vm: &'p Vm,
    address: IpAddr,
}

struct Rules {
    cookie: u64,
    lines: Vec<String>,
}

impl Rules {
    fn add(&mut self, priority: u16, matched: impl Display, actions: impl Display) {
        self.add_to(FIRST, priority, matched, actions);
    }

    fn add_to(&mut self, table: u8, priority: u16, matched: impl Display, actions: impl Display) {
        let cookie = self.cookie;
        let line =
            format!("cookie={cookie:#x},table={table},priority={priority},{matched},actions={actions}");
        // A rule for all packets matches nothing.
        self.lines.push(line.replace(",,", ","));
    }

    /// Adds what holds at every port.
    fn common(&mut self) {
        self.add(0, "", "drop");
        self.add(NO_TAG, "vlan_tci=0x1000/0x1000", "drop");
        // A machine that has no address yet asks whether another one has it.
        self.add(OWN, "icmp6,icmp_type=135,ipv6_src=::", "drop");
        for kind in 133..=137 {
            self.add(NEIGHBOURS, format_args!("icmp6,icmp_type={kind}"), "drop");
        }
    }

    /// Answers VMs that the switch has every address but their own.
    fn questions_of_vms(&mut self, side: &Side<'_>) {
        let Side { port, mac, vms } = *side;
        for (vm, address) in vms.iter().flat_map(|vm| vm.addresses.iter().map(move |a| (vm, a))) {
            if address.is_ipv4() {
                let own = format!("arp,in_port={port},dl_src={},arp_tpa={address}", text(vm.mac));
                self.add(OWN, own, "drop");
            }
        }
        self.answer_arp(format_args!("in_port={port}"), mac);
        self.answer_solicitation(format_args!("in_port={port}"));
        self.advertise(port, mac, ROUTER);
    }

    /// Answers the outside that the switch has a VM's address.
    fn question_of_outside(&mut self, mac: MacAddr6, address: IpAddr) {
        let port = Compartment::OUTSIDE;
        match address {
            IpAddr::V4(v4) => self.answer_arp(format_args!("in_port={port},arp_tpa={v4}"), mac),
            IpAddr::V6(v6) => self.answer_solicitation(format_args!("in_port={port},nd_target={v6}")),
        }
    }

    /// Turns ARP requests into replies.
    fn answer_arp(&mut self, matched: impl Display, mac: MacAddr6) {
        let mac = text(mac);
        let actions = format!(
            "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],set_field:{mac}->eth_src,set_field:2->arp_op,\
             move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],set_field:{mac}->arp_sha,\
             move:NXM_OF_ARP_SPA[]->NXM_NX_REG0[],move:NXM_OF_ARP_TPA[]->NXM_OF_ARP_SPA[],\
             move:NXM_NX_REG0[]->NXM_OF_ARP_TPA[],in_port"
        );
        self.add(ANSWER, format_args!("arp,arp_op=1,{matched}"), actions);
    }

    /// Turns solicitations into advertisements, which [`Self::advertise`] completes.
    fn answer_solicitation(&mut self, matched: impl Display) {
        self.add(
            ANSWER,
            format_args!("icmp6,icmp_type=135,icmp_code=0,nw_ttl=255,{matched}"),
            format_args!("set_field:136->icmpv6_type,resubmit(,{ADVERTISE})"),
        );
    }

    /// Completes the advertisements that leave at a port.
    fn advertise(&mut self, port: u16, mac: MacAddr6, flags: u32) {
        let mac = text(mac);
        let actions = format!(
            "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],set_field:{mac}->eth_src,\
             move:NXM_NX_IPV6_SRC[]->NXM_NX_IPV6_DST[],move:NXM_NX_ND_TARGET[]->NXM_NX_IPV6_SRC[],\
             set_field:{flags:#x}->nd_reserved,set_field:2->nd_options_type,set_field:{mac}->nd_tll,in_port"
        );
        self.add_to(
            ADVERTISE,
            ANSWER,
            format_args!("icmp6,icmp_type=136,icmp_code=0,in_port={port}"),
            actions,
        );
    }

    /// Delivers to the VM's side.
    fn deliver(&mut self, delivery: &Delivery<'_>, side: &Side<'_>) {
        let Delivery { from, at, vm, address } = delivery;
        let (protocol, field) = if address.is_ipv4() { ("ip", "nw_dst") } else { ("ipv6", "ipv6_dst") };
        // OpenFlow sends a packet back to where it came from only if it is named so.
        let out = if *from == side.port { "in_port".to_owned() } else { format!("output:{}", side.port) };
        self.add(
            TO_VM,
            format_args!("{protocol},in_port={from},dl_dst={},{field}={address}", text(*at)),
            format_args!("set_field:{}->eth_src,set_field:{}->eth_dst,{out}", text(side.mac), text(vm.mac)),
        );
    }
}
