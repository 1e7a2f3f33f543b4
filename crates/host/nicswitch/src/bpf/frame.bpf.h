/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * A frame as a hook of the kernel shows it. A program defines IN_TRAFFIC_CONTROL before it includes this for
 * traffic control, where a frame is an sk_buff; without, it is one in XDP. Both have the fields data and
 * data_end.
 */
#pragma once

#include <stdbool.h>

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#ifdef IN_TRAFFIC_CONTROL

#include <bpf/bpf_core_read.h>

#define FRAME struct __sk_buff
#define load_bytes bpf_skb_load_bytes

/* Bytes of the frame, of which the last ones may not be between data and data_end. */
static __always_inline __u32 frame_length(const FRAME *ctx)
{
	return ctx->len;
}

/* The interface that received it. */
static __always_inline __u32 receiver_of(const FRAME *ctx)
{
	return ctx->ifindex;
}

/* What is read of the kernel's packet: libbpf finds its place in the running kernel. */
struct sk_buff {
	__u8 ip_summed : 2;
	__u16 csum_start; /* in bytes from head */
	__u16 csum_offset;
	unsigned char *head;
	unsigned char *data;
} __attribute__((preserve_access_index));

/* Linux 6.2. */
extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;

/* The value of ip_summed for a packet whose checksum is still to be written. */
#define CHECKSUM_PARTIAL 3

/* Whether a checksum is still to be written, by the kernel or a card, where the sender says: also over what
 * was judged. */
static __always_inline bool lacks_checksum(FRAME *ctx)
{
	struct sk_buff *packet = bpf_cast_to_kern_ctx(ctx);

	return BPF_CORE_READ_BITFIELD(packet, ip_summed) == CHECKSUM_PARTIAL;
}

/* Where the two bytes of a checksum that is still to be written begin in the frame. */
static __always_inline __u64 checksum_place(FRAME *ctx)
{
	struct sk_buff *packet = bpf_cast_to_kern_ctx(ctx);

	return (__u64)packet->head + packet->csum_start + packet->csum_offset - (__u64)packet->data;
}

/* Bytes behind the headers of each frame into which the interface that sends it is still to divide it; 0: it
 * is one. */
static __always_inline __u32 segment_size(const FRAME *ctx)
{
	return ctx->gso_size;
}

/* For bpf_check_mtu: the lengths of the frames count into which it is to be divided. */
#define EACH_SEGMENT BPF_MTU_CHK_SEGS

/* Has these first bytes of the frame, as far as there are so many, in memory of its own: others may be in
 * pages of its sender (splice), or shared with another packet (a clone). False: there is no memory. */
static __always_inline bool own(FRAME *ctx, __u32 bytes)
{
	return !bpf_skb_pull_data(ctx, ctx->len < bytes ? ctx->len : bytes);
}

#else

#define FRAME struct xdp_md
#define load_bytes bpf_xdp_load_bytes

static __always_inline __u32 frame_length(const FRAME *ctx)
{
	return ctx->data_end - ctx->data;
}

static __always_inline __u32 receiver_of(const FRAME *ctx)
{
	return ctx->ingress_ifindex;
}

/* What is redirected in XDP are the bytes alone. */
static __always_inline bool lacks_checksum(FRAME *ctx)
{
	return false;
}

static __always_inline __u64 checksum_place(FRAME *ctx)
{
	return 0;
}

static __always_inline __u32 segment_size(const FRAME *ctx)
{
	return 0;
}

#define EACH_SEGMENT 0

/* A driver that runs XDP has copied what was not its own. */
static __always_inline bool own(FRAME *ctx, __u32 bytes)
{
	return true;
}

#endif
