// SPDX-License-Identifier: Apache-2.0
//
// What the tap and its classification share: limits, the layouts of the maps, and frames.
// tap/maps.rs repeats the layouts of the maps.

#ifndef P4SHIELD_TAP_H
#define P4SHIELD_TAP_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define HEAD_BYTES 128   // of a frame with two VLAN tags
#define DIGEST_BYTES 120 // of one without
#define HISTORY 65536
#define KEYS 2
#define INGRESS 0
#define EGRESS 1
#define QINQ 0x9100 // the VLAN tag that predates 802.1ad
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define IPPROTO_ICMPV6 58
#define LINK 14        // bytes of the link header without tags
#define LLC_MAX 0x0600 // below it the EtherType is a length
#define ALWAYS_INLINE static __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))
// Keeps clang from merging two bounds of a value into one comparison of a difference, which the verifier of
// Linux 6.1 cannot follow.
#define BARRIER(value) asm volatile("" : "+r"(value))

struct key {
	__u64 k0, k1; // SipHash key
};

// While the VM's key rotates, packets are digested with two keys: which one the P4 VM used for a packet is
// known only when its record has come. A key changes only while it is not used.
struct config {
	struct key keys[KEYS];
	__u32 used;      // keys to digest with, by bits
	__u32 cover;     // header bytes that the P4 VM has of a packet, at most HEAD_BYTES
	__u32 every_ip;  // whether the port is the VM's own, so that addresses do not matter
	__u32 reserved;
};

struct tally {
	struct bpf_spin_lock lock;
	__u32 reserved;
	__u64 packets;      // frames that a mediator submits, with each segment of a super-packet counted
	__u64 bytes;        // their bytes
	__u64 digests[KEYS]; // sums of their digests, by key; the digest of a key that is not used is 0
	__u64 not_whole;    // packets among them that could not be digested; their digests are 0
	__u64 others;       // frames that a mediator does not submit
	__u64 other_bytes;
};

struct history {
	__u64 after[HISTORY]; // after[n % HISTORY]: `digests` of a key when `packets` was n
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct config);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct tally);
} tallies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2 * KEYS); // by direction, then by key
	__type(key, __u32);
	__type(value, struct history);
} histories SEC(".maps");

struct address {
	__u8 bytes[16]; // of an IPv4 address the first four
	__u32 version;  // 4 or 6
};

// The VM's addresses.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct address);
	__type(value, __u8);
} addresses SEC(".maps");

// Properties of a frame without its VLAN tags.
struct frame {
	__u64 words[HEAD_BYTES / 8]; // its first bytes; what is behind them is undefined
	__u32 have;                  // number of those bytes
	__u32 len;                   // length of the whole frame
	__u32 tags;                  // bytes of its tags, wherever they are
	__u32 version;               // of IP: 4 or 6
	__u32 header;                // bytes of Ethernet and IP header, if a transport header follows
	__u32 protocol;              // of the transport header
	__u32 checksum;              // offset of the layer-4 checksum, or 0
};

ALWAYS_INLINE __u16 be16(const __u8 *b, __u32 at)
{
	return (__u16)(b[at] << 8 | b[at + 1]);
}

ALWAYS_INLINE int is_tag(__u16 type)
{
	return type == ETH_P_8021Q || type == ETH_P_8021AD || type == QINQ;
}

#endif
