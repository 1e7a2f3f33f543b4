// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Takes every frame that an interface receives to the AF_XDP socket of its queue. What cannot go there is dropped
// and counted: nothing ever passes on to the host's own network stack.
//
// Two programs, of which one is loaded for each interface:
//   wire_tagged  puts an accelerated VLAN tag (one that the sender left beside the frame, in the socket buffer)
//                back into the frame. It asks the driver for the tag, so it is loaded for one device only.
//   wire_plain   for kernels (before 6.8) and drivers that cannot tell.
//
// And one for traffic control, on both ways of the interface: wire_guard drops what does not come by AF_XDP, so
// that the host's own stack neither sends into the wire nor receives from it, also after the XDP program has gone
// because its process died.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_QUEUES 64 /* as in xdp.rs */

/* Indexes into `counters`, as in xdp.rs. */
enum counter { OVERSIZE, NO_SOCKET, TAG_UNKNOWN, TAG_FAILED, COUNTERS };

/* Bytes that a frame of packet memory can hold; written before the program is loaded. */
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

/* Makes room behind the addresses and writes the tag there. */
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
int wire_tagged(struct xdp_md *ctx)
{
	__be16 protocol = 0;
	__u16 tci = 0;

	/* Any error but "not supported" says that there is no tag. */
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
int wire_plain(struct xdp_md *ctx)
{
	return forward(ctx);
}

SEC("tc")
int wire_guard(struct __sk_buff *skb)
{
	return TC_ACT_SHOT;
}

/* The kernel lets only programs call its functions that say they may be used under the GPL, which this file may. */
char LICENSE[] SEC("license") = "GPL";
