/* The functions of the table that are called while nothing is forwarded; shim.h says what they do. */
#ifndef P4SHIELD_ETHDEV_SETUP_H
#define P4SHIELD_ETHDEV_SETUP_H

#include <stdint.h>

#include "shim.h"

int p4s_init(int argc, char **argv);
const char *p4s_log(void);
int p4s_find(const char *device, uint16_t *port);
int p4s_describe(uint16_t port, struct p4s_device *device);
struct rte_mempool *p4s_pool(const char *name, uint32_t buffers, uint16_t room);
void p4s_free_pool(struct rte_mempool *pool);
int p4s_open(uint16_t port, const struct p4s_device *device, struct rte_mempool *const *pools,
	     const char **step);
void p4s_close(uint16_t port);
int p4s_is_removed(uint16_t port);
int p4s_enter(void);
void p4s_leave(void);

#endif
