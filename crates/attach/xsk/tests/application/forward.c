// A minimal AF_XDP application, unaware of P4 Shield. It forwards between queue 0 of two interfaces with
// libxdp's inline rings until it gets SIGTERM, tracks every frame, and aborts if a frame comes back twice.
//
//   forward [OPTION]... IF0 IF1
//
// --wait=HOW        waits with busy (the default), poll, ppoll or epoll
// --no-wakeup       binds without XDP_USE_NEED_WAKEUP
// --shared          one UMEM for both sockets, forwarding in place
// --unaligned       chunks of 3000 bytes at any address
// --dup             makes its calls on duplicates of the descriptors
// --fork            forks while it runs; the child tries to create an AF_XDP socket, and ends
// --jumbo           takes packets of several frames (XDP_USE_SG)
// --refill-foreign  once, fills 64 frames that the kernel still has, at the first interface
//
// At its end it prints one line: all frames, free ones, frames in fill rings and in transmit rings; whether
// the child got a socket; the number of multi-buffer packets that it sent.

#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <linux/if_link.h>
#include <linux/if_xdp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xdp/xsk.h>

#ifndef AF_XDP
#define AF_XDP 44
#endif

// Since Linux 6.6, which may be newer than the installed headers.
#ifndef XDP_USE_SG
#define XDP_USE_SG (1 << 4)
#endif
#ifndef XDP_PKT_CONTD
#define XDP_PKT_CONTD (1 << 0)
#endif

enum { RING = 1024, FRAMES = 4 * RING, BATCH = 64 };

// The owner of a frame, as this program tracks it.
enum owner { FREE, FILL, TRANSMIT };

struct memory {
    uint8_t *base;
    uint32_t chunk;
    struct xsk_umem *umem;
    uint32_t free[FRAMES];
    uint32_t free_count;
    uint8_t owner[FRAMES];
};

struct port {
    struct memory *memory;
    struct xsk_socket *socket;
    struct xsk_ring_prod fill, transmit;
    struct xsk_ring_cons completion, receive;
    int fd;
    uint32_t filled, sending;
};

static volatile sig_atomic_t stop;
static uint32_t chained;

static void on_term(int signal) {
    (void)signal;
    stop = 1;
}

static void die(const char *what, int error) {
    fprintf(stderr, "forward: %s: %s\n", what, strerror(error));
    exit(1);
}

static void move(struct memory *m, uint32_t frame, enum owner from, enum owner to) {
    if (frame >= FRAMES || m->owner[frame] != from) {
        fprintf(stderr, "forward: frame %u came from %d and is with %d\n", frame, from,
                frame < FRAMES ? m->owner[frame] : -1);
        abort();
    }
    m->owner[frame] = to;
}

// The frame of an address, which may carry an offset (unaligned) or point into the frame.
static uint32_t frame_of(const struct memory *m, uint64_t address) {
    return (uint32_t)(xsk_umem__extract_addr(address) / m->chunk);
}

static void set_up_memory(struct memory *m, bool unaligned, struct port *first) {
    m->chunk = unaligned ? 3000 : 4096;
    size_t size = (size_t)m->chunk * FRAMES;
    m->base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m->base == MAP_FAILED)
        die("mmap", errno);
    struct xsk_umem_config config = {
        .fill_size = RING,
        .comp_size = RING,
        .frame_size = m->chunk,
        .frame_headroom = 0,
        .flags = unaligned ? XDP_UMEM_UNALIGNED_CHUNK_FLAG : 0,
    };
    int error = xsk_umem__create(&m->umem, m->base, size, &first->fill, &first->completion, &config);
    if (error)
        die("xsk_umem__create", -error);
    for (uint32_t i = 0; i < FRAMES; i++)
        m->free[m->free_count++] = i;
}

static void bind_port(struct port *p, const char *interface, bool wakeup, bool jumbo) {
    struct xsk_socket_config config = {
        .rx_size = RING,
        .tx_size = RING,
        .bind_flags = XDP_COPY | (wakeup ? XDP_USE_NEED_WAKEUP : 0) | (jumbo ? XDP_USE_SG : 0),
        // libxdp's XDP program accepts single-buffer packets only in driver mode, so an interface with a
        // long MTU needs this mode.
        .xdp_flags = jumbo ? XDP_FLAGS_SKB_MODE : 0,
    };
    int error = xsk_socket__create_shared(&p->socket, interface, 0, p->memory->umem, &p->receive,
                                          &p->transmit, &p->fill, &p->completion, &config);
    if (error)
        die(interface, -error);
    p->fd = xsk_socket__fd(p->socket);
}

