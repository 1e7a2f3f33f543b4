p4_main:
    ; test.p4:60: parser guard_parser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata std) {
    r6 = r1
    r2 = *(u64 *)(r6 + 8)
    r3 = *(u64 *)(r6 + 0)
    ; test.p4:62: packet.extract(hdr.ethernet);
    r4 = r3
    r4 += 14
    if r4 > r2 goto L7
    r4 = *(u16 *)(r3 + 12)
    ; test.p4:63: transition select(hdr.ethernet.type) {
    if r4 != 8 goto L6
    ; test.p4:70: packet.extract(hdr.ipv4);
    r4 = r3
    r4 += 34
    if r4 > r2 goto L7
    r4 = *(u8 *)(r3 + 14)
    w4 &= 15
    ; test.p4:71: verify(hdr.ipv4.header_words >= 5, error.ParserInvalidArgument);
    if r4 < 5 goto L7
    ; test.p4:70: packet.extract(hdr.ipv4);
    r5 = *(u16 *)(r3 + 20)
    ; test.p4:72: transition select(hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
    if r5 & 65311 goto L6
    ; test.p4:70: packet.extract(hdr.ipv4);
    r5 = *(u8 *)(r3 + 23)
    ; test.p4:72: transition select(hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
    if r5 != 6 goto L6
    ; test.p4:79: packet.extract(hdr.ipv4_options, ((bit<32>)hdr.ipv4.header_words - 5) * 32);
    w4 += -5
    w4 <<= 5
    w4 >>= 3
    if r4 > 40 goto L7
    r3 += r4
    r4 = r3
    r4 += 54
    if r4 > r2 goto L7
    ; test.p4:80: packet.extract(hdr.tcp);
    r2 = *(u8 *)(r3 + 47)
    ; test.p4:91: if (hdr.tcp.isValid() && hdr.tcp.flags & 0x12 == 0x02) {
    w2 &= 18
    if r2 != 2 goto L6
    ; test.p4:92: if (vm_info_status() != 0) {
    r1 = r6
    call 1001
    if r0 & 255 goto L7
    ; test.p4:96: bit<64> used = get_tcp_mem_used();
    r1 = r6
    w2 = 1
    call 1000
    r7 = r0
    ; test.p4:97: bit<64> threshold = get_tcp_mem_threshold();
    r1 = r6
    w2 = 2
    call 1000
    r6 = r0
    ; test.p4:98: bit<1> state = denying.read(0);
    *(u32 *)(r10 - 8) = 0
    r1 = guard_denying ll
    r2 = r10
    r2 += -8
    call 1
    if r0 == 0 goto L0
    r2 = *(u8 *)(r0 + 0)
    w2 &= 1
    ; test.p4:99: if (state == 0 && used > threshold) {
    if r2 != 0 goto L2
    goto L1
L0:
    w2 = 0
L1:
    if r7 > r6 goto L3
L2:
    if r2 == 0 goto L4
    ; test.p4:101: } else if (state == 1 && used < threshold - (threshold >> 2)) {
    r2 = r6
    r2 >>= 2
    r6 -= r2
    if r7 >= r6 goto L3
    ; test.p4:99: if (state == 0 && used > threshold) {
    w2 = 0
    goto L4
L3:
    w2 = 1
L4:
    if r0 == 0 goto L5
    ; test.p4:104: denying.write(0, state);
    *(u8 *)(r0 + 0) = r2
L5:
    if r2 != 0 goto L7
L6:
    ; test.p4:114: packet.emit(hdr);
    w0 = 1
    exit
L7:
    ; test.p4:118: ubpf(guard_parser(), guard(), guard_deparser()) main;
    w0 = 0
    exit
