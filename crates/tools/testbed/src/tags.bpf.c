// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
// Adds a VLAN tag to the metadata of each sent frame, as a sender with tag offload does.
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

SEC("tc")
int tag(struct __sk_buff *skb)
{
	return bpf_skb_vlan_push(skb, bpf_htons(0x8100), 0x6064) ? TC_ACT_SHOT : TC_ACT_OK;
}

char LICENSE[] SEC("license") = "GPL";
