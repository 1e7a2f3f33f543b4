/* Packets from a real pool, for tests: DPDK makes these inline. Linked by tests only. */
#include <string.h>

#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

static void no_free(void *addr, void *opaque)
{
	++*(uint32_t *)opaque;
}

struct rte_mempool *pool_create(const char *name, unsigned int count, uint16_t room)
{
	return rte_pktmbuf_pool_create(name, count, 0, 0, room, SOCKET_ID_ANY);
}

unsigned int pool_free_count(const struct rte_mempool *pool)
{
	return rte_mempool_avail_count(pool);
}

struct rte_mbuf *pool_packet(struct rte_mempool *pool)
{
	return rte_pktmbuf_alloc(pool);
}

/* Adds a segment with these bytes; 0 if that worked. */
int pool_append(struct rte_mbuf *packet, struct rte_mempool *pool, const void *bytes, uint16_t len)
{
	struct rte_mbuf *segment = rte_pktmbuf_alloc(pool);
	char *to;

	if (segment == NULL)
		return -1;
	to = rte_pktmbuf_append(segment, len);
	if (to == NULL || rte_pktmbuf_chain(packet, segment) != 0) {
		rte_pktmbuf_free(segment);
		return -1;
	}
	memcpy(to, bytes, len);
	return 0;
}

/* Appends to the last segment; 0 if there was room. */
int pool_write(struct rte_mbuf *packet, const void *bytes, uint16_t len)
{
	char *to = rte_pktmbuf_append(packet, len);

	if (to == NULL)
		return -1;
	memcpy(to, bytes, len);
	return 0;
}

struct rte_mbuf *pool_clone(struct rte_mbuf *packet, struct rte_mempool *pool)
{
	return rte_pktmbuf_clone(packet, pool);
}

/* An empty packet whose buffer is the caller's; `freed` counts when it is let go. */
struct rte_mbuf *pool_external(struct rte_mempool *pool, void *buffer, uint16_t *len, uint32_t *freed)
{
	struct rte_mbuf *packet = rte_pktmbuf_alloc(pool);
	struct rte_mbuf_ext_shared_info *shared;

	if (packet == NULL)
		return NULL;
	shared = rte_pktmbuf_ext_shinfo_init_helper(buffer, len, no_free, freed);
	rte_pktmbuf_attach_extbuf(packet, buffer, RTE_BAD_IOVA, *len, shared);
	rte_pktmbuf_reset_headroom(packet);
	return packet;
}

/* DPDK's own opinion whether a packet is sound; the reason if not. */
const char *pool_check(const struct rte_mbuf *packet)
{
	const char *reason = NULL;

	return rte_mbuf_check(packet, 1, &reason) == 0 ? NULL : reason;
}

uint32_t pool_packet_len(const struct rte_mbuf *packet)
{
	return rte_pktmbuf_pkt_len(packet);
}

uint16_t pool_headroom(const struct rte_mbuf *packet)
{
	return rte_pktmbuf_headroom(packet);
}

/* The whole packet, copied out. */
const void *pool_read(const struct rte_mbuf *packet, uint32_t len, void *buffer)
{
	return rte_pktmbuf_read(packet, 0, len, buffer);
}

void pool_set_flags(struct rte_mbuf *packet, uint64_t flags, uint64_t l2, uint64_t l3, uint64_t l4)
{
	packet->ol_flags |= flags;
	packet->l2_len = l2;
	packet->l3_len = l3;
	packet->l4_len = l4;
}

void pool_set_tags(struct rte_mbuf *packet, uint16_t inner, uint16_t outer)
{
	packet->vlan_tci = inner;
	packet->vlan_tci_outer = outer;
}

/* The inner tag in the lower half, the outer one in the upper half. */
uint32_t pool_tags(const struct rte_mbuf *packet)
{
	return packet->vlan_tci | (uint32_t)packet->vlan_tci_outer << 16;
}

uint64_t pool_flags(const struct rte_mbuf *packet)
{
	return packet->ol_flags;
}

uint64_t pool_offload(const struct rte_mbuf *packet)
{
	return packet->tx_offload;
}

/* Creates a virtual device with one queue each way, not started. Returns its number, or less than 0. */
int pool_port(const char *device, const char *arguments, struct rte_mempool *pool)
{
	const struct rte_eth_conf conf = {0};
	uint16_t port;

	if (rte_eal_hotplug_add("vdev", device, arguments) != 0 || rte_eth_dev_get_port_by_name(device, &port) != 0)
		return -1;
	if (rte_eth_dev_configure(port, 1, 1, &conf) != 0 ||
	    rte_eth_rx_queue_setup(port, 0, 64, SOCKET_ID_ANY, NULL, pool) != 0 ||
	    rte_eth_tx_queue_setup(port, 0, 64, SOCKET_ID_ANY, NULL) != 0)
		return -1;
	return port;
}

/* Polls a port's queue, as a switch does: callbacks are called. */
uint16_t pool_poll(uint16_t port, struct rte_mbuf **packets, uint16_t count)
{
	return rte_eth_rx_burst(port, 0, packets, count);
}
