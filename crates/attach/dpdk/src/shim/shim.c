/*
 * The C part of libp4shield_dpdk.so: access to structures and inline functions of DPDK's headers.
 *
 * The code refers to no symbol of DPDK: callers pass DPDK's functions as pointers, so that the library loads
 * into processes without DPDK.
 */
#include <stddef.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_flow.h>
#include <rte_mbuf.h>
#include <rte_mbuf_dyn.h>
#include <rte_version.h>
#include <rte_vhost.h>

#include "shim.h"

/* The layouts and numbers that Rust has by heart (mbuf/layout.rs, mbuf/outer.rs, vhost/ops.rs). */
#define AT(type, field, offset) _Static_assert(offsetof(struct type, field) == (offset), #type "." #field)
#define IS(name, value) _Static_assert((name) == (value), #name)

AT(rte_mbuf, buf_addr, 0);
AT(rte_mbuf, data_off, 16);
AT(rte_mbuf, refcnt, 18);
AT(rte_mbuf, nb_segs, 20);
AT(rte_mbuf, ol_flags, 24);
AT(rte_mbuf, packet_type, 32);
AT(rte_mbuf, pkt_len, 36);
AT(rte_mbuf, data_len, 40);
AT(rte_mbuf, buf_len, 54);
AT(rte_mbuf, pool, 56);
AT(rte_mbuf, next, 64);
AT(rte_mbuf, tx_offload, 72);
AT(rte_mbuf, shinfo, 80);
AT(rte_mbuf_ext_shared_info, refcnt, 16);
IS(sizeof(struct rte_mbuf), 128);
IS(RTE_MBUF_L2_LEN_BITS, 7);
IS(RTE_MBUF_L3_LEN_BITS, 9);
IS(RTE_MBUF_L4_LEN_BITS, 8);
IS(RTE_MBUF_L2_LEN_OFS, 0);

IS(RTE_MBUF_F_RX_VLAN, 1ULL << 0);
IS(RTE_MBUF_F_RX_RSS_HASH, 1ULL << 1);
IS(RTE_MBUF_F_RX_FDIR, 1ULL << 2);
IS(RTE_MBUF_F_RX_OUTER_IP_CKSUM_BAD, 1ULL << 5);
IS(RTE_MBUF_F_RX_VLAN_STRIPPED, 1ULL << 6);
IS(RTE_MBUF_F_RX_IP_CKSUM_MASK, (1ULL << 4) | (1ULL << 7));
IS(RTE_MBUF_F_RX_L4_CKSUM_MASK, (1ULL << 3) | (1ULL << 8));
IS(RTE_MBUF_F_RX_L4_CKSUM_NONE, (1ULL << 3) | (1ULL << 8));
IS(RTE_MBUF_F_RX_FDIR_ID, 1ULL << 13);
IS(RTE_MBUF_F_RX_FDIR_FLX, 1ULL << 14);
IS(RTE_MBUF_F_RX_QINQ_STRIPPED, 1ULL << 15);
IS(RTE_MBUF_F_RX_QINQ, 1ULL << 20);
IS(RTE_MBUF_F_RX_OUTER_L4_CKSUM_MASK, (1ULL << 21) | (1ULL << 22));
IS(RTE_MBUF_F_TX_OUTER_UDP_CKSUM, 1ULL << 41);
IS(RTE_MBUF_F_TX_UDP_SEG, 1ULL << 42);
IS(RTE_MBUF_F_TX_SEC_OFFLOAD, 1ULL << 43);
IS(RTE_MBUF_F_TX_MACSEC, 1ULL << 44);
IS(RTE_MBUF_F_TX_TUNNEL_MASK, 0xfULL << 45);
IS(RTE_MBUF_F_TX_TCP_SEG, 1ULL << 50);
IS(RTE_MBUF_F_TX_TCP_CKSUM, 1ULL << 52);
IS(RTE_MBUF_F_TX_SCTP_CKSUM, 2ULL << 52);
IS(RTE_MBUF_F_TX_UDP_CKSUM, 3ULL << 52);
IS(RTE_MBUF_F_TX_L4_MASK, 3ULL << 52);
IS(RTE_MBUF_F_TX_IP_CKSUM, 1ULL << 54);
IS(RTE_MBUF_F_TX_IPV4, 1ULL << 55);
IS(RTE_MBUF_F_TX_IPV6, 1ULL << 56);
IS(RTE_MBUF_F_TX_OUTER_IP_CKSUM, 1ULL << 58);
IS(RTE_MBUF_F_TX_OUTER_IPV4, 1ULL << 59);
IS(RTE_MBUF_F_TX_OUTER_IPV6, 1ULL << 60);
IS(RTE_MBUF_F_EXTERNAL, 1ULL << 61);
IS(RTE_MBUF_F_INDIRECT, 1ULL << 62);

AT(rte_mbuf_dynfield, size, 64);
AT(rte_mbuf_dynfield, align, 72);
AT(rte_mbuf_dynfield, flags, 80);
IS(sizeof(struct rte_mbuf_dynfield), 88);
AT(rte_mbuf_dynflag, flags, 64);
IS(sizeof(struct rte_mbuf_dynflag), 68);
IS(RTE_MBUF_F_FIRST_FREE, 1ULL << 23);
IS(RTE_MBUF_F_LAST_FREE, 1ULL << 40);

