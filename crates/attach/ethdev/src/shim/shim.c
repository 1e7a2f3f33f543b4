/*
 * The C part of libp4shield_ethdev.so: what the table does on the path of packets, where DPDK has inline
 * functions. setup.c has the rest.
 */
#include <string.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_prefetch.h>

#include "setup.h"
#include "shim.h"

/* Bytes from an mbuf to the packet that is sent from it. A pool of setup.c has no private area. */
#define START (sizeof(struct rte_mbuf) + RTE_PKTMBUF_HEADROOM)

/* A buffer is reusable if it has its own memory, which nothing else uses, and is as large as the pool's. */
static inline void describe(const struct rte_mbuf *mbuf, const struct rte_mempool *pool,
			    struct p4s_packet *packet)
{
	uint32_t behind = mbuf->buf_len - RTE_MIN(mbuf->data_off, mbuf->buf_len);
	int is_whole = mbuf->nb_segs == 1;

	packet->bytes = is_whole ? rte_pktmbuf_mtod(mbuf, const uint8_t *) : NULL;
	packet->len = is_whole ? RTE_MIN((uint32_t)mbuf->data_len, behind) : mbuf->pkt_len;
	packet->is_reusable =
		is_whole && mbuf->pool == pool && RTE_MBUF_DIRECT(mbuf) && rte_mbuf_refcnt_read(mbuf) == 1;
}

static uint16_t receive_packets(uint16_t port, uint16_t queue, struct rte_mempool *pool,
				struct rte_mbuf **buffers, struct p4s_packet *packets, uint16_t most)
{
	uint16_t count = rte_eth_rx_burst(port, queue, buffers, RTE_MIN(most, P4S_BURST));

	for (uint16_t i = 0; i < count; i++) {
		rte_prefetch0(rte_pktmbuf_mtod(buffers[i], void *));
		describe(buffers[i], pool, &packets[i]);
	}
	return count;
}

static uint16_t send_packets(uint16_t port, uint16_t queue, struct rte_mbuf **buffers, const uint16_t *lens,
			     uint16_t count)
{
	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *mbuf = buffers[i];

		/*
		 * Nothing that a driver looks at is left of the packet that was received in it: without flags
		 * the rest has no meaning, and `next` is null, since it was one segment or came from the pool.
		 */
		mbuf->data_off = RTE_PKTMBUF_HEADROOM;
		mbuf->nb_segs = 1;
		mbuf->ol_flags = 0;
		mbuf->data_len = lens[i];
		mbuf->pkt_len = lens[i];
	}
	return rte_eth_tx_burst(port, queue, buffers, count);
}

static uint16_t allocate_buffers(struct rte_mempool *pool, struct rte_mbuf **buffers, uint16_t count)
{
	return rte_pktmbuf_alloc_bulk(pool, buffers, count) == 0 ? count : 0;
}

static uint32_t copy_packet(const struct rte_mbuf *mbuf, uint8_t *to, uint32_t room)
{
	uint32_t len = RTE_MIN(rte_pktmbuf_pkt_len(mbuf), room);
	const void *from = rte_pktmbuf_read(mbuf, 0, len, to);

	if (from == NULL)
		return 0;
	if (from != to)
		memcpy(to, from, len);
	return len;
}

static void release_buffers(struct rte_mbuf **buffers, uint16_t count)
{
	rte_pktmbuf_free_bulk(buffers, count);
}

const struct p4s_table *p4s_ethdev_table(void)
{
	static const struct p4s_table table = {
		.version = P4S_VERSION,
		.size = sizeof(struct p4s_table),
		.start = START,
		.init = p4s_init,
		.log = p4s_log,
		.find = p4s_find,
		.describe = p4s_describe,
		.pool = p4s_pool,
		.free_pool = p4s_free_pool,
		.open = p4s_open,
		.close = p4s_close,
		.is_removed = p4s_is_removed,
		.enter = p4s_enter,
		.leave = p4s_leave,
		.receive = receive_packets,
		.send = send_packets,
		.allocate = allocate_buffers,
		.copy = copy_packet,
		.release = release_buffers,
	};

	return &table;
}
