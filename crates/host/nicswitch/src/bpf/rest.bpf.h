/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * What a frame's sender left to be done by the interface that sends it on: to write a checksum, and to divide
 * it into frames (GSO). In XDP there is no such rest, since only bytes are redirected.
 */
#pragma once

#include <linux/if_ether.h>

#include "frame.bpf.h"

/* What leaves the switch for a frame that it receives. */
struct amount {
	__u32 frames;
	__u32 bytes;
};

#ifdef IN_TRAFFIC_CONTROL

#include <bpf/bpf_core_read.h>

/* What is read of the kernel's packet: libbpf finds its place in the running kernel. */
struct sk_buff {
	__u8 ip_summed : 2;
	__u16 csum_start; /* in bytes from head */
	__u16 csum_offset;
	unsigned int end; /* of what head begins, where the part begins that clones share */
	unsigned char *head;
	unsigned char *data;
} __attribute__((preserve_access_index));

struct skb_shared_info {
	unsigned int gso_type;
	struct sk_buff *frag_list;
} __attribute__((preserve_access_index));

/* Linux 6.2. */
extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;
extern void *bpf_rdonly_cast(const void *object, __u32 type) __ksym;

/* The value of ip_summed for a packet whose checksum is still to be written. */
#define CHECKSUM_PARTIAL 3

/* Bits of gso_type (include/linux/skbuff.h, Linux 6.6 to 6.18) of what the kernel divides by a size: TCP over
 * IPv4 or IPv6, and datagrams of UDP. Their variants: ECN, a fixed ID, accurate ECN, a fixed ID since 6.18;
 * what its sender, such as a VM, did not check. And tunnels: GRE, IP, UDP. */
#define BY_SIZE (1U << 0 | 1U << 4 | 1U << 17)
#define VARIANTS (1U << 2 | 1U << 3 | 1U << 19 | 1U << 30 | 1U << 31 | 1U << 1)
#define IN_TUNNEL (1U << 6 | 1U << 7 | 1U << 8 | 1U << 9 | 1U << 10 | 1U << 11)

/* The least size of a segment that is taken, and the most bytes behind Ethernet: a VM has the host send 132
 * frames at once, a pair of veth holds 256, and a core's queue 1000. TCP has smaller ones on rare paths. */
#define LEAST_SEGMENT 500
#define MOST_UNDIVIDED 65535

/* Whether a checksum is still to be written, by the kernel or a card, where the sender says: also over what
 * was judged. */
static __always_inline bool lacks_checksum(FRAME *ctx)
{
	struct sk_buff *packet = bpf_cast_to_kern_ctx(ctx);

	return BPF_CORE_READ_BITFIELD(packet, ip_summed) == CHECKSUM_PARTIAL;
}

/* Where in the frame the bytes begin that the checksum is of. It is written behind the first of them. */
static __always_inline __s64 checksum_start(FRAME *ctx)
{
	struct sk_buff *packet = bpf_cast_to_kern_ctx(ctx);

	return (__s64)packet->head + packet->csum_start - (__s64)packet->data;
}

/* Where the checksum ends, which is in the first piece of the frame (between data and data_end). */
static __always_inline __s64 checksum_end(FRAME *ctx)
{
	struct sk_buff *packet = bpf_cast_to_kern_ctx(ctx);

	return checksum_start(ctx) + packet->csum_offset + 2;
}

/* Bytes behind the headers of each frame into which it is to be divided; 0: it is one frame. */
static __always_inline __u32 segment_size(const FRAME *ctx)
{
	return ctx->gso_size;
}

static __always_inline struct skb_shared_info *shared_info(FRAME *ctx)
{
	struct sk_buff *packet = bpf_cast_to_kern_ctx(ctx);

	return bpf_rdonly_cast(packet->head + packet->end, bpf_core_type_id_kernel(struct skb_shared_info));
}

/* Whether the frames into which it is to be divided are as many and as large as an interface may have to
 * send at once. */
static __always_inline bool is_of_bounded_segments(const FRAME *ctx)
{
	return segment_size(ctx) >= LEAST_SEGMENT && ctx->len <= ETH_HLEN + MOST_UNDIVIDED;
}

/* Whether the kernel divides it by its segment size, and behind the headers of the checksum: where those that
 * were judged end, or in a tunnel. */
static __always_inline bool is_divisible(FRAME *ctx, __s64 end_of_judged)
{
	__u32 type = shared_info(ctx)->gso_type;

	if (!(type & BY_SIZE) || type & ~(BY_SIZE | VARIANTS | IN_TUNNEL) || !is_of_bounded_segments(ctx))
		return false;
	return type & IN_TUNNEL || checksum_start(ctx) == end_of_judged;
}

/* For bpf_check_mtu: the lengths of the frames count into which it is to be divided. */
#define EACH_SEGMENT BPF_MTU_CHK_SEGS

/* Bytes of the headers of each frame into which it is to be divided. In tunnels, where a sender may claim
 * any, only Ethernet's are sure: of such packets a frame more may be counted than leaves. */
static __always_inline __u32 headers_of(FRAME *ctx)
{
	__u32 type = shared_info(ctx)->gso_type;
	__s64 start = checksum_start(ctx);
	bool is_udp = type & 1U << 17;
	__u8 words = 0;

	if (type & IN_TUNNEL || start < 0 || start > frame_length(ctx))
		return ETH_HLEN;
	if (is_udp || load_bytes(ctx, start + 12, &words, sizeof(words)))
		return start + 8;
	return start + (words >> 4) * 4;
}

static __always_inline struct amount amount_of(FRAME *ctx)
{
	struct amount amount = { .frames = 1, .bytes = frame_length(ctx) };
	__u32 size = segment_size(ctx), headers;

	/* Others leave, or are dropped, as they are. */
	if (!lacks_checksum(ctx) || !is_of_bounded_segments(ctx))
		return amount;
	headers = headers_of(ctx);
	if (headers < amount.bytes)
		amount.frames = (amount.bytes - headers + size - 1) / size;
	amount.bytes += (amount.frames - 1) * headers;
	return amount;
}

/* Has these first bytes of the frame, as far as there are so many, in memory of its own: others may be in
 * pages of its sender (splice), or shared with another packet (a clone). False: there is no memory. */
static __always_inline bool own(FRAME *ctx, __u32 bytes)
{
	return !bpf_skb_pull_data(ctx, ctx->len < bytes ? ctx->len : bytes);
}

/* Makes one piece of a list of packets that is to be divided by a size: the kernel (skb_segment) can halt if
 * anything of the list was read into the header, here or before. False: there is no memory. */
static __always_inline bool make_divisible(FRAME *ctx)
{
	if (!segment_size(ctx) || !shared_info(ctx)->frag_list)
		return true;
	return !bpf_skb_pull_data(ctx, ctx->len);
}

#else

static __always_inline bool lacks_checksum(FRAME *ctx)
{
	return false;
}

static __always_inline __s64 checksum_start(FRAME *ctx)
{
	return 0;
}

static __always_inline __s64 checksum_end(FRAME *ctx)
{
	return 0;
}

static __always_inline __u32 segment_size(const FRAME *ctx)
{
	return 0;
}

static __always_inline bool is_divisible(FRAME *ctx, __s64 end_of_judged)
{
	return false;
}

#define EACH_SEGMENT 0

static __always_inline struct amount amount_of(FRAME *ctx)
{
	struct amount amount = { .frames = 1, .bytes = frame_length(ctx) };

	return amount;
}

/* A driver that runs XDP has copied what was not its own. */
static __always_inline bool own(FRAME *ctx, __u32 bytes)
{
	return true;
}

#endif
