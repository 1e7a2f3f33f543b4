/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The policy of each role: what a port may send, and to which port it goes. */
#pragma once

#include "maps.bpf.h"
#include "packet.bpf.h"

struct decision {
	__u32 target; /* interface; 0: it is not there */
	__u8 flags;   /* DIRECTLY */
};

static __always_inline void send_to(struct decision *decision, const struct entry *entry)
{
	decision->target = entry->target;
	decision->flags = entry->flags;
}

static __always_inline bool is_group(const __u8 *mac)
{
	return mac[0] & 1;
}

static __always_inline bool is_broadcast(const __u8 *mac)
{
	return (mac[0] & mac[1] & mac[2] & mac[3] & mac[4] & mac[5]) == 0xff;
}

static __always_inline bool is_ipv6_group(const __u8 *mac)
{
	return mac[0] == 0x33 && mac[1] == 0x33;
}

static __always_inline bool is_own_source(void *policy, const struct entry *port, const struct packet *packet)
{
	if (port->role == UPLINK)
		return !is_group(packet->source) && !find_mac(policy, ANY_MAC, 0, packet->source);
	return is_same_mac(packet->source, port->mac);
}

/* The link-local address that a host makes from its MAC address (RFC 4291, appendix A). */
static __always_inline bool is_link_local_of(const __u8 *address, const __u8 *mac)
{
	__u8 own[16] = { 0xfe, 0x80, 0, 0, 0, 0, 0, 0,
			 mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5] };

	return are_equal(address, own, sizeof(own));
}

static __always_inline bool is_own_address(FRAME *ctx, void *policy, const struct entry *port,
					   const __u8 *address)
{
	return is_source(policy, receiver_of(ctx), 6, address) || is_link_local_of(address, port->mac);
}

static __always_inline int check_discovery(FRAME *ctx, void *policy, const struct entry *port,
					   const struct packet *packet)
{
	bool has_no_address = is_zero(packet->sender);

	if (packet->is_hidden || packet->discovery == ROUTER_ADVERTISEMENT || packet->discovery == REDIRECT)
		return NEIGHBOUR;
	if (!has_no_address && !is_own_address(ctx, policy, port, packet->sender))
		return SOURCE_IP;
	/* A solicitation without an address asks whether the address that it names is free. */
	if (packet->discovery == NEIGHBOUR_ADVERTISEMENT ||
	    (packet->discovery == NEIGHBOUR_SOLICITATION && has_no_address)) {
		if (!is_own_address(ctx, policy, port, packet->target))
			return NEIGHBOUR;
	}
	return check_options(ctx, packet, port);
}

static __always_inline int check_arp(FRAME *ctx, void *policy, const struct entry *port,
				     const struct packet *packet)
{
	if (!packet->is_arp || !is_same_mac(packet->arp_mac, port->mac))
		return ARP;
	/* A probe asks whether an address is free. */
	if (port->role == VM && packet->is_request && is_zero(packet->sender))
		return FORWARD;
	return is_source(policy, receiver_of(ctx), 4, packet->sender) ? FORWARD : ARP;
}

/* Checks that a port sends from its own addresses. */
static __always_inline int check_sender(FRAME *ctx, void *policy, const struct entry *port,
					const struct packet *packet)
{
	if (packet->type == ETH_P_ARP)
		return check_arp(ctx, policy, port, packet);
	if (packet->discovery)
		return check_discovery(ctx, policy, port, packet);
	return is_source(policy, receiver_of(ctx), packet->type == ETH_P_IP ? 4 : 6, packet->sender) ? FORWARD :
													   SOURCE_IP;
}

/* A VM sends to its gateway; broadcast and multicast go there, too. */
static __always_inline int judge_vm(FRAME *ctx, void *policy, const struct entry *port,
				    const struct packet *packet, struct decision *decision)
{
	int result = check_sender(ctx, policy, port, packet);

	if (result != FORWARD)
		return result;
	if (!(port->flags & HAS_TARGET))
		return DESTINATION;
	if (!is_group(packet->destination) && !is_same_mac(packet->destination, port->gateway))
		return DESTINATION;
	send_to(decision, port);
	return FORWARD;
}

/* A gateway sends to the VMs of its VLAN. */
static __always_inline int judge_gateway(void *policy, const struct entry *port, const struct packet *packet,
					 struct decision *decision)
{
	struct entry *vm = find_mac(policy, VM_MAC, port->vlan, packet->destination);

	if (!vm)
		return DESTINATION;
	send_to(decision, vm);
	return FORWARD;
}

/* A compartment sends to the outside, never to another port. */
static __always_inline int judge_in_out(FRAME *ctx, void *policy, const struct entry *port,
					const struct packet *packet, struct decision *decision)
{
	int result = check_sender(ctx, policy, port, packet);
	bool may;

	if (result != FORWARD)
		return result;
	if (is_broadcast(packet->destination))
		may = packet->type == ETH_P_ARP;
	else if (is_group(packet->destination))
		may = is_ipv6_group(packet->destination) && (packet->discovery == NEIGHBOUR_SOLICITATION ||
							     packet->discovery == NEIGHBOUR_ADVERTISEMENT);
	else
		may = !find_mac(policy, ANY_MAC, 0, packet->destination);
	if (!may || !(port->flags & HAS_TARGET))
		return DESTINATION;
	send_to(decision, port);
	return FORWARD;
}

/* The outside sends to compartments, and asks for their addresses. */
static __always_inline int judge_uplink(void *policy, const struct packet *packet, struct decision *decision)
{
	struct entry *compartment = NULL;

	if (!is_group(packet->destination))
		compartment = find_mac(policy, OUTSIDE_MAC, 0, packet->destination);
	else if (is_broadcast(packet->destination) && packet->is_arp && packet->is_request)
		compartment = find_outside(policy, 4, packet->target);
	else if (is_ipv6_group(packet->destination) && packet->discovery == NEIGHBOUR_SOLICITATION &&
		 !packet->is_hidden)
		compartment = find_outside(policy, 6, packet->target);
	if (!compartment)
		return DESTINATION;
	send_to(decision, compartment);
	return FORWARD;
}
