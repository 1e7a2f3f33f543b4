// An AF_XDP application with two threads for one socket. One waits in poll without a timeout; the other calls
// recvfrom all the time, and so moves most packets first. Prints "got N" after each packet that the first
// thread took.
//
//   pollers IF

#include <errno.h>
#include <linux/if_xdp.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <xdp/xsk.h>

enum { RING = 64, CHUNK = 2048 };

static void die(const char *what, int error) {
    fprintf(stderr, "pollers: %s: %s\n", what, strerror(error));
    exit(1);
}

static void *call(void *fd) {
    for (;;) {
        recvfrom(*(int *)fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
        usleep(10);
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    struct xsk_umem *umem;
    struct xsk_socket *socket;
    struct xsk_ring_prod fill, transmit;
    struct xsk_ring_cons completion, receive;
    void *memory = mmap(NULL, RING * CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        die("mmap", errno);
    struct xsk_umem_config memory_config = {.fill_size = RING, .comp_size = RING, .frame_size = CHUNK};
    int error = xsk_umem__create(&umem, memory, RING * CHUNK, &fill, &completion, &memory_config);
    if (error)
        die("xsk_umem__create", -error);
    struct xsk_socket_config config = {
        .rx_size = RING, .tx_size = RING, .bind_flags = XDP_COPY | XDP_USE_NEED_WAKEUP};
    error = xsk_socket__create(&socket, argv[1], 0, umem, &receive, &transmit, &config);
    if (error)
        die(argv[1], -error);
    int fd = xsk_socket__fd(socket);
    uint32_t at;
    if (xsk_ring_prod__reserve(&fill, RING / 2, &at) != RING / 2)
        die("fill ring", ENOSPC);
    for (uint32_t i = 0; i < RING / 2; i++)
        *xsk_ring_prod__fill_addr(&fill, at + i) = (uint64_t)i * CHUNK;
    xsk_ring_prod__submit(&fill, RING / 2);

    pthread_t other;
    if (pthread_create(&other, NULL, call, &fd))
        die("pthread_create", EAGAIN);
    puts("ready");
    fflush(stdout);
    for (unsigned got = 0;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        poll(&p, 1, -1);
        uint32_t count = xsk_ring_cons__peek(&receive, RING, &at), to;
        if (!count)
            continue;
        if (xsk_ring_prod__reserve(&fill, count, &to) != count)
            die("fill ring", ENOSPC);
        for (uint32_t i = 0; i < count; i++)
            *xsk_ring_prod__fill_addr(&fill, to + i) = xsk_ring_cons__rx_desc(&receive, at + i)->addr;
        xsk_ring_prod__submit(&fill, count);
        xsk_ring_cons__release(&receive, count);
        got += count;
        printf("got %u\n", got);
        fflush(stdout);
    }
}
