/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Maps of the NIC switch. The daemon writes them: keys and entries as in policy.rs, counters as in
 * counters.rs.
 */
#pragma once

#include <stdbool.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_PORTS 4096 /* as in check.rs */

/* Reasons to drop a frame, in the order of `Reason` in counters.rs. */
enum reason {
	MALFORMED,
	TAG,
	SOURCE_MAC,
	ETHERTYPE,
	SOURCE_IP,
	ARP,
	NEIGHBOUR,
	DESTINATION,
	NO_PORT,
	TOO_LONG,
	UNASSIGNED,
	RATE,
	CHECKSUM,
	REASONS,
	FORWARD, /* none */
};

enum role { VM = 1, GATEWAY, IN_OUT, UPLINK };

enum kind {
	PORT = 1,        /* interface -> the port */
	SOURCE,          /* interface, IP address: the port may send from it */
	VM_MAC,          /* VLAN, MAC address -> the VM's port */
	OUTSIDE_MAC,     /* MAC address -> the compartment's port */
	OUTSIDE_ADDRESS, /* IP address -> the compartment's port */
	ANY_MAC,         /* MAC address of any port */
};

struct key {
	__u32 interface;
	__u16 vlan;
	__u8 kind;
	__u8 family;    /* 4 or 6 */
	__u8 value[16]; /* an address, zeros after it */
};

/* Flags of an entry. */
#define HAS_TARGET 1 /* for PORT: there is a port as a target, with or without an interface */
#define DIRECTLY 2   /* in traffic control, frames go to the target's other end without passing the target */

struct entry {
	__u32 target; /* interface; for PORT the gateway's or the uplink's; 0: it is not there */
	__u16 vlan;
	__u8 role;
	__u8 flags;
	__u8 mac[ETH_ALEN];
	__u8 gateway[ETH_ALEN];
	__u32 interval; /* for PORT: nanoseconds for each frame, as its rate says; 0: no limit */
	__u32 burst;    /* for PORT: frames that may come at once */
};

struct counters {
	__u64 received_packets;
	__u64 received_bytes;
	__u64 delivered_packets;
	__u64 delivered_bytes;
	__u64 drops[REASONS];
};

struct identity {
	__u32 format;
	__u32 programs;
	__u64 namespace;
};

/* A whole policy, which never changes. */
struct policy {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	/* Sizes: clang does not describe the types of a map in a map. */
	__uint(key_size, sizeof(struct key));
	__uint(value_size, sizeof(struct entry));
};

/* The policy in force: a change replaces it as a whole, so each frame is judged by one policy. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct policy);
} nic_policy SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, MAX_PORTS);
	__type(key, __u32);
	__type(value, __u32);
} nic_targets SEC(".maps");

/* Without entries beforehand: 4096 ports on many processors are megabytes. Only the daemon adds some. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, MAX_PORTS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct counters);
} nic_counters SEC(".maps");

/* When the rate of an interface's port allows the next frame without a burst, as of bpf_ktime_get_ns. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PORTS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u64);
} nic_rates SEC(".maps");

/* The format of these maps, the version of the programs that all interfaces have, and the network namespace
 * of the interfaces. No program reads it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct identity);
} nic_identity SEC(".maps");

static __always_inline void *current_policy(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&nic_policy, &first);
}

static __always_inline struct entry *find_port(void *policy, __u32 interface)
{
	struct key key = { .interface = interface, .kind = PORT };

	return bpf_map_lookup_elem(policy, &key);
}

static __always_inline struct entry *find_mac(void *policy, __u8 kind, __u16 vlan, const __u8 *mac)
{
	struct key key = { .vlan = vlan, .kind = kind };

	__builtin_memcpy(key.value, mac, ETH_ALEN);
	return bpf_map_lookup_elem(policy, &key);
}

static __always_inline bool is_source(void *policy, __u32 interface, __u8 family, const __u8 *address)
{
	struct key key = { .interface = interface, .kind = SOURCE, .family = family };

	__builtin_memcpy(key.value, address, sizeof(key.value));
	return bpf_map_lookup_elem(policy, &key) != NULL;
}

static __always_inline struct entry *find_outside(void *policy, __u8 family, const __u8 *address)
{
	struct key key = { .kind = OUTSIDE_ADDRESS, .family = family };

	__builtin_memcpy(key.value, address, sizeof(key.value));
	return bpf_map_lookup_elem(policy, &key);
}
