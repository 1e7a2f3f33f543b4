// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// The NIC switch in traffic control: moves frames between interfaces as the kernel's packets that they are,
// without a copy, and without the receive interrupt of a pair of veth in between (NAPI).
//
//   nic_switch   at the ingress of each port, before other filters (tcx). It never lets a frame go on to the
//                host's stack.
//   nic_guard    drops what would reach the stack if nic_switch were taken away.
//   nic_outward  drops every packet that the host's own stack sends into a port, and passes what nic_switch
//                sends there.

#define IN_TRAFFIC_CONTROL
#include "frame.bpf.h"
#include "judge.bpf.h"

/* The mark of a frame on its way from nic_switch to nic_outward: "P4NS". A VM's own mark does not leave its
 * network namespace. */
#define FORWARDED 0x50344e53

/* Bytes that are read directly: up to the end of an IPv6 header. */
#define DIRECT (ETH_HLEN + IPV6_HEADER)

/*
 * A frame for a compartment goes to the other end of its port's pair at once, if the policy says so, as if
 * that had received it. Otherwise it leaves by its port, for which the kernel writes its checksum and divides
 * it, if its sender has not.
 */
static __always_inline int forward(struct __sk_buff *ctx, const struct decision *decision)
{
	if (decision->flags & DIRECTLY && !lacks_checksum(ctx))
		return bpf_redirect_peer(decision->target, 0);
	ctx->mark = FORWARDED;
	return bpf_redirect(decision->target, 0);
}

SEC("tc")
int nic_switch(struct __sk_buff *ctx)
{
	__u32 receiver = receiver_of(ctx);
	struct counters *counters = bpf_map_lookup_elem(&nic_counters, &receiver);
	struct amount amount = amount_of(ctx);
	struct decision decision = {};
	int result = MALFORMED;

	if (own(ctx, DIRECT))
		result = receive(ctx, ctx->vlan_present, &amount, counters, &decision);
	if (result == FORWARD && !make_divisible(ctx))
		result = TOO_LONG;
	if (result == FORWARD) {
		count_delivery(&amount, decision.target);
		return forward(ctx, &decision);
	}
	count_drop(&amount, counters, result);
	return TC_ACT_SHOT;
}

SEC("tc")
int nic_guard(struct __sk_buff *ctx)
{
	return TC_ACT_SHOT;
}

SEC("tc")
int nic_outward(struct __sk_buff *ctx)
{
	if (ctx->mark != FORWARDED)
		return TC_ACT_SHOT;
	ctx->mark = 0;
	return TC_ACT_OK;
}

/* The kernel requires a GPL-compatible licence for its functions; this file may be used under the GPL. */
char LICENSE[] SEC("license") = "GPL";
