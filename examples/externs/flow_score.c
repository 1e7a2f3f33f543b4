/* A tenant's own extern for flow_score.p4: a score from 0 to 255 for each packet, the same for all packets of a
 * pair of hosts, lower for large packets.
 *
 *   clang -target bpf -O2 -c flow_score.c -o flow_score.o
 *
 * Calling convention (docs/how-to/c-externs.md): arguments stand in the order of the P4 declaration; the unused upper
 * bits of unsigned integers are zero. The caller takes as many of the result's lowest bits as the declared type has.
 * Integers are in the machine's byte order; the compiler converts from and to network byte order. Count loops up to a
 * bound: the verifier proves that no other loop ends.
 */

typedef unsigned long long u64;
typedef unsigned int u32;

u64 flow_score(u64 src, u64 dst, u64 length)
{
    u32 h = (u32)src * 0x9e3779b1u;

    h ^= (u32)dst + (h >> 15);
    h *= 0x85ebca6bu;
    h ^= h >> 13;

    u64 score = h & 0xff;

    return length > 1000 ? score >> 1 : score;
}
