/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Reads a frame's headers into a `struct packet`, or says why it is no frame of the NIC switch. */
#pragma once

#include "maps.bpf.h"
#include "rest.bpf.h"

#define IPV4_HEADER 20
#define IPV6_HEADER 40
#define ARP_PACKET 28
#define MAX_EXTENSION_HEADERS 8
#define MAX_OPTIONS 8

#define ICMPV6 58
#define ROUTER_SOLICITATION 133
#define ROUTER_ADVERTISEMENT 134
#define NEIGHBOUR_SOLICITATION 135
#define NEIGHBOUR_ADVERTISEMENT 136
#define REDIRECT 137

struct packet {
	/* Of IP and ARP: an IPv4 address has four bytes, then zeros. */
	__u8 sender[16] __attribute__((aligned(8)));
	/* Of ARP and of neighbour solicitations and advertisements. */
	__u8 target[16] __attribute__((aligned(8)));
	/* Where the IPv6 packet ends in the frame. */
	__u32 end;
	__u16 type;
	__u8 destination[ETH_ALEN];
	__u8 source[ETH_ALEN];
	__u8 arp_mac[ETH_ALEN];
	/* ARP over Ethernet and IPv4, a request or a reply. */
	__u8 is_arp;
	__u8 is_request;
	/* The ICMPv6 type of neighbour discovery, or 0. */
	__u8 discovery;
	/* Extension headers come before it, or more of them than are read. */
	__u8 is_hidden;
};

static __always_inline int read_ethernet(FRAME *ctx, struct packet *packet)
{
	struct ethhdr *ethernet = (void *)(long)ctx->data;

	if ((void *)(ethernet + 1) > (void *)(long)ctx->data_end)
		return MALFORMED;
	__builtin_memcpy(packet->destination, ethernet->h_dest, ETH_ALEN);
	__builtin_memcpy(packet->source, ethernet->h_source, ETH_ALEN);
	packet->type = bpf_ntohs(ethernet->h_proto);
	return FORWARD;
}

static __always_inline int read_ipv4(FRAME *ctx, struct packet *packet)
{
	__u8 *at = (void *)(long)ctx->data + ETH_HLEN;
	__u32 header, total;

	if (at + IPV4_HEADER > (__u8 *)(long)ctx->data_end)
		return MALFORMED;
	header = (at[0] & 15) * 4;
	total = at[2] << 8 | at[3];
	if (at[0] >> 4 != 4 || header < IPV4_HEADER || total < header)
		return MALFORMED;
	if (ETH_HLEN + total > frame_length(ctx))
		return MALFORMED;
	__builtin_memcpy(packet->sender, at + 12, 4);
	return FORWARD;
}

static __always_inline int read_arp(FRAME *ctx, struct packet *packet)
{
	__u8 *at = (void *)(long)ctx->data + ETH_HLEN;

	if (at + ARP_PACKET > (__u8 *)(long)ctx->data_end)
		return MALFORMED;
	packet->is_request = at[7] == 1;
	packet->is_arp = at[0] == 0 && at[1] == 1 && at[2] == 8 && at[3] == 0 && at[4] == ETH_ALEN && at[5] == 4 &&
			 at[6] == 0 && (at[7] == 1 || at[7] == 2);
	__builtin_memcpy(packet->arp_mac, at + 8, ETH_ALEN);
	__builtin_memcpy(packet->sender, at + 14, 4);
	__builtin_memcpy(packet->target, at + 24, 4);
	return FORWARD;
}

static __always_inline bool fits(const struct packet *packet, __u32 at, __u32 length)
{
	return at + length <= packet->end;
}

/* Reads an ICMPv6 message's type, and what neighbour discovery has. */
static __always_inline int read_icmpv6(FRAME *ctx, struct packet *packet, __u32 at)
{
	__u8 type = 0;
	__u32 length;

	if (!fits(packet, at, 4) || load_bytes(ctx, at, &type, sizeof(type)))
		return MALFORMED;
	if (type < ROUTER_SOLICITATION || type > REDIRECT)
		return FORWARD;
	packet->discovery = type;
	if (packet->is_hidden || type == ROUTER_ADVERTISEMENT || type == REDIRECT)
		return FORWARD;
	length = type == ROUTER_SOLICITATION ? 8 : 24;
	if (!fits(packet, at, length))
		return MALFORMED;
	if (type != ROUTER_SOLICITATION && load_bytes(ctx, at + 8, packet->target, sizeof(packet->target)))
		return MALFORMED;
	return FORWARD;
}

/* Hop-by-hop options, routing, fragment, authentication, destination options. */
static __always_inline bool is_extension(__u8 next)
{
	return next == 0 || next == 43 || next == 44 || next == 51 || next == 60;
}