// Fills at most half of the frames, so that frames are left to send.
static void refill(struct port *p) {
    struct memory *m = p->memory;
    uint32_t want = RING - p->filled, at;
    if (want > m->free_count)
        want = m->free_count;
    if (want < BATCH || xsk_ring_prod__reserve(&p->fill, want, &at) != want)
        return;
    for (uint32_t i = 0; i < want; i++) {
        uint32_t frame = m->free[--m->free_count];
        move(m, frame, FREE, FILL);
        *xsk_ring_prod__fill_addr(&p->fill, at + i) = (uint64_t)frame * m->chunk;
    }
    xsk_ring_prod__submit(&p->fill, want);
    p->filled += want;
}

// Fills frames once more that the kernel still has, the last of those that were filled first. Returns
// false if there is no room yet.
static bool fill_again(struct port *p) {
    uint32_t at;
    if (xsk_ring_prod__reserve(&p->fill, BATCH, &at) != BATCH)
        return false;
    for (uint32_t i = 0; i < BATCH; i++)
        *xsk_ring_prod__fill_addr(&p->fill, at + i) = *xsk_ring_prod__fill_addr(&p->fill, RING - BATCH + i);
    xsk_ring_prod__submit(&p->fill, BATCH);
    return true;
}

static void reap(struct port *p) {
    struct memory *m = p->memory;
    uint32_t at, count = xsk_ring_cons__peek(&p->completion, BATCH, &at);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t frame = frame_of(m, *xsk_ring_cons__comp_addr(&p->completion, at + i));
        move(m, frame, TRANSMIT, FREE);
        m->free[m->free_count++] = frame;
    }
    if (count)
        xsk_ring_cons__release(&p->completion, count);
    p->sending -= count;
}

static void kick(struct port *p) {
    if (p->sending && xsk_ring_prod__needs_wakeup(&p->transmit))
        sendto(p->fd, NULL, 0, MSG_DONTWAIT, NULL, 0);
}

// Sends the frame at `from`: itself if both sockets share their UMEM, else a copy. The ring has room.
static void send_on(const struct port *in, struct port *out, const struct xdp_desc *from) {
    uint32_t at, frame = frame_of(in->memory, from->addr);
    struct memory *m = out->memory;
    if (xsk_ring_prod__reserve(&out->transmit, 1, &at) != 1)
        abort();
    struct xdp_desc *to = xsk_ring_prod__tx_desc(&out->transmit, at);
    *to = (struct xdp_desc){.addr = from->addr, .len = from->len, .options = from->options & XDP_PKT_CONTD};
    move(in->memory, frame, FILL, FREE);
    if (in->memory != m) {
        uint32_t copy = m->free[--m->free_count];
        to->addr = (uint64_t)copy * m->chunk;
        memcpy(m->base + to->addr, in->memory->base + xsk_umem__add_offset_to_addr(from->addr), from->len);
        in->memory->free[in->memory->free_count++] = frame;
        frame = copy;
    }
    move(m, frame, FREE, TRANSMIT);
    out->sending++;
}

// Sends the packet of `count` frames that begins at `at`, or drops it whole.
static void forward_packet(struct port *in, struct port *out, uint32_t at, uint32_t count) {
    bool copies = in->memory != out->memory;
    bool fits = out->sending + count <= RING && (!copies || out->memory->free_count >= count) &&
                xsk_prod_nb_free(&out->transmit, count) >= count;
    for (uint32_t i = 0; i < count; i++) {
        struct xdp_desc desc = *xsk_ring_cons__rx_desc(&in->receive, at + i);
        if (fits) {
            send_on(in, out, &desc);
        } else {
            uint32_t frame = frame_of(in->memory, desc.addr);
            move(in->memory, frame, FILL, FREE);
            in->memory->free[in->memory->free_count++] = frame;
        }
    }
    if (fits) {
        xsk_ring_prod__submit(&out->transmit, count);
        chained += count > 1;
    }
}

static bool forward(struct port *in, struct port *out) {
    uint32_t at, count = xsk_ring_cons__peek(&in->receive, BATCH, &at), done = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (xsk_ring_cons__rx_desc(&in->receive, at + i)->options & XDP_PKT_CONTD)
            continue;
        forward_packet(in, out, at + done, i + 1 - done);
        done = i + 1;
    }
    // A packet whose last frames have not come yet stays in the ring.
    xsk_ring_cons__cancel(&in->receive, count - done);
    if (done) {
        xsk_ring_cons__release(&in->receive, done);
        in->filled -= done;
    }
    return done > 0;
}

