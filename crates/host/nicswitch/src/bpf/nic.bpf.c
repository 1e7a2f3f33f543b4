// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// The NIC switch: judges every frame that a port's interface receives by the role of the port, and
// redirects it to the one port that the policy names. All else is dropped and counted. No frame ever
// reaches the host's own network stack: the program never returns XDP_PASS.
//
// One of two XDP programs is loaded for each interface:
//   nic_tagged  sees VLAN tags in the packet metadata as well. It calls the driver's metadata functions,
//               so it is loaded for one device only.
//   nic_plain   for kernels (before 6.8) and drivers without these functions.
//
// For traffic control, in both directions of the interface: nic_guard drops every packet that the host's
// own stack sends into a port, and what would reach the stack if the XDP program were taken away.

#include "maps.bpf.h"
#include "packet.bpf.h"
#include "roles.bpf.h"

/* Linux 6.8. */
extern int bpf_xdp_metadata_rx_vlan_tag(const struct xdp_md *ctx, __be16 *protocol, __u16 *tci) __ksym __weak;

/*
 * Whether a frame is within its port's rate: the generic cell rate algorithm (ITU-T I.371). Its state is one
 * number, which processors replace without a lock.
 */
static __always_inline bool is_in_rate(__u32 interface, const struct entry *port)
{
	__u64 longest = (__u64)port->interval * port->burst;
	__u64 *next = bpf_map_lookup_elem(&nic_rates, &interface);
	__u64 now = bpf_ktime_get_ns();

	if (!next)
		return false;
	for (int i = 0; i < 4; i++) {
		__u64 seen = *(volatile __u64 *)next;
		__u64 due = seen > now ? seen : now;

		if (due - now > longest)
			return false;
		if (__sync_val_compare_and_swap(next, seen, due + port->interval) == seen)
			return true;
	}
	/* Other processors were faster each time: the port has many frames at once. */
	return false;
}

/* Applies the policy: the reason to drop the frame, or FORWARD with the target. */
static __always_inline int judge(struct xdp_md *ctx, bool tagged, struct decision *decision)
{
	struct packet packet = {};
	struct entry *port;
	void *policy;
	int result;

	policy = current_policy();
	if (!policy)
		return UNASSIGNED;
	port = find_port(policy, ctx->ingress_ifindex);
	if (!port)
		return UNASSIGNED;
	if (port->interval && !is_in_rate(ctx->ingress_ifindex, port))
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
static __always_inline int check_target(struct xdp_md *ctx, __u32 target)
{
	__u32 mtu = 0;
	long result;

	if (!target)
		return NO_PORT;
	result = bpf_check_mtu(ctx, target, &mtu, 0, 0);
	if (result < 0)
		return NO_PORT;
	return result ? TOO_LONG : FORWARD;
}

static __always_inline int handle(struct xdp_md *ctx, bool tagged)
{
	__u32 receiver = ctx->ingress_ifindex;
	__u64 length = ctx->data_end - ctx->data;
	struct decision decision = {};
	struct counters *counters;
	int result;

	counters = bpf_map_lookup_elem(&nic_counters, &receiver);
	if (counters) {
		counters->received_packets++;
		counters->received_bytes += length;
	}
	result = judge(ctx, tagged, &decision);
	if (result == FORWARD)
		result = check_target(ctx, decision.target);
	if (result == FORWARD && bpf_redirect_map(&nic_targets, decision.target, XDP_DROP) != XDP_REDIRECT)
		result = NO_PORT;
	if (result == FORWARD) {
		counters = bpf_map_lookup_elem(&nic_counters, &decision.target);
		if (counters) {
			counters->delivered_packets++;
			counters->delivered_bytes += length;
		}
		return XDP_REDIRECT;
	}
	if (counters && result >= 0 && result < REASONS)
		counters->drops[result]++;
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