/* Follows the extension headers to ICMPv6, if that comes. Of a later fragment there is nothing to see: its
 * first one is dropped if the packet is one of neighbour discovery, or hides what it is.
 *
 * A global function: the kernel verifies it once for a program (Linux 5.12), instead of all that follows it
 * for each way through its headers. */
__noinline int read_next_headers(FRAME *ctx, struct packet *packet, __u8 next)
{
	__u32 at = ETH_HLEN + IPV6_HEADER;
	__u8 header[4] = {};
	int i;

	if (!packet)
		return MALFORMED;
	for (i = 0; i < MAX_EXTENSION_HEADERS; i++) {
		if (next == ICMPV6)
			return read_icmpv6(ctx, packet, at);
		if (!is_extension(next))
			return FORWARD;
		packet->is_hidden = 1;
		if (!fits(packet, at, 8) || load_bytes(ctx, at, header, sizeof(header)))
			return MALFORMED;
		if (next == 44 && (header[2] || header[3] & 0xf8))
			return FORWARD;
		at += next == 44 ? 8 : next == 51 ? (header[1] + 2) * 4 : (header[1] + 1) * 8;
		if (!fits(packet, at, 0))
			return MALFORMED;
		next = header[0];
	}
	packet->discovery = REDIRECT;
	return FORWARD;
}

static __always_inline int read_ipv6(FRAME *ctx, struct packet *packet)
{
	__u8 *at = (void *)(long)ctx->data + ETH_HLEN;
	__u8 next;

	if (at + IPV6_HEADER > (__u8 *)(long)ctx->data_end || at[0] >> 4 != 6)
		return MALFORMED;
	packet->end = ETH_HLEN + IPV6_HEADER + (at[4] << 8 | at[5]);
	if (packet->end > frame_length(ctx))
		return MALFORMED;
	__builtin_memcpy(packet->sender, at + 8, sizeof(packet->sender));
	next = at[6];
	if (next != ICMPV6 && !is_extension(next))
		return FORWARD;
	return own(ctx, packet->end) ? read_next_headers(ctx, packet, next) : MALFORMED;
}

static __always_inline int read_packet(FRAME *ctx, struct packet *packet)
{
	switch (packet->type) {
	case ETH_P_IP:
		return read_ipv4(ctx, packet);
	case ETH_P_IPV6:
		return read_ipv6(ctx, packet);
	case ETH_P_ARP:
		return read_arp(ctx, packet);
	}
	return ETHERTYPE;
}

/* Where the bytes end by which the frame was judged; the greatest number: it was judged by all of them. */
static __always_inline __s64 end_of_judged(FRAME *ctx, const struct packet *packet)
{
	__u8 *at = (void *)(long)ctx->data + ETH_HLEN;

	if (packet->type == ETH_P_IP && at + IPV4_HEADER <= (__u8 *)(long)ctx->data_end)
		return ETH_HLEN + (at[0] & 15) * 4;
	if (packet->type == ETH_P_IPV6 && !packet->is_hidden && at + IPV6_HEADER <= (__u8 *)(long)ctx->data_end &&
	    at[6] != ICMPV6)
		return ETH_HLEN + IPV6_HEADER;
	return 0x7fffffff;
}

/* Unrolled: the compiler turns its own comparison into a call of memcmp, which BPF has not. */
static __always_inline bool are_equal(const __u8 *a, const __u8 *b, int length)
{
	__u8 difference = 0;
	int i;

#pragma unroll
	for (i = 0; i < length; i++)
		difference |= a[i] ^ b[i];
	return !difference;
}

static __always_inline bool is_same_mac(const __u8 *a, const __u8 *b)
{
	return are_equal(a, b, ETH_ALEN);
}

static __always_inline bool is_zero(const __u8 *bytes)
{
	const __u64 *words = (const void *)bytes;

	return !(words[0] | words[1]);
}

/* Checks that link-layer addresses in a message's options are the port's own. A global function, too. */
__noinline int check_options(FRAME *ctx, const struct packet *packet, const struct entry *port)
{
	__u8 option[8] = {};
	__u32 at;
	int i;

	if (!packet || !port)
		return MALFORMED;
	at = ETH_HLEN + IPV6_HEADER + (packet->discovery == ROUTER_SOLICITATION ? 8 : 24);
	for (i = 0; i < MAX_OPTIONS; i++) {
		if (at == packet->end)
			return FORWARD;
		if (!fits(packet, at, 8) || load_bytes(ctx, at, option, sizeof(option)))
			return MALFORMED;
		if (!option[1])
			return NEIGHBOUR;
		/* Source and target link-layer address. */
		if ((option[0] == 1 || option[0] == 2) &&
		    (option[1] != 1 || !is_same_mac(option + 2, port->mac)))
			return NEIGHBOUR;
		at += option[1] * 8;
		if (!fits(packet, at, 0))
			return MALFORMED;
	}
	return at == packet->end ? FORWARD : NEIGHBOUR;
}
