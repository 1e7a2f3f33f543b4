p4_main:
    ; test.p4:79: parser guard_parser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata std) {
    r6 = r1
    r2 = *(u64 *)(r6 + 8)
    r3 = *(u64 *)(r6 + 0)
    ; test.p4:81: packet.extract(hdr.ethernet);
    r4 = r3
    r4 += 14
    if r4 > r2 goto L3
    r4 = *(u16 *)(r3 + 12)
    ; test.p4:82: transition select(hdr.ethernet.type) {
    if r4 != 129 goto L0
    ; test.p4:90: packet.extract(hdr.vlan);
    r4 = r3
    r4 += 18
    if r4 > r2 goto L3
    r4 = *(u16 *)(r3 + 16)
    r3 += 18
    if r4 != 8 goto L2
    ; test.p4:82: transition select(hdr.ethernet.type) {
    goto L1
L0:
    ; test.p4:81: packet.extract(hdr.ethernet);
    r3 += 14
    if r4 != 8 goto L2
L1:
    ; test.p4:98: packet.extract(hdr.ipv4);
    r4 = r3
    r4 += 20
    if r4 > r2 goto L3
    r4 = *(u8 *)(r3 + 0)
    w4 &= 15
    ; test.p4:100: verify(hdr.ipv4.header_words >= 5, error.ParserInvalidArgument);
    if r4 < 5 goto L3
    ; test.p4:98: packet.extract(hdr.ipv4);
    r5 = *(u16 *)(r3 + 6)
    ; test.p4:101: transition select(hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
    if r5 & 65311 goto L2
    ; test.p4:98: packet.extract(hdr.ipv4);
    r5 = *(u8 *)(r3 + 9)
    ; test.p4:101: transition select(hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
    if r5 != 6 goto L2
    ; test.p4:108: packet.extract(hdr.ipv4_options, ((bit<32>)hdr.ipv4.header_words - 5) * 32);
    w4 += -5
    w4 <<= 5
    w4 >>= 3
    if r4 > 40 goto L3
    r3 += r4
    r4 = r3
    r4 += 40
    if r4 > r2 goto L3
    ; test.p4:109: packet.extract(hdr.tcp);
    r2 = *(u8 *)(r3 + 33)
    ; test.p4:117: if (hdr.tcp.isValid() && hdr.tcp.flags & (FLAG_SYN | FLAG_ACK) == FLAG_SYN) {
    w2 &= 18
    if r2 != 2 goto L2
    ; test.p4:118: bit<64> tcp_mem = get_tcp_mem();
    r1 = r6
    w2 = 0
    call 1000
    r7 = r0
    ; test.p4:122: if (vm_info_status() != 0 || threshold < used) {
    r1 = r6
    call 1001
    if r0 & 255 goto L3
    ; test.p4:120: bit<32> used = tcp_mem[31:0];
    w2 = w7
    ; test.p4:119: bit<32> threshold = tcp_mem[63:32];
    r7 >>= 32
    ; test.p4:122: if (vm_info_status() != 0 || threshold < used) {
    if r7 < r2 goto L3
L2:
    ; test.p4:131: packet.emit(hdr);
    w0 = 1
    exit
L3:
    ; test.p4:135: ubpf(guard_parser(), guard(), guard_deparser()) main;
    w0 = 0
    exit
