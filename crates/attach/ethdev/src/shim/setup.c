/* Starts EAL, and opens and closes devices: one thread at a time, since the log has one stream. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include "setup.h"

/* Descriptors of a queue, if the device has no other limits. */
#define RING 512
/* What a device tells flows apart by, so that it receives each in one queue: addresses and ports. */
#define FLOWS (RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_SCTP)
/* Free buffers that each thread keeps for itself. */
#define CACHE 256

static pthread_mutex_t setup = PTHREAD_MUTEX_INITIALIZER;
/* What DPDK logs during a call on its thread, whose caller has the error to report; the rest is lost. */
static _Thread_local char log_text[8192];
static _Thread_local size_t log_len;
/* EAL ends the process for some options, and for some errors. */
static int in_init;

static ssize_t log_write(void *cookie, const char *text, size_t len)
{
	size_t kept = RTE_MIN(len, sizeof(log_text) - 1 - log_len);

	/* It may be followed by the end of the process. */
	if (rte_log_cur_msg_loglevel() <= (int)RTE_LOG_CRIT && write(STDERR_FILENO, text, len) < 0)
		return (ssize_t)len;
	memcpy(log_text + log_len, text, kept);
	log_len += kept;
	log_text[log_len] = '\0';
	return (ssize_t)len;
}

static void begin(void)
{
	/* Never closed: a thread of DPDK may be writing to it. */
	static FILE *stream;

	pthread_mutex_lock(&setup);
	log_len = 0;
	log_text[0] = '\0';
	if (stream == NULL)
		stream = fopencookie(NULL, "w", (cookie_io_functions_t){.write = log_write});
	if (stream != NULL)
		rte_openlog_stream(stream);
}

static void end(void)
{
	rte_openlog_stream(NULL);
	pthread_mutex_unlock(&setup);
}

const char *p4s_log(void)
{
	return log_text;
}

static void on_exit_of_eal(void)
{
	static const char text[] = "EAL ended the process: an option asks for it, or no thread can be created\n";

	if (in_init) {
		ssize_t ignored = write(STDERR_FILENO, text, sizeof(text) - 1);

		_exit(ignored < 0 ? 2 : 1);
	}
}

/* EAL prints all its options on standard output if one is wrong; that is the caller's. */
static int silence(void)
{
	int saved, null;

	fflush(stdout);
	saved = dup(STDOUT_FILENO);
	null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (saved >= 0 && null >= 0)
		dup2(null, STDOUT_FILENO);
	if (null >= 0)
		close(null);
	return saved;
}

static void restore(int saved)
{
	fflush(stdout);
	if (saved >= 0) {
		dup2(saved, STDOUT_FILENO);
		close(saved);
	}
}

int p4s_init(int argc, char **argv)
{
	int saved, taken, error;

	begin();
	saved = silence();
	atexit(on_exit_of_eal);
	in_init = 1;
	taken = rte_eal_init(argc, argv);
	error = rte_errno;
	in_init = 0;
	restore(saved);
	end();
	if (taken < 0)
		return error > 0 ? -error : -EINVAL;
	return taken;
}

/* Finds the port of a device that was probed: by the name before its arguments, or by all of it. */
static int port_of(const char *device, uint16_t *port)
{
	struct rte_dev_iterator iterator;
	char name[RTE_ETH_NAME_MAX_LEN];
	size_t len = strcspn(device, ",");
	uint16_t found;

	if (len == 0 || len >= sizeof(name))
		return -EINVAL;
	memcpy(name, device, len);
	name[len] = '\0';
	if (rte_eth_dev_get_port_by_name(name, port) == 0)
		return 0;
	RTE_ETH_FOREACH_MATCHING_DEV(found, device, &iterator) {
		rte_eth_iterator_cleanup(&iterator);
		*port = found;
		return 0;
	}
	return -ENODEV;
}

int p4s_find(const char *device, uint16_t *port)
{
	int error;

	begin();
	error = port_of(device, port);
	if (error == -ENODEV) {
		error = rte_dev_probe(device);
		if (error == 0)
			error = port_of(device, port);
	}
	end();
	return error;
}

