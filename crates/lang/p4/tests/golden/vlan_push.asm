p4_main:
    ; test.p4:33: parser push_parser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata std) {
    r6 = r1
    r2 = *(u64 *)(r6 + 8)
    r3 = *(u64 *)(r6 + 0)
    ; test.p4:35: packet.extract(hdr.ethernet);
    r4 = r3
    r4 += 14
    if r4 > r2 goto L1
    r7 = *(u16 *)(r3 + 12)
    ; test.p4:36: transition select(hdr.ethernet.type) {
    if r7 == 129 goto L1
    ; test.p4:35: packet.extract(hdr.ethernet);
    r8 = *(u64 *)(r3 + 4)
    r9 = *(u64 *)(r3 + 0)
    ; test.p4:64: packet.emit(hdr.vlan);
    r1 = r6
    w2 = -4
    call 44
    if r0 != 0 goto L0
    r2 = *(u64 *)(r6 + 8)
    r3 = *(u64 *)(r6 + 0)
    ; test.p4:63: packet.emit(hdr.ethernet);
    r4 = r3
    r4 += 18
    if r4 > r2 goto L0
    w2 = w9
    *(u32 *)(r3 + 0) = r2
    r9 >>= 32
    w9 &= 65535
    *(u16 *)(r3 + 4) = r9
    r2 = r8
    r2 >>= 16
    w2 = w2
    *(u32 *)(r3 + 6) = r2
    r8 >>= 48
    *(u16 *)(r3 + 10) = r8
    *(u16 *)(r3 + 12) = 129
    ; test.p4:55: hdr.vlan = { priority = 0, drop_eligible = 0, id = FIRST_VLAN + (bit<12>)get_vm(), type = hdr.ethernet.type };
    r2 = *(u32 *)(r6 + 36)
    w2 &= 4095
    w2 += 100
    w2 &= 4095
    ; test.p4:64: packet.emit(hdr.vlan);
    r2 = be16 r2
    *(u16 *)(r3 + 14) = r2
    *(u16 *)(r3 + 16) = r7
    w0 = 1
    exit
L0:
    ; test.p4:68: ubpf(push_parser(), push(), push_deparser()) main;
    w0 = 3
    exit
L1:
    w0 = 0
    exit
