// SPDX-License-Identifier: Apache-2.0
//
// Which frames a mediator submits, as p4shield_mediator::classify decides.
// tap/tests.rs compares both on generated frames.

#include "tap.h"

// The rest of frame::neighbour: what the RFCs let a receiver accept, of bounded length, within one link.
#define MAX_ARP 46
#define MAX_DISCOVERY 104
#define MAX_OPTIONS 6 // words of eight bytes that fit into MAX_DISCOVERY
#define ROUTER_SOLICITATION 133
#define ROUTER_ADVERTISEMENT 134
#define NEIGHBOUR_SOLICITATION 135
#define NEIGHBOUR_ADVERTISEMENT 136
#define LINK_SCOPE 0xff02000000000000ULL // the upper half of a multicast address of the link's scope

ALWAYS_INLINE __u64 be64(const __u8 *b, __u32 at)
{
	__u64 value = 0;

	for (int i = 0; i < 8; i++)
		value = value << 8 | b[at + i];
	return value;
}

ALWAYS_INLINE int is_arp(const struct frame *f)
{
	const __u32 arp = LINK;
	const __u8 *b = (const __u8 *)f->words;
	__u16 operation = be16(b, arp + 6);

	return f->have >= arp + 28 && f->len <= arp + MAX_ARP && be16(b, arp) == 1 &&
	       be16(b, arp + 2) == ETH_P_IP && be16(b, arp + 4) == 0x0604 && (operation == 1 || operation == 2);
}

ALWAYS_INLINE int is_link_local(__u64 upper)
{
	return upper >> 54 == 0xfe80 >> 6;
}

ALWAYS_INLINE int are_options(const __u8 *b, __u32 at, __u32 words, __u8 kind, int has_source)
{
	__u8 link = kind == NEIGHBOUR_ADVERTISEMENT ? 2 : 1;
	int is_router = kind == ROUTER_ADVERTISEMENT;
	__u32 left = 0;

	if (words > (is_router ? MAX_OPTIONS : 2))
		return 0;
#pragma unroll
	for (__u32 i = 0; i < MAX_OPTIONS; i++) {
		__u8 type = b[at + 8 * i], len = b[at + 8 * i + 1];

		if (i >= words)
			break;
		if (left) {
			left--;
			continue;
		}
		if (len == 0 || (type == link && (len != 1 || !has_source)))
			return 0;
		if (!is_router && type != link && (type != 14 || len != 1))
			return 0;
		left = len - 1;
	}
	return left == 0;
}

// A global function: the kernel verifies it once, and not again for each path of its callers.
NOINLINE int is_discovery(const struct frame *f, int direction)
{
	const __u8 *b;
	const __u32 ip = LINK;
	__u32 fixed, total;
	__u8 kind;
	__u64 s1, s0, d1, d0, t1, t0;
	__u64 group = 0; // the lower half of the multicast address that it may go to
	int unicast;

	if (!f)
		return 0;
	b = (const __u8 *)f->words;
	total = 40 + be16(b, ip + 4);
	kind = b[ip + 40];
	s1 = be64(b, ip + 8);
	s0 = be64(b, ip + 16);
	d1 = be64(b, ip + 24);
	d0 = be64(b, ip + 32);
	t1 = be64(b, ip + 48);
	t0 = be64(b, ip + 56);
	if (b[ip + 6] != IPPROTO_ICMPV6 || b[ip + 7] != 255 || b[ip + 41] != 0 || total > MAX_DISCOVERY ||
	    f->len != ip + total)
		return 0;
	unicast = (s1 | s0) && (d1 | d0) && d1 >> 56 != 0xff &&
		  (is_link_local(s1) || is_link_local(d1) || s1 == d1);
	fixed = kind == ROUTER_SOLICITATION ? 8 : kind == ROUTER_ADVERTISEMENT ? 16 : 24;
	if (s1 >> 56 == 0xff || total < 40 + fixed || (total - fixed) % 8)
		return 0;
	if (kind == ROUTER_SOLICITATION) {
		group = 2;
	} else if (kind == ROUTER_ADVERTISEMENT) {
		if (!is_link_local(s1) || direction != INGRESS)
			return 0;
		group = 1;
	} else {
		if (!(t1 | t0) || t1 >> 56 == 0xff)
			return 0;
		if (kind == NEIGHBOUR_SOLICITATION) {
			group = 0x1ff000000ULL | (t0 & 0xffffff);
			unicast = unicast && d1 == t1 && d0 == t0;
		} else if (kind == NEIGHBOUR_ADVERTISEMENT) {
			if (!(s1 | s0))
				return 0;
			group = b[ip + 44] & 0x40 ? 0 : 1;
		} else {
			return 0;
		}
	}
	if (!unicast && !(group && d1 == LINK_SCOPE && d0 == group))
		return 0;
	total -= 40 + fixed;
	if (kind == ROUTER_SOLICITATION)
		return are_options(b, ip + 48, total / 8, kind, (s1 | s0) != 0);
	if (kind == ROUTER_ADVERTISEMENT)
		return are_options(b, ip + 56, total / 8, kind, 1);
	return are_options(b, ip + 64, total / 8, kind, (s1 | s0) != 0);
}

