// SPDX-License-Identifier: Apache-2.0
//
// The auditor's tap: counts the packets of the VM's interface, and sums their keyed digests.
//
// The auditor compares these sums with those that the P4 VM published. The tap must count exactly the frames
// that a mediator submits (p4shield_mediator::Kind: at the VM's own port all except ARP and neighbour
// discovery; on a shared port IP with one of the VM's addresses on the VM's side), and digest them like
// p4shield_seal::PacketDigest. A P4 VM's record covers "the first n packets", so the tap stores the running
// sum after each recent packet, and the auditor looks up that of n.
//
// tap/tests.rs compares the rules with those in Rust.

#include "tap.h"
#include "classify.h"

#define ROTL(x, n) ((x) << (n) | (x) >> (64 - (n)))
#define SIP_ROUND                                                       \
	do {                                                            \
		v0 += v1; v1 = ROTL(v1, 13); v1 ^= v0; v0 = ROTL(v0, 32); \
		v2 += v3; v3 = ROTL(v3, 16); v3 ^= v2;                    \
		v0 += v3; v3 = ROTL(v3, 21); v3 ^= v0;                    \
		v2 += v1; v1 = ROTL(v1, 17); v1 ^= v2; v2 = ROTL(v2, 32); \
	} while (0)

// SipHash-1-3 over the length, four zero bytes, and the words that contain the first `cover` bytes.
static NOINLINE __u64 digest(const __u64 *words, __u32 len, __u32 cover, const struct key *c)
{
	__u64 v0 = c->k0 ^ 0x736f6d6570736575ULL, v1 = c->k1 ^ 0x646f72616e646f6dULL;
	__u64 v2 = c->k0 ^ 0x6c7967656e657261ULL, v3 = c->k1 ^ 0x7465646279746573ULL;
	__u64 m = len;
	__u64 total = 8;

	v3 ^= m;
	SIP_ROUND;
	v0 ^= m;
#pragma unroll
	for (__u32 i = 0; i < DIGEST_BYTES / 8; i++) {
		if (i * 8 >= cover)
			break;
		m = words[i];
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

// Zeroes the fields of IPv4 that segmentation changes: header checksum, and identification. That of a
// fragment ("more fragments", or an offset, both in the first 22 bytes) stays: it says to which others the
// fragment belongs.
ALWAYS_INLINE void zero_ipv4(__u64 *words, __u32 cover)
{
	if (cover < 22 || !(words[2] & 0xff3f00000000ULL))
		words[2] &= ~0xffff0000ULL;
	words[3] &= ~0xffffULL;
}

ALWAYS_INLINE __u32 least(__u32 a, __u32 b)
{
	return a < b ? a : b;
}

// Returns how many bytes of a packet with `have` of them both ends can digest.
ALWAYS_INLINE __u32 covered(const struct frame *f, __u32 have, const struct config *c)
{
	__u32 cover = c->cover > f->tags ? c->cover - f->tags : 0;

	return least(least(cover, DIGEST_BYTES), have);
}

// Counts one packet. Without digests (0) it is counted as not whole.
ALWAYS_INLINE void push(__u32 direction, __u32 len, __u64 sum, __u64 other)
{
	__u32 first = KEYS * direction, second = first + 1;
	struct tally *t = bpf_map_lookup_elem(&tallies, &direction);
	struct history *a = bpf_map_lookup_elem(&histories, &first);
	struct history *b = bpf_map_lookup_elem(&histories, &second);

	if (!t || !a || !b)
		return;
	bpf_spin_lock(&t->lock);
	t->packets += 1;
	t->bytes += len;
	t->digests[0] += sum;
	t->digests[1] += other;
	t->not_whole += !(sum | other);
	a->after[t->packets % HISTORY] = t->digests[0];
	b->after[t->packets % HISTORY] = t->digests[1];
	bpf_spin_unlock(&t->lock);
}

// Digests one packet with the keys that are used, and counts it.
ALWAYS_INLINE void push_digested(__u32 direction, const __u64 *words, __u32 len, __u32 cover,
				 const struct config *c)
{
	__u64 sum = 0, other = 0;

	if (c->used & 1)
		sum = digest(words, len, cover, &c->keys[0]);
	if (c->used & 2)
		other = digest(words, len, cover, &c->keys[1]);
	push(direction, len, sum, other);
}

// Returns whether a mediator submits the frame, and counts it if not.
ALWAYS_INLINE int is_submitted(struct frame *f, __u32 direction, __u32 segments, const struct config *c)
{
	struct address address = {};
	struct tally *t;
	int judged = dissect(f, direction, &address);

	if (judged != NOT_JUDGED &&
	    (c->every_ip || (judged == JUDGED && bpf_map_lookup_elem(&addresses, &address))))
		return 1;
	t = bpf_map_lookup_elem(&tallies, &direction);
	if (t) {
		bpf_spin_lock(&t->lock);
		t->others += segments;
		t->other_bytes += f->len;
		bpf_spin_unlock(&t->lock);
	}
	return 0;
}

// Counts and digests a single packet.
ALWAYS_INLINE void count(struct frame *f, __u32 direction, const struct config *c)
{
	__u32 cover = covered(f, f->have, c), checksum = f->checksum;

	if (f->version == 4)
		zero_ipv4(f->words, cover);
	if (checksum && checksum + 2 <= cover) {
		__u8 *b = (__u8 *)f->words;

		BARRIER(checksum);
		if (checksum <= DIGEST_BYTES - 2) {
			b[checksum] = 0;
			b[checksum + 1] = 0;
		}
	}
	push_digested(direction, f->words, f->len, cover, c);
}

// Returns the number of bytes to copy of a frame, 0 without an Ethernet header.
ALWAYS_INLINE __u64 head(__u32 len)
{
	__u64 n = len;

	BARRIER(n);
	if (n > HEAD_BYTES)
		n = HEAD_BYTES;
	BARRIER(n);
	return n < ETH_HLEN ? 0 : n;
}

// Returns how many bytes the tags of the frame take that are in its data, at most `most` of them.
ALWAYS_INLINE __u32 tag_bytes(const struct frame *f, __u32 most)
{
	const __u8 *b = (const __u8 *)f->words;

	if (most < 1 || !is_tag(be16(b, 12)) || f->have < 18)
		return 0;
	if (most < 2 || !is_tag(be16(b, 16)))
		return 4;
	return f->have < 22 ? 0 : 8; // a frame that ends before its EtherType keeps its tags
}

// Loads the front of a frame, and again without its tags. Evaluates to 0 if the frame is too short.
#define LOAD(f, load, ctx, beside)                                                                  \
	({                                                                                          \
		__u64 have = head((f)->len);                                                        \
		int loaded = have && load(ctx, 0, (f)->words, have) == 0;                           \
		__u32 tags;                                                                         \
		(f)->have = have;                                                                   \
		(f)->tags = 0;                                                                      \
		tags = loaded ? tag_bytes(f, beside ? 1 : 2) : 0;                                   \
		if (tags) {                                                                         \
			__u64 rest;                                                                 \
			(f)->len -= tags;                                                           \
			rest = head((f)->len);                                                      \
			(f)->have = rest;                                                           \
			rest -= 12;                                                                 \
			BARRIER(rest);                                                              \
			loaded = rest >= 2 && rest <= HEAD_BYTES - 12 &&                            \
				 load(ctx, 12 + tags, (__u8 *)(f)->words + 12, rest) == 0;          \
		}                                                                                   \
		(f)->tags = tags + (beside ? 4 : 0);                                                \
		loaded;                                                                             \
	})

SEC("xdp")
int tap_xdp(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct frame f = {};
	struct config *c = bpf_map_lookup_elem(&settings, &zero);

	f.len = bpf_xdp_get_buff_len(ctx);
	if (c && LOAD(&f, bpf_xdp_load_bytes, ctx, 0) && is_submitted(&f, INGRESS, 1, c))
		count(&f, INGRESS, c);
	return XDP_PASS;
}

// A super-packet of TCP, which offloads split into segments or merged from them.
struct super {
	struct __sk_buff *skb;
	const struct frame *f;
	const struct config *c;
	__u32 direction;
	__u32 tcp;      // offset of the TCP header
	__u32 header;   // bytes of all headers
	__u32 data;     // offset of the payload in the socket buffer
	__u32 payload;  // bytes after the headers
	__u32 size;     // bytes of payload in a segment
	__u32 segments;
	__u32 digested; // whether segments are digested
};

// The front of a segment, with room behind it for a copy at any offset in it.
struct segment {
	__u64 words[2 * HEAD_BYTES / 8];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct segment);
} scratch SEC(".maps");

ALWAYS_INLINE void put16(__u8 *b, __u32 at, __u32 value)
{
	b[at] = value >> 8;
	b[at + 1] = value;
}

// Makes segment `i` as the network carries it, and counts it.
static long count_segment(__u32 i, struct super *s)
{
	__u32 zero = 0, at = i * s->size, left, bytes, tcp = s->tcp & 127, copied;
	struct segment *out = bpf_map_lookup_elem(&scratch, &zero);
	__u32 header = s->header & 127;
	__u8 *b;

	if (!out || at >= s->payload)
		return 1;
	left = s->payload - at;
	bytes = least(left, s->size);
	if (!s->digested) {
		push(s->direction, header + bytes, 0, 0);
		return 0;
	}
	for (int w = 0; w < HEAD_BYTES / 8; w++)
		out->words[w] = s->f->words[w];
	b = (__u8 *)out->words;
	if (header < DIGEST_BYTES) {
		// At least one byte; Linux 6.1 does not learn that from a comparison with 0.
		copied = least(DIGEST_BYTES - header, bytes) - 1;
		BARRIER(copied);
		copied = (copied & 127) + 1;
		if (bpf_skb_load_bytes(s->skb, s->data + at, b + header, copied) != 0) {
			push(s->direction, header + bytes, 0, 0);
			return 0;
		}
	}
	if (s->f->version == 4) {
		put16(b, 14 + 2, header - 14 + bytes);
		zero_ipv4(out->words, DIGEST_BYTES);
	} else {
		put16(b, 14 + 4, header - 54 + bytes);
	}
	{
		__u8 *h = b + tcp;
		__u32 sequence = ((__u32)h[4] << 24 | h[5] << 16 | h[6] << 8 | h[7]) + at;

		put16(h, 4, sequence >> 16);
		put16(h, 6, sequence);
		if (i + 1 < s->segments)
			h[13] &= ~0x09; // FIN and PSH are the last segment's
		if (i > 0)
			h[13] &= ~0x80; // CWR is the first one's
	}
	{
		__u32 cover = covered(s->f, header + bytes, s->c);

		if (tcp + 18 <= cover)
			put16(b + tcp, 16, 0);
		push_digested(s->direction, out->words, header + bytes, cover, s->c);
	}
	return 0;
}

// Counts each packet of a super-packet. All others than those of TCP are counted without a digest: what
// segments of them look like depends on what the socket buffer does not show, such as tunnels.
ALWAYS_INLINE void count_super(struct __sk_buff *skb, struct frame *f, __u32 direction,
			       const struct config *c, __u32 stripped)
{
	const __u8 *b = (const __u8 *)f->words;
	struct super s = {.skb = skb, .f = f, .c = c, .direction = direction, .size = skb->gso_size};
	__u32 tcp = f->header;

	s.header = tcp ? tcp + 8 : ETH_HLEN;
	if (tcp && f->protocol == IPPROTO_TCP && tcp <= 14 + 60 && f->have >= tcp + 20) {
		__u32 header = (b[(tcp & 127) + 12] >> 4) * 4;

		if (header >= 20 && tcp + header < HEAD_BYTES && f->have >= tcp + header) {
			s.tcp = tcp;
			s.header = tcp + header;
			s.digested = 1;
		}
	}
	s.data = s.header + stripped;
	s.payload = f->len > s.header ? f->len - s.header : 1;
	s.segments = s.size ? (s.payload + s.size - 1) / s.size : 1;
	bpf_loop(least(s.segments, 1 << 16), count_segment, &s, 0);
}

ALWAYS_INLINE int tap_skb(struct __sk_buff *skb, __u32 direction)
{
	__u32 zero = 0, is_super = skb->gso_size != 0 && skb->gso_segs != 1;
	__u32 beside = skb->vlan_present != 0;
	struct frame f = {};
	struct config *c = bpf_map_lookup_elem(&settings, &zero);
	__u32 len = skb->len;

	f.len = len;
	if (!c || !LOAD(&f, bpf_skb_load_bytes, skb, beside) ||
	    !is_submitted(&f, direction, is_super && skb->gso_segs ? skb->gso_segs : 1, c))
		return TC_ACT_UNSPEC;
	if (is_super)
		count_super(skb, &f, direction, c, len - f.len);
	else
		count(&f, direction, c);
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
