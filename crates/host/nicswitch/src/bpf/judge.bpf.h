/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The NIC switch: judges every frame that a port's interface receives by the role of the port, and
 * names the one port to which it may go. All else is dropped and counted. No frame ever reaches the
 * host's own network stack.
 *
 * A program for one of the kernel's hooks includes this after frame.bpf.h's definitions for it: xdp.bpf.c
 * and tc.bpf.c.
 */
#pragma once

#include "maps.bpf.h"
#include "packet.bpf.h"
#include "roles.bpf.h"

/*
 * Whether a frame is within its port's rate: the generic cell rate algorithm (ITU-T I.371). Its state is one
 * number, which processors replace without a lock. A frame that is still to be divided passes if one does,
 * and counts as all.
 */
static __always_inline bool is_in_rate(__u32 interface, const struct entry *port, __u32 frames)
{
	__u64 longest = (__u64)port->interval * port->burst;
	__u64 taken = (__u64)port->interval * frames;
	__u64 *next = bpf_map_lookup_elem(&nic_rates, &interface);
	__u64 now = bpf_ktime_get_ns();

	if (!next)
		return false;
	for (int i = 0; i < 4; i++) {
		__u64 seen = *(volatile __u64 *)next;
		__u64 due = seen > now ? seen : now;

		if (due - now > longest)
			return false;
		if (__sync_val_compare_and_swap(next, seen, due + taken) == seen)
			return true;
	}
	/* Other processors were faster each time: the port has many frames at once. */
	return false;
}

/*
 * The reason why what the frame's sender left to be done cannot be done behind the switch, or FORWARD. The
 * target's interface does it, so a compartment receives whole frames; and a switch's sockets leave nothing.
 */
static __always_inline int check_rest(FRAME *ctx, const struct entry *port, const struct packet *packet)
{
	__s64 end;

	if (!lacks_checksum(ctx))
		return segment_size(ctx) ? TOO_LONG : FORWARD;
	if (port->role != VM && port->role != UPLINK)
		return CHECKSUM;
	end = end_of_judged(ctx, packet);
	if (checksum_start(ctx) < end || checksum_end(ctx) > ctx->data_end - ctx->data)
		return CHECKSUM;
	return segment_size(ctx) && !is_divisible(ctx, end) ? TOO_LONG : FORWARD;
}

/* Applies the policy: the reason to drop the frame, or FORWARD with the target. */
static __always_inline int judge(FRAME *ctx, bool tagged, __u32 frames, struct decision *decision)
{
	struct packet packet = {};
	struct entry *port;
	void *policy;
	int result;

	policy = current_policy();
	if (!policy)
		return UNASSIGNED;
	port = find_port(policy, receiver_of(ctx));
	if (!port)
		return UNASSIGNED;
	if (port->interval && !is_in_rate(receiver_of(ctx), port, frames))
		return RATE;
	result = read_ethernet(ctx, &packet);
	if (result != FORWARD)
		return result;
	if (tagged || packet.type == ETH_P_8021Q || packet.type == ETH_P_8021AD)
		return TAG;
	if (!is_own_source(policy, port, &packet))
		return SOURCE_MAC;
	result = read_packet(ctx, &packet);
	if (result != FORWARD)
		return result;
	result = check_rest(ctx, port, &packet);
	if (result != FORWARD)
		return result;
	switch (port->role) {
	case VM:
		return judge_vm(ctx, policy, port, &packet, decision);
	case GATEWAY:
		return judge_gateway(policy, port, &packet, decision);
	case IN_OUT:
		return judge_in_out(ctx, policy, port, &packet, decision);
	case UPLINK:
		return judge_uplink(policy, &packet, decision);
	}
	return UNASSIGNED;
}

/* The reason why the frame cannot go to its target, or FORWARD. */
static __always_inline int check_target(FRAME *ctx, __u32 target)
{
	__u32 mtu = 0;
	long result;

	if (!target)
		return NO_PORT;
	result = bpf_check_mtu(ctx, target, &mtu, 0, segment_size(ctx) ? EACH_SEGMENT : 0);
	if (result < 0)
		return NO_PORT;
	if (segment_size(ctx))
		return result ? TOO_LONG : FORWARD;
	return frame_length(ctx) > mtu + ETH_HLEN ? TOO_LONG : FORWARD;
}

/* Counts a received frame and judges it: the reason to drop it, or FORWARD with the target. */
static __always_inline int receive(FRAME *ctx, bool tagged, const struct amount *amount,
				   struct counters *counters, struct decision *decision)
{
	int result;

	if (counters) {
		counters->received_packets += amount->frames;
		counters->received_bytes += amount->bytes;
	}
	result = judge(ctx, tagged, amount->frames, decision);
	return result == FORWARD ? check_target(ctx, decision->target) : result;
}

static __always_inline void count_delivery(const struct amount *amount, __u32 target)
{
	struct counters *counters = bpf_map_lookup_elem(&nic_counters, &target);

	if (counters) {
		counters->delivered_packets += amount->frames;
		counters->delivered_bytes += amount->bytes;
	}
}

static __always_inline void count_drop(const struct amount *amount, struct counters *counters, int reason)
{
	if (counters && reason >= 0 && reason < REASONS)
		counters->drops[reason] += amount->frames;
}