// Sleeps for at most 100 ms, or not at all.
static void wait_for(struct port ports[2], const char *how, int epoll) {
    struct pollfd fds[2] = {{.fd = ports[0].fd, .events = POLLIN}, {.fd = ports[1].fd, .events = POLLIN}};
    struct timespec time = {.tv_nsec = 100 * 1000 * 1000};
    struct epoll_event events[2];
    if (!strcmp(how, "poll"))
        poll(fds, 2, 100);
    else if (!strcmp(how, "ppoll"))
        ppoll(fds, 2, &time, NULL);
    else if (!strcmp(how, "epoll"))
        epoll_wait(epoll, events, 2, 100);
    else
        for (int i = 0; i < 2; i++)
            if (xsk_ring_prod__needs_wakeup(&ports[i].fill))
                recvfrom(ports[i].fd, NULL, 0, MSG_DONTWAIT, NULL, NULL);
}

// Returns whether a child that was forked while sockets are open can create one.
static const char *fork_child(void) {
    pid_t child = fork();
    if (child < 0)
        die("fork", errno);
    if (!child) {
        int fd = socket(AF_XDP, SOCK_RAW, 0);
        _exit(fd < 0 ? 1 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "made" : "refused";
}

int main(int argc, char **argv) {
    bool wakeup = true, shared = false, unaligned = false, duplicate = false, forks = false;
    bool jumbo = false, refill_foreign = false;
    const char *how = "busy", *child = "none";
    static const struct option options[] = {
        {"wait", required_argument, NULL, 'w'}, {"no-wakeup", no_argument, NULL, 'n'},
        {"shared", no_argument, NULL, 's'},     {"unaligned", no_argument, NULL, 'u'},
        {"dup", no_argument, NULL, 'd'},        {"fork", no_argument, NULL, 'f'},
        {"jumbo", no_argument, NULL, 'j'},      {"refill-foreign", no_argument, NULL, 'r'},
        {0},
    };
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (o) {
        case 'w': how = optarg; break;
        case 'n': wakeup = false; break;
        case 's': shared = true; break;
        case 'u': unaligned = true; break;
        case 'd': duplicate = true; break;
        case 'f': forks = true; break;
        case 'j': jumbo = true; break;
        case 'r': refill_foreign = true; break;
        default: return 2;
        }
    }
    if (argc - optind != 2)
        return 2;
    signal(SIGTERM, on_term);

    static struct memory memories[2];
    static struct port ports[2];
    for (int i = 0; i < 2; i++) {
        struct memory *m = &memories[shared ? 0 : i];
        ports[i].memory = m;
        if (!m->umem)
            set_up_memory(m, unaligned, &ports[i]);
        bind_port(&ports[i], argv[optind + i], wakeup, jumbo);
    }
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < 2; i++) {
        if (duplicate)
            ports[i].fd = dup(ports[i].fd);
        struct epoll_event event = {.events = EPOLLIN, .data.fd = i};
        epoll_ctl(epoll, EPOLL_CTL_ADD, ports[i].fd, &event);
        refill(&ports[i]);
    }
    puts("ready");
    fflush(stdout);

    while (!stop) {
        if (forks) {
            child = fork_child();
            forks = false;
        }
        bool moved = forward(&ports[0], &ports[1]);
        moved |= forward(&ports[1], &ports[0]);
        for (int i = 0; i < 2; i++) {
            kick(&ports[i]);
            reap(&ports[i]);
            if (refill_foreign)
                refill_foreign = !fill_again(&ports[0]);
            refill(&ports[i]);
        }
        if (!moved)
            wait_for(ports, how, epoll);
    }
    // Frames in flight come back; nothing new is sent.
    for (int tries = 0; (ports[0].sending || ports[1].sending) && tries < 5000; tries++) {
        for (int i = 0; i < 2; i++) {
            kick(&ports[i]);
            reap(&ports[i]);
        }
        usleep(1000);
    }
    uint32_t all = 0, free_count = 0;
    for (int i = 0; i < (shared ? 1 : 2); i++) {
        all += FRAMES;
        free_count += memories[i].free_count;
    }
    printf("frames=%u free=%u filled=%u sending=%u child=%s chained=%u\n", all, free_count,
           ports[0].filled + ports[1].filled, ports[0].sending + ports[1].sending, child, chained);
    fflush(stdout);
    for (int i = 0; i < 2; i++) {
        if (duplicate)
            close(ports[i].fd);
        xsk_socket__delete(ports[i].socket);
    }
    for (int i = 0; i < (shared ? 1 : 2); i++)
        xsk_umem__delete(memories[i].umem);
    return 0;
}
