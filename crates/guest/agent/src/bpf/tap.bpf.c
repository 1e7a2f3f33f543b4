// SPDX-License-Identifier: Apache-2.0
//
// The auditor's tap: counts the packets of the VM's interface, and sums their keyed digests.
//
// The auditor compares these sums with those that the P4 VM published. The tap must count exactly the frames
// that a mediator submits (p4shield_mediator::Kind: at the VM's own port all except ARP and neighbour
// discovery; on a shared port IP with one of the VM's addresses on the VM's side), and digest them like
// p4shield_seal::PacketDigest. A P4 VM's record
// covers "the first n packets", so the tap stores the running sum after each recent packet, and the auditor
// looks up that of n.
//
// tap/maps.rs repeats the layouts of the maps; tap/tests.rs compares the rules with those in Rust.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define DIGEST_BYTES 128
#define HISTORY 65536
#define INGRESS 0
#define EGRESS 1
#define QINQ 0x9100 // the VLAN tag that predates 802.1ad
#define IPPROTO_ICMPV6 58
#define LLC_MAX 0x0600 // below it the EtherType is a length
#define MAX_LINK 22    // bytes of the longest link header
#define ALWAYS_INLINE static __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))

struct config {
	__u64 k0, k1;    // SipHash key
	__u32 cover;     // bytes of a packet that a digest covers, at most DIGEST_BYTES
	__u32 every_ip;  // whether the port is the VM's own, so that addresses do not matter
};

struct tally {
	struct bpf_spin_lock lock;
	__u32 reserved;
	__u64 packets;      // frames that a mediator submits, with each segment of a super-packet counted
	__u64 bytes;        // their bytes
	__u64 digest;       // sum of their digests
	__u64 not_whole;    // packets among them that could not be digested
	__u64 whole_since;  // value of `packets` after the last of them
	__u64 others;       // frames that a mediator does not submit
	__u64 other_bytes;
};

struct history {
	__u64 after[HISTORY]; // after[n % HISTORY]: `digest` when `packets` was n
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct config);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct tally);
} tallies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct history);
} histories SEC(".maps");

struct address {
	__u8 bytes[16]; // of an IPv4 address the first four
	__u32 version;  // 4 or 6
};

// The VM's addresses.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct address);
	__type(value, __u8);
} addresses SEC(".maps");

// Properties of a frame.
struct frame {
	__u64 words[DIGEST_BYTES / 8]; // its first bytes, zero-padded
	__u32 have;                    // number of those bytes
	__u32 len;                     // length of the whole frame
	__u32 segments;                // number of packets on the wire
	__u32 whole;                   // whether it is a single packet with all its bytes
};

ALWAYS_INLINE __u16 be16(const __u8 *b, __u32 at)
{
	return (__u16)(b[at] << 8 | b[at + 1]);
}

ALWAYS_INLINE int is_tag(__u16 type)
{
	return type == ETH_P_8021Q || type == ETH_P_8021AD || type == QINQ;
}

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

