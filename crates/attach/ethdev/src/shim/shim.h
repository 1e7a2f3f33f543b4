/*
 * The interface of libp4shield_ethdev.so. Keep in step with crates/attach/dpdk-ports/src/interface.rs; every
 * change of the table or of a type in it changes the version.
 */
#ifndef P4SHIELD_ETHDEV_SHIM_H
#define P4SHIELD_ETHDEV_SHIM_H

#include <stddef.h>
#include <stdint.h>

struct rte_mbuf;
struct rte_mempool;

#define P4S_VERSION 2
/* Most packets that are received or sent at once. */
#define P4S_BURST 32

/* A packet that was received, in a buffer that the caller owns from then on. */
struct p4s_packet {
	const uint8_t *bytes; /* its first byte; null if it lies in several segments, see `copy` */
	uint32_t len;
	uint32_t is_reusable; /* 1 if another packet can be sent from its buffer */
};

/* A device, before it is opened. */
struct p4s_device {
	uint16_t rx_queues; /* most queues, 0 if it does not receive; for `open`, how many there will be */
	uint16_t tx_queues;
	uint16_t rx_ring; /* descriptors of a queue */
	uint16_t tx_ring;
	uint16_t mtu;
};

/* Functions that return int return 0, or a negative error number. */
struct p4s_table {
	uint32_t version; /* the first field of every version */
	uint32_t size; /* bytes of the table */
	uint64_t start; /* bytes from a buffer's address to the packet that is sent from it */
	/* Starts EAL, at most once in a process. Returns how many arguments EAL took. */
	int (*init)(int argc, char **argv);
	/* The log of this thread's last `init`, `find`, `pool` or `open`. */
	const char *(*log)(void);
	/* Finds a device by its name, and probes it if there is none of this name. */
	int (*find)(const char *device, uint16_t *port);
	int (*describe)(uint16_t port, struct p4s_device *device);
	/* Makes buffers with room for packets of so many bytes; null if memory is short. */
	struct rte_mempool *(*pool)(const char *name, uint32_t buffers, uint16_t room);
	/* Frees a pool, unless a device still has buffers of it. */
	void (*free_pool)(struct rte_mempool *pool);
	/*
	 * Configures and starts a device with so many queues; `pools` has the pool of each receive queue, and
	 * `step` names what failed. Packets of one flow arrive in one queue.
	 */
	int (*open)(uint16_t port, const struct p4s_device *device, struct rte_mempool *const *pools,
		    const char **step);
	/* Stops a device that no thread uses, and removes it unless another one is behind the same hardware. */
	void (*close)(uint16_t port);
	/* Returns 1 if the device was unplugged. */
	int (*is_removed)(uint16_t port);
	/* Makes the calling thread one of EAL's. Returns 1 if it was none. */
	int (*enter)(void);
	/* Takes a thread back for which `enter` returned 1. */
	void (*leave)(void);
	/*
	 * Receives up to so many packets, at most P4S_BURST, of a queue that uses this pool. One thread at a time
	 * calls this for a queue, and one `send`.
	 */
	uint16_t (*receive)(uint16_t port, uint16_t queue, struct rte_mempool *pool, struct rte_mbuf **buffers,
			    struct p4s_packet *packets, uint16_t most);
	/* Sends the first `lens` bytes from `start` of each. Returns how many of the first ones the device took. */
	uint16_t (*send)(uint16_t port, uint16_t queue, struct rte_mbuf **buffers, const uint16_t *lens,
			 uint16_t count);
	/* Takes so many buffers, or none. */
	uint16_t (*allocate)(struct rte_mempool *pool, struct rte_mbuf **buffers, uint16_t count);
	/* Copies a packet of several segments. Returns how many bytes were copied. */
	uint32_t (*copy)(const struct rte_mbuf *mbuf, uint8_t *to, uint32_t room);
	void (*release)(struct rte_mbuf **buffers, uint16_t count);
};

const struct p4s_table *p4s_ethdev_table(void);

#endif