int p4s_describe(uint16_t port, struct p4s_device *device)
{
	struct rte_eth_dev_info info;
	int error;

	memset(&info, 0, sizeof(info));
	error = rte_eth_dev_info_get(port, &info);
	if (error != 0)
		return error;
	device->rx_queues = info.max_rx_queues;
	device->tx_queues = info.max_tx_queues;
	device->rx_ring = RING;
	device->tx_ring = RING;
	error = rte_eth_dev_adjust_nb_rx_tx_desc(port, &device->rx_ring, &device->tx_ring);
	if (error != 0)
		return error;
	return rte_eth_dev_get_mtu(port, &device->mtu);
}

struct rte_mempool *p4s_pool(const char *name, uint32_t buffers, uint16_t room)
{
	struct rte_mempool *pool;

	begin();
	pool = rte_pktmbuf_pool_create(name, buffers, CACHE, 0, RTE_PKTMBUF_HEADROOM + room, SOCKET_ID_ANY);
	end();
	return pool;
}

void p4s_free_pool(struct rte_mempool *pool)
{
	begin();
	if (rte_mempool_full(pool))
		rte_mempool_free(pool);
	end();
}

static int configure(uint16_t port, const struct p4s_device *device)
{
	struct rte_eth_dev_info info;
	struct rte_eth_conf conf;
	uint64_t flows;
	int error;

	memset(&info, 0, sizeof(info));
	error = rte_eth_dev_info_get(port, &info);
	if (error != 0)
		return error;
	memset(&conf, 0, sizeof(conf));
	conf.rxmode.mtu = device->mtu;
	flows = info.flow_type_rss_offloads & FLOWS;
	if (device->rx_queues > 1 && flows != 0) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf = flows;
	}
	return rte_eth_dev_configure(port, device->rx_queues, device->tx_queues, &conf);
}

static int start(uint16_t port, const struct p4s_device *device, struct rte_mempool *const *pools,
		 const char **step)
{
	int socket = rte_eth_dev_socket_id(port);
	int error;

	*step = "configure its queues";
	error = configure(port, device);
	if (error != 0)
		return error;
	*step = "set a receive queue up";
	for (uint16_t queue = 0; queue < device->rx_queues; queue++) {
		error = rte_eth_rx_queue_setup(port, queue, device->rx_ring, socket, NULL, pools[queue]);
		if (error != 0)
			return error;
	}
	*step = "set a transmit queue up";
	for (uint16_t queue = 0; queue < device->tx_queues; queue++) {
		error = rte_eth_tx_queue_setup(port, queue, device->tx_ring, socket, NULL);
		if (error != 0)
			return error;
	}
	*step = "start it";
	error = rte_eth_dev_start(port);
	if (error != 0)
		return error;
	*step = "make it promiscuous";
	error = rte_eth_promiscuous_enable(port);
	/* Many virtual devices receive everything, and have no such mode. */
	return error == -ENOTSUP ? 0 : error;
}

int p4s_open(uint16_t port, const struct p4s_device *device, struct rte_mempool *const *pools,
	     const char **step)
{
	int error;

	begin();
	error = start(port, device, pools, step);
	end();
	return error;
}

void p4s_close(uint16_t port)
{
	struct rte_eth_dev_info info;
	uint16_t other;
	int is_shared = 0;

	begin();
	memset(&info, 0, sizeof(info));
	if (rte_eth_dev_info_get(port, &info) != 0)
		info.device = NULL;
	rte_eth_dev_stop(port);
	rte_eth_dev_close(port);
	RTE_ETH_FOREACH_DEV_OF(other, info.device)
		is_shared = 1;
	/* So that it can be opened again. */
	if (info.device != NULL && !is_shared)
		rte_dev_remove(info.device);
	end();
}

int p4s_is_removed(uint16_t port)
{
	return rte_eth_dev_is_removed(port);
}

int p4s_enter(void)
{
	if (rte_lcore_id() != LCORE_ID_ANY)
		return 0;
	return rte_thread_register() == 0 ? 1 : -rte_errno;
}

void p4s_leave(void)
{
	rte_thread_unregister();
}