// IP or ARP in LLC and SNAP: no mediator lets it pass.
ALWAYS_INLINE int is_snap_ip(const struct frame *f)
{
	const __u32 llc = LINK;
	const __u8 *b = (const __u8 *)f->words;
	__u16 type = be16(b, llc + 6);

	return f->have >= llc + 8 && be16(b, llc) == 0xaaaa && be16(b, llc + 2) == 0x0300 &&
	       be16(b, llc + 4) == 0 && (type == ETH_P_IP || type == ETH_P_IPV6 || type == ETH_P_ARP);
}

#define NOT_JUDGED 0
#define JUDGED_AT_OWN_PORT 1
#define JUDGED 2

// Returns whether a mediator submits the frame, as p4shield_mediator::classify decides. For an IP packet it
// finds the VM-side address, the transport header and its checksum.
NOINLINE int dissect(struct frame *f, int direction, struct address *address)
{
	const __u8 *b;
	__u16 type;

	if (!f || !address)
		return NOT_JUDGED;
	b = (const __u8 *)f->words;
	type = be16(b, 12);
	f->checksum = 0;
	f->header = 0;
	f->version = type == ETH_P_IP ? 4 : 0; // also if it is cut off, as in p4shield_seal::PacketDigest
	if (type == ETH_P_IP && f->have >= LINK + 20) {
		__u32 header = (b[LINK] & 0xf) * 4;
		__u32 from = LINK + (direction == INGRESS ? 16 : 12);

		if (b[LINK] >> 4 != 4)
			return NOT_JUDGED; // it is dropped
		address->version = 4;
		for (int i = 0; i < 4; i++)
			address->bytes[i] = b[from + i];
		if (header >= 20 && (be16(b, LINK + 6) & 0x1fff) == 0) {
			f->header = LINK + header;
			f->protocol = b[LINK + 9];
		}
	} else if (type == ETH_P_IPV6 && f->have >= LINK + 40) {
		__u32 from = LINK + (direction == INGRESS ? 24 : 8);

		if (b[LINK] >> 4 != 6 || is_discovery(f, direction))
			return NOT_JUDGED;
		f->version = 6;
		address->version = 6;
		for (int i = 0; i < 16; i++)
			address->bytes[i] = b[from + i];
		f->header = LINK + 40;
		f->protocol = b[LINK + 6];
	} else if ((type == ETH_P_ARP && is_arp(f)) || (type < LLC_MAX && is_snap_ip(f))) {
		return NOT_JUDGED;
	} else {
		return JUDGED_AT_OWN_PORT;
	}
	if (f->header && f->protocol == IPPROTO_TCP)
		f->checksum = f->header + 16;
	else if (f->header && f->protocol == IPPROTO_UDP)
		f->checksum = f->header + 6;
	return JUDGED;
}