ALWAYS_INLINE int is_arp(const struct frame *f, __u32 arp)
{
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
NOINLINE int is_discovery(const struct frame *f, __u32 ip, int direction)
{
	const __u8 *b;
	__u32 fixed, total;
	__u8 kind;
	__u64 s1, s0, d1, d0, t1, t0;
	__u64 group = 0; // the lower half of the multicast address that it may go to
	int unicast;

	if (!f || ip > MAX_LINK)
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
ALWAYS_INLINE int is_snap_ip(const struct frame *f, __u32 llc)
{
	const __u8 *b = (const __u8 *)f->words;
	__u16 type = be16(b, llc + 6);

	return f->have >= llc + 8 && be16(b, llc) == 0xaaaa && be16(b, llc + 2) == 0x0300 &&
	       be16(b, llc + 4) == 0 && (type == ETH_P_IP || type == ETH_P_IPV6 || type == ETH_P_ARP);
}

#define NOT_JUDGED 0
#define JUDGED_AT_OWN_PORT 1
#define JUDGED 2

// Returns whether a mediator submits the frame, as p4shield_mediator::classify decides. For an IP packet it
// finds the VM-side address, and the offset of its layer-4 checksum (0: none).
NOINLINE int dissect(const struct frame *f, int direction, struct address *address, __u32 *checksum)
{
	const __u8 *b;
	__u32 ip = 14;
	__u16 type;

	if (!f || !address || !checksum)
		return NOT_JUDGED;
	b = (const __u8 *)f->words;
	type = be16(b, 12);
	*checksum = 0;
	if (is_tag(type)) {
		type = be16(b, 16);
		ip = 18;
		if (is_tag(type)) {
			type = be16(b, 20);
			ip = 22;
		}
	}
	if (type == ETH_P_IP && f->have >= ip + 20) {
		__u32 header = (b[ip] & 0xf) * 4;
		__u32 from = ip + (direction == INGRESS ? 16 : 12);

		if (b[ip] >> 4 != 4)
			return NOT_JUDGED; // it is dropped
		address->version = 4;
		for (int i = 0; i < 4; i++)
			address->bytes[i] = b[from + i];
		if (header >= 20 && (be16(b, ip + 6) & 0x1fff) == 0) {
			if (b[ip + 9] == 6)
				*checksum = ip + header + 16;
			else if (b[ip + 9] == 17)
				*checksum = ip + header + 6;
		}
		return JUDGED;
	}
	if (type == ETH_P_IPV6 && f->have >= ip + 40) {
		__u32 from = ip + (direction == INGRESS ? 24 : 8);

		if (b[ip] >> 4 != 6 || is_discovery(f, ip, direction))
			return NOT_JUDGED;
		address->version = 6;
		for (int i = 0; i < 16; i++)
			address->bytes[i] = b[from + i];
		if (b[ip + 6] == 6)
			*checksum = ip + 40 + 16;
		else if (b[ip + 6] == 17)
			*checksum = ip + 40 + 6;
		return JUDGED;
	}
	if ((type == ETH_P_ARP && is_arp(f, ip)) || (type < LLC_MAX && is_snap_ip(f, ip)))
		return NOT_JUDGED;
	return JUDGED_AT_OWN_PORT;
}

#define ROTL(x, n) ((x) << (n) | (x) >> (64 - (n)))
#define SIP_ROUND                                                       \
	do {                                                            \
		v0 += v1; v1 = ROTL(v1, 13); v1 ^= v0; v0 = ROTL(v0, 32); \
		v2 += v3; v3 = ROTL(v3, 16); v3 ^= v2;                    \
		v0 += v3; v3 = ROTL(v3, 21); v3 ^= v0;                    \
		v2 += v1; v1 = ROTL(v1, 17); v1 ^= v2; v2 = ROTL(v2, 32); \
	} while (0)

// SipHash-1-3 over the length, four zero bytes, and the words that contain the first `cover` bytes.
ALWAYS_INLINE __u64 digest(const struct frame *f, __u32 cover, const struct config *c)
{
	__u64 v0 = c->k0 ^ 0x736f6d6570736575ULL, v1 = c->k1 ^ 0x646f72616e646f6dULL;
	__u64 v2 = c->k0 ^ 0x6c7967656e657261ULL, v3 = c->k1 ^ 0x7465646279746573ULL;
	__u64 m = f->len;
	__u64 total = 8;

	v3 ^= m;
	SIP_ROUND;
	v0 ^= m;
#pragma unroll
	for (__u32 i = 0; i < DIGEST_BYTES / 8; i++) {
		if (i * 8 >= cover)
			break;
		m = f->words[i];
		if (cover < i * 8 + 8)
			m &= ~0ULL >> (64 - 8 * (cover - i * 8)); // little-endian: the first bytes are the low ones
		v3 ^= m;
		SIP_ROUND;
		v0 ^= m;
		total += 8;
	}
	m = total << 56;
	v3 ^= m;
	SIP_ROUND;
	v0 ^= m;
	v2 ^= 0xff;
	SIP_ROUND;
	SIP_ROUND;
	SIP_ROUND;
	return v0 ^ v1 ^ v2 ^ v3;
}

ALWAYS_INLINE void count(struct frame *f, __u32 direction)
{
	__u32 zero = 0, checksum = 0, cover;
	struct address address = {};
	__u64 sum = 0;
	int judged;
	struct config *c = bpf_map_lookup_elem(&settings, &zero);
	struct tally *t = bpf_map_lookup_elem(&tallies, &direction);
	struct history *h = bpf_map_lookup_elem(&histories, &direction);

	if (!c || !t || !h)
		return;
	judged = dissect(f, direction, &address, &checksum);
	if (judged == NOT_JUDGED ||
	    !(c->every_ip || (judged == JUDGED && bpf_map_lookup_elem(&addresses, &address)))) {
		bpf_spin_lock(&t->lock);
		t->others += f->segments;
		t->other_bytes += f->len;
		bpf_spin_unlock(&t->lock);
		return;
	}
	if (f->whole) {
		cover = c->cover < f->have ? c->cover : f->have;
		if (checksum && checksum <= DIGEST_BYTES - 2 && checksum + 2 <= cover) {
			__u8 *b = (__u8 *)f->words;

			b[checksum] = 0;
			b[checksum + 1] = 0;
		}
		sum = digest(f, cover, c);
	}
	bpf_spin_lock(&t->lock);
	t->packets += f->segments;
	t->bytes += f->len;
	t->digest += sum;
	if (!f->whole) {
		t->not_whole += f->segments;
		t->whole_since = t->packets;
	}
	h->after[t->packets % HISTORY] = t->digest;
	bpf_spin_unlock(&t->lock);
}

// Returns the number of bytes to copy of a frame, 0 without an Ethernet header. The barriers keep clang from
// merging the two bounds into one comparison of a difference, which the verifier cannot follow.
ALWAYS_INLINE __u64 head(__u32 len)
{
	__u64 n = len;

	asm volatile("" : "+r"(n));
	if (n > DIGEST_BYTES)
		n = DIGEST_BYTES;
	asm volatile("" : "+r"(n));
	return n < ETH_HLEN ? 0 : n;
}

SEC("xdp")
int tap_xdp(struct xdp_md *ctx)
{
	struct frame f = {};
	__u64 have;

	f.len = bpf_xdp_get_buff_len(ctx);
	f.segments = 1;
	f.whole = 1;
	have = head(f.len);
	f.have = have;
	if (have && bpf_xdp_load_bytes(ctx, 0, f.words, have) == 0)
		count(&f, INGRESS);
	return XDP_PASS;
}

ALWAYS_INLINE int tap_skb(struct __sk_buff *skb, __u32 direction)
{
	struct frame f = {};
	__u64 have;

	f.len = skb->len;
	f.segments = skb->gso_size && skb->gso_segs > 1 ? skb->gso_segs : 1;
	// A tag that is stored beside the data is on the wire, but not in the bytes.
	f.whole = f.segments == 1 && !skb->vlan_present;
	have = head(f.len);
	f.have = have;
	if (have && bpf_skb_load_bytes(skb, 0, f.words, have) == 0)
		count(&f, direction);
	return TC_ACT_UNSPEC; // for tcx "next": other programs decide about the packet
}

SEC("tc")
int tap_ingress(struct __sk_buff *skb)
{
	return tap_skb(skb, INGRESS);
}

SEC("tc")
int tap_egress(struct __sk_buff *skb)
{
	return tap_skb(skb, EGRESS);
}

char LICENSE[] SEC("license") = "Apache-2.0"; // the helpers used here do not require the GPL
