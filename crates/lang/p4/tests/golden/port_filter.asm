p4_main:
    ; test.p4:57: parser filter_parser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata std) {
    r2 = *(u64 *)(r1 + 8)
    r3 = *(u64 *)(r1 + 0)
    ; test.p4:59: packet.extract(hdr.ethernet);
    r4 = r3
    r4 += 14
    if r4 > r2 goto L8
    r4 = *(u16 *)(r3 + 12)
    ; test.p4:60: transition select(hdr.ethernet.type) {
    if r4 != 8 goto L7
    ; test.p4:67: packet.extract(hdr.ipv4);
    r4 = r3
    r4 += 34
    if r4 > r2 goto L8
    r4 = *(u8 *)(r3 + 14)
    w4 &= 15
    ; test.p4:68: verify(hdr.ipv4.header_words >= 5, error.ParserInvalidArgument);
    if r4 < 5 goto L8
    ; test.p4:67: packet.extract(hdr.ipv4);
    r5 = *(u16 *)(r3 + 20)
    ; test.p4:69: transition select(hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
    if r5 & 65311 goto L7
    ; test.p4:67: packet.extract(hdr.ipv4);
    r5 = *(u8 *)(r3 + 23)
    ; test.p4:69: transition select(hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
    if r5 == 6 goto L0
    if r5 != 17 goto L7
L0:
    ; test.p4:77: packet.extract(hdr.ipv4_options, ((bit<32>)hdr.ipv4.header_words - 5) * 32);
    w4 += -5
    w4 <<= 5
    w4 >>= 3
    if r4 > 40 goto L8
    r3 += r4
    r4 = r3
    r4 += 38
    if r4 > r2 goto L8
    ; test.p4:78: packet.extract(hdr.ports);
    r2 = *(u16 *)(r3 + 36)
    ; test.p4:103: ( 22, Protocol.TCP) : allow(1);
    if r2 != 5632 goto L1
    if r5 != 6 goto L6
    ; test.p4:114: allowed.apply();
    w2 = 1
    goto L5
L1:
    ; test.p4:104: ( 80, Protocol.TCP) : allow(2);
    if r2 != 20480 goto L2
    if r5 == 6 goto L3
    goto L6
L2:
    ; test.p4:105: (443, Protocol.TCP) : allow(2);
    if r2 != 47873 goto L4
    if r5 == 6 goto L3
    ; test.p4:106: (443, Protocol.UDP) : allow(2);
    if r5 != 17 goto L6
L3:
    ; test.p4:114: allowed.apply();
    w2 = 2
    goto L5
L4:
    ; test.p4:107: ( 53, Protocol.UDP) : allow(3);
    if r2 != 13568 goto L6
    if r5 != 17 goto L6
    ; test.p4:114: allowed.apply();
    w2 = 3
L5:
    ; test.p4:88: services.increment(service);
    *(u32 *)(r10 - 8) = r2
    r1 = filter_services ll
    r2 = r10
    r2 += -8
    call 1
    if r0 == 0 goto L7
    r2 = *(u64 *)(r0 + 0)
    r2 += 1
    *(u64 *)(r0 + 0) = r2
    goto L7
L6:
    ; test.p4:92: services.increment(0);
    *(u32 *)(r10 - 8) = 0
    r1 = filter_services ll
    r2 = r10
    r2 += -8
    call 1
    if r0 == 0 goto L8
    r2 = *(u64 *)(r0 + 0)
    r2 += 1
    *(u64 *)(r0 + 0) = r2
    goto L8
L7:
    ; test.p4:121: packet.emit(hdr);
    w0 = 1
    exit
L8:
    ; test.p4:125: ubpf(filter_parser(), filter(), filter_deparser()) main;
    w0 = 0
    exit
