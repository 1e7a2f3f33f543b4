/* What Rust asks of the shim: the few things that DPDK offers in headers only. */
#ifndef P4SHIELD_DPDK_SHIM_H
#define P4SHIELD_DPDK_SHIM_H

#include <stdint.h>

struct rte_eth_dev_info;
struct rte_flow_action;
struct rte_flow_actions_template_attr;
struct rte_flow_attr;
struct rte_mempool;

/* What a flow rule does with packets. Keep in step with mod.rs. */
enum p4s_steering {
	P4S_STAYS = 0,     /* they reach a receive queue of this port, or nobody */
	P4S_GOES_ROUND = 1 /* they may reach another port or a VM without us */
};

/* The part of rte_eth_dev_info that we need. Keep in step with mod.rs. */
struct p4s_port {
	uint16_t rx_queues;
	uint16_t bonded; /* its packets come by the bonding device as well */
	uint32_t interface; /* the kernel's number of the interface behind it, or 0 */
};

typedef int (*p4s_dev_info_get)(uint16_t, struct rte_eth_dev_info *);

uint64_t p4s_cycles(void);
uint32_t p4s_built_for(void);
uint16_t p4s_pool_data_room(struct rte_mempool *pool);
uint32_t p4s_pool_size(const struct rte_mempool *pool);
int p4s_port(p4s_dev_info_get get, uint16_t port, struct p4s_port *out);
enum p4s_steering p4s_action(const struct rte_flow_action *action, const char **which);
enum p4s_steering p4s_rule(const struct rte_flow_attr *attr, const struct rte_flow_action *actions,
			   const char **which);
enum p4s_steering p4s_template(const struct rte_flow_actions_template_attr *attr,
			       const struct rte_flow_action *actions, const char **which);

#endif
