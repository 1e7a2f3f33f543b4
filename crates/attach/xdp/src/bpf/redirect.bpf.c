// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Redirects every frame that an interface receives to the AF_XDP socket of its queue. A frame that has no
// socket is dropped and counted: none ever reaches the host's own network stack.
//
// One of two programs is loaded for each interface:
//   redirect_tagged  inserts an accelerated VLAN tag (one in the packet metadata, where the sender left it)
//                    into the frame. It calls the driver's metadata functions, so it is loaded for one
//                    device only.
//   redirect_plain   for kernels (before 6.8) and drivers without these functions.
//
// For traffic control, in both directions of the interface: wire_guard drops every packet that does not pass
// through AF_XDP, so that the host's own stack neither sends into the wire nor receives from it, also after
// the XDP program has gone because its process ended.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_QUEUES 64 /* as in program.rs */

/* Indexes into `counters`, as in program.rs. */
enum counter { OVERSIZE, NO_SOCKET, TAG_UNKNOWN, TAG_FAILED, COUNTERS };

/* Capacity of a UMEM frame in bytes; written before the program is loaded. */
const volatile __u32 max_packet = 1792;

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, MAX_QUEUES);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

/* `*tci` is in host byte order, `*protocol` in network byte order. Linux 6.8. */
extern int bpf_xdp_metadata_rx_vlan_tag(const struct xdp_md *ctx, __be16 *protocol, __u16 *tci) __ksym __weak;

struct tagged {
	__u8 addresses[2 * ETH_ALEN];
	__be16 tag_protocol;
	__be16 tag_tci;
} __attribute__((packed));

static __always_inline int drop(__u32 reason)
{
	__u64 *n = bpf_map_lookup_elem(&counters, &reason);

	if (n)
		++*n;
	return XDP_DROP;
}

static __always_inline int forward(struct xdp_md *ctx)
{
	int action;

	if (ctx->data_end - ctx->data > max_packet)
		return drop(OVERSIZE);
	action = bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_DROP);
	return action == XDP_REDIRECT ? action : drop(NO_SOCKET);
}

/* Inserts the tag after the MAC addresses. */
static __always_inline int insert_tag(struct xdp_md *ctx, __be16 protocol, __u16 tci)
{
	struct tagged *to;
	void *from;

	if (bpf_xdp_adjust_head(ctx, -(int)(sizeof(struct tagged) - 2 * ETH_ALEN)))
		return -1;
	to = (void *)(long)ctx->data;
	from = (void *)to + sizeof(struct tagged) - 2 * ETH_ALEN;
	if (from + 2 * ETH_ALEN > (void *)(long)ctx->data_end || (void *)(to + 1) > (void *)(long)ctx->data_end)
		return -1;
	__builtin_memmove(to->addresses, from, 2 * ETH_ALEN);
	to->tag_protocol = protocol;
	to->tag_tci = bpf_htons(tci);
	return 0;
}

SEC("xdp")
int redirect_tagged(struct xdp_md *ctx)
{
	__be16 protocol = 0;
	__u16 tci = 0;

	/* Any error but "not supported" means that there is no tag. */
	switch (bpf_xdp_metadata_rx_vlan_tag(ctx, &protocol, &tci)) {
	case 0:
		if (insert_tag(ctx, protocol, tci))
			return drop(TAG_FAILED);
		break;
	case -95: /* EOPNOTSUPP */
		drop(TAG_UNKNOWN);
		break;
	}
	return forward(ctx);
}

SEC("xdp")
int redirect_plain(struct xdp_md *ctx)
{
	return forward(ctx);
}

SEC("tc")
int wire_guard(struct __sk_buff *skb)
{
	return TC_ACT_SHOT;
}

/* The kernel requires a GPL-compatible licence for its functions; this file may be used under the GPL. */
char LICENSE[] SEC("license") = "GPL";
