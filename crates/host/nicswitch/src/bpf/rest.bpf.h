/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * What a frame's sender left to be done by the interface that sends it on: to write a checksum, and to divide
 * it into frames (GSO). In XDP there is no such rest, since only bytes are redirected.
 */
#pragma once

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

/* The value of ip_summed for a packet whose checksum is still to be written. */
#define CHECKSUM_PARTIAL 3

/* Bits of gso_type, as in include/linux/skbuff.h since Linux 4.18, of what the kernel divides by sizes. */
#define BY_TCP (1 << 0 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 19) /* IPv4, ECN, a fixed ID, IPv6, accurate ECN */
#define BY_UDP (1 << 16 | 1 << 17)                           /* IP fragments, datagrams */
#define IN_TUNNELS (1 << 6 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11) /* GRE, IP in IP, UDP */
#define UNCHECKED (1 << 1)                                   /* by its sender, such as a VM */
#define DIVISIBLE (BY_TCP | BY_UDP | IN_TUNNELS | UNCHECKED)

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

/* Where the checksum ends. */
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

	return (void *)(packet->head + packet->end);
}

/* Whether the kernel divides it by its segment size. It divides SCTP by a list of packets. */
static __always_inline bool is_divisible(FRAME *ctx)
{
	return !(BPF_CORE_READ(shared_info(ctx), gso_type) & ~DIVISIBLE);
}

/* For bpf_check_mtu: the lengths of the frames count into which it is to be divided. */
#define EACH_SEGMENT BPF_MTU_CHK_SEGS

/* Bytes of the headers of each frame into which it is to be divided. */
static __always_inline __u32 headers_of(FRAME *ctx)
{
	__s64 start = checksum_start(ctx);
	bool is_tcp = checksum_end(ctx) - start == 18;
	__u8 words = 0;

	if (start < 0 || start > frame_length(ctx))
		return 0;
	if (!is_tcp || load_bytes(ctx, start + 12, &words, sizeof(words)))
		return start + 8;
	return start + (words >> 4) * 4;
}

static __always_inline struct amount amount_of(FRAME *ctx)
{
	struct amount amount = { .frames = 1, .bytes = frame_length(ctx) };
	__u32 size = segment_size(ctx), headers;

	if (!size)
		return amount;
	headers = headers_of(ctx);
	if (headers < amount.bytes)
		amount.frames = (amount.bytes - headers + size - 1) / size;
	amount.bytes += (amount.frames - 1) * headers;
	return amount;
}

/* Has these first bytes of the frame, as far as there are so many, in memory of its own: others may be in
 * pages of its sender (splice), or shared with another packet (a clone). False: there is no memory, or they
 * are in a list of packets, by which the kernel divides it later and which has to stay as it is. */
static __always_inline bool own(FRAME *ctx, __u32 bytes)
{
	__u32 first = ctx->data_end - ctx->data;

	if (bytes > ctx->len)
		bytes = ctx->len;
	if (bytes > first && segment_size(ctx) && BPF_CORE_READ(shared_info(ctx), frag_list))
		return false;
	return !bpf_skb_pull_data(ctx, bytes);
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

static __always_inline bool is_divisible(FRAME *ctx)
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