AT(rte_vhost_device_ops, new_device, 0);
AT(rte_vhost_device_ops, destroy_device, 8);
AT(rte_vhost_device_ops, vring_state_changed, 16);
AT(rte_vhost_device_ops, features_changed, 24);
AT(rte_vhost_device_ops, new_connection, 32);
AT(rte_vhost_device_ops, destroy_connection, 40);
AT(rte_vhost_device_ops, guest_notified, 48);
IS(sizeof(struct rte_vhost_device_ops), 64);

IS(RTE_ETH_EVENT_DESTROY, 8);
IS(RTE_ETH_ALL, RTE_MAX_ETHPORTS);
IS(RTE_ETH_NAME_MAX_LEN, 64);
IS(RTE_FLOW_ERROR_TYPE_ACTION, 16);

/* The time stamp counter, in units of rte_get_tsc_hz(). */
uint64_t p4s_cycles(void)
{
	return rte_rdtsc();
}

/* The version of the headers: year * 100 + month. */
uint32_t p4s_built_for(void)
{
	return RTE_VER_YEAR * 100 + RTE_VER_MONTH;
}

/* Bytes of a fresh mbuf's buffer, headroom included. */
uint16_t p4s_pool_data_room(struct rte_mempool *pool)
{
	return rte_pktmbuf_data_room_size(pool);
}

/* Buffers of a pool, free or not. */
uint32_t p4s_pool_size(const struct rte_mempool *pool)
{
	return pool->size;
}

int p4s_port(p4s_dev_info_get get, uint16_t port, struct p4s_port *out)
{
	struct rte_eth_dev_info info;
	int error;

	memset(&info, 0, sizeof(info));
	error = get(port, &info);
	if (error != 0)
		return error;
	out->rx_queues = info.nb_rx_queues;
	out->interface = info.if_index;
	out->bonded = info.dev_flags != NULL && (*info.dev_flags & RTE_ETH_DEV_BONDED_SLAVE) != 0;
	return 0;
}

static enum p4s_steering actions_steering(const struct rte_flow_action *actions, const char **which);

/*
 * Returns where a rule with this action steers packets. An unknown action may steer them anywhere: each
 * release of DPDK adds actions.
 */
enum p4s_steering p4s_action(const struct rte_flow_action *action, const char **which)
{
	switch (action->type) {
	/* To this port's queues, with or without marks and counts. */
	case RTE_FLOW_ACTION_TYPE_VOID:
	case RTE_FLOW_ACTION_TYPE_PASSTHRU:
	case RTE_FLOW_ACTION_TYPE_JUMP:
	case RTE_FLOW_ACTION_TYPE_MARK:
	case RTE_FLOW_ACTION_TYPE_FLAG:
	case RTE_FLOW_ACTION_TYPE_QUEUE:
	case RTE_FLOW_ACTION_TYPE_RSS:
	case RTE_FLOW_ACTION_TYPE_COUNT:
	case RTE_FLOW_ACTION_TYPE_AGE:
	case RTE_FLOW_ACTION_TYPE_METER:
	case RTE_FLOW_ACTION_TYPE_SET_TAG:
	case RTE_FLOW_ACTION_TYPE_SET_META:
	case RTE_FLOW_ACTION_TYPE_CONNTRACK:
	case RTE_FLOW_ACTION_TYPE_METER_COLOR:
	case RTE_FLOW_ACTION_TYPE_METER_MARK:
	/* Made by a call that was looked at, too. */
	case RTE_FLOW_ACTION_TYPE_INDIRECT:
	/* To nobody. */
	case RTE_FLOW_ACTION_TYPE_DROP:
		return P4S_STAYS;
	/* Also to others. */
	case RTE_FLOW_ACTION_TYPE_SAMPLE: {
		const struct rte_flow_action_sample *sample = action->conf;

		return sample != NULL && sample->actions != NULL ? actions_steering(sample->actions, which)
								 : P4S_STAYS;
	}
	case RTE_FLOW_ACTION_TYPE_PF:
		*which = "PF";
		break;
	case RTE_FLOW_ACTION_TYPE_VF:
		*which = "VF";
		break;
	case RTE_FLOW_ACTION_TYPE_PORT_ID:
		*which = "PORT_ID";
		break;
	case RTE_FLOW_ACTION_TYPE_PORT_REPRESENTOR:
		*which = "PORT_REPRESENTOR";
		break;
	case RTE_FLOW_ACTION_TYPE_REPRESENTED_PORT:
		*which = "REPRESENTED_PORT";
		break;
	case RTE_FLOW_ACTION_TYPE_SEND_TO_KERNEL:
		*which = "SEND_TO_KERNEL";
		break;
	default:
		*which = "an action that changes packets or is unknown here";
		break;
	}
	return P4S_GOES_ROUND;
}

static enum p4s_steering actions_steering(const struct rte_flow_action *actions, const char **which)
{
	for (; actions->type != RTE_FLOW_ACTION_TYPE_END; actions++) {
		if (p4s_action(actions, which) == P4S_GOES_ROUND)
			return P4S_GOES_ROUND;
	}
	return P4S_STAYS;
}

/* The same for a whole rule. One for what this host sends concerns nothing that is received here. */
enum p4s_steering p4s_rule(const struct rte_flow_attr *attr, const struct rte_flow_action *actions,
			   const char **which)
{
	if (attr->egress && !attr->ingress && !attr->transfer)
		return P4S_STAYS;
	return actions_steering(actions, which);
}

enum p4s_steering p4s_template(const struct rte_flow_actions_template_attr *attr,
			       const struct rte_flow_action *actions, const char **which)
{
	if (attr->egress && !attr->ingress && !attr->transfer)
		return P4S_STAYS;
	return actions_steering(actions, which);
}
