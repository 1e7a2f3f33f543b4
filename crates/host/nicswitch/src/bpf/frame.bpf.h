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

#endif
