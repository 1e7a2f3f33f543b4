// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// The NIC switch in XDP: redirects frames from driver to driver, before the kernel's network stack sees them.
// It never returns XDP_PASS.
//
// One of two programs is loaded for each interface:
//   nic_tagged  sees VLAN tags in the packet metadata as well. It calls the driver's metadata functions,
//               so it is loaded for one device only.
//   nic_plain   for kernels (before 6.8) and drivers without these functions.
//
// For traffic control, in both directions of the interface: nic_guard drops every packet that the host's
// own stack sends into a port, and what would reach the stack if the XDP program were taken away.

#include "frame.bpf.h"
#include "judge.bpf.h"

/* Linux 6.8. */
extern int bpf_xdp_metadata_rx_vlan_tag(const struct xdp_md *ctx, __be16 *protocol, __u16 *tci) __ksym __weak;

static __always_inline int handle(struct xdp_md *ctx, bool tagged)
{
	__u32 receiver = receiver_of(ctx);
	struct counters *counters = bpf_map_lookup_elem(&nic_counters, &receiver);
	struct amount amount = amount_of(ctx);
	struct decision decision = {};
	int result = receive(ctx, tagged, &amount, counters, &decision);

	if (result == FORWARD && bpf_redirect_map(&nic_targets, decision.target, XDP_DROP) != XDP_REDIRECT)
		result = NO_PORT;
	if (result == FORWARD) {
		count_delivery(&amount, decision.target);
		return XDP_REDIRECT;
	}
	count_drop(&amount, counters, result);
	return XDP_DROP;
}

SEC("xdp")
int nic_tagged(struct xdp_md *ctx)
{
	__be16 protocol = 0;
	__u16 tci = 0;

	return handle(ctx, !bpf_xdp_metadata_rx_vlan_tag(ctx, &protocol, &tci));
}

SEC("xdp")
int nic_plain(struct xdp_md *ctx)
{
	return handle(ctx, false);
}

SEC("tc")
int nic_guard(struct __sk_buff *skb)
{
	return TC_ACT_SHOT;
}

/* The kernel requires a GPL-compatible licence for its functions; this file may be used under the GPL. */
char LICENSE[] SEC("license") = "GPL";
