// What a packet's way through a program consists of, phase by phase: each macro adds one.
// The shape is that of tcp_guard.p4 and port_filter.p4.
#include <ubpf_model.p4>
#include <p4shield.p4>

header ethernet_t { bit<48> dst; bit<48> src; bit<16> type; }
header ipv4_t {
    bit<4> version; bit<4> header_words; bit<8> service; bit<16> total_length; bit<16> id; bit<3> flags;
    bit<13> fragment_offset; bit<8> ttl; bit<8> protocol; bit<16> checksum; bit<32> src; bit<32> dst;
}
header tcp_t {
    bit<16> src_port; bit<16> dst_port; bit<32> sequence; bit<32> acknowledgement; bit<4> header_words;
    bit<4> reserved; bit<8> flags; bit<16> window; bit<16> checksum; bit<16> urgent;
}

struct headers_t { ethernet_t ethernet; ipv4_t ipv4; tcp_t tcp; }
struct metadata_t { }

parser phases_parser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata std) {
    state start {
#ifdef PARSE
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) { 0x0800: parse_ipv4; default: reject; }
    }
    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.protocol) { 6: parse_tcp; default: reject; }
    }
    state parse_tcp {
        packet.extract(hdr.tcp);
#endif
        transition accept;
    }
}

control phases(inout headers_t hdr, inout metadata_t meta, inout standard_metadata std) {
#ifdef TABLE
    Counter<bit<32>>(16) hits;
    action count(bit<32> i) { hits.increment(i); }
    action deny() { mark_to_drop(); }
    table ports {
        key = { hdr.tcp.dst_port: exact; }
        actions = { count; deny; }
        default_action = deny();
        const entries = {
            80: count(0);
            87: count(1);
            94: count(2);
            101: count(3);
            108: count(4);
            115: count(5);
            122: count(6);
            129: count(7);
            136: count(8);
            143: count(9);
            150: count(10);
            157: count(11);
            164: count(12);
            171: count(13);
            178: count(14);
            185: count(15);
            192: count(0);
            199: count(1);
            206: count(2);
            213: count(3);
            220: count(4);
            227: count(5);
            234: count(6);
            241: count(7);
            248: count(8);
            255: count(9);
            262: count(10);
            269: count(11);
            276: count(12);
            283: count(13);
            290: count(14);
            297: count(15);
            304: count(0);
            311: count(1);
            318: count(2);
            325: count(3);
            332: count(4);
            339: count(5);
            346: count(6);
            353: count(7);
            360: count(8);
            367: count(9);
            374: count(10);
            381: count(11);
            388: count(12);
            395: count(13);
            402: count(14);
            409: count(15);
            416: count(0);
            423: count(1);
            430: count(2);
            437: count(3);
            444: count(4);
            451: count(5);
            458: count(6);
            465: count(7);
            472: count(8);
            479: count(9);
            486: count(10);
            493: count(11);
            500: count(12);
            507: count(13);
            514: count(14);
            521: count(15);
        }
    }
#endif
    apply {
#ifdef PARSE
        if (hdr.tcp.flags == 0xff) { mark_to_drop(); }
#endif
#ifdef TABLE
        ports.apply();
#endif
#ifdef INFO
        bit<64> m = get_tcp_mem();
        if (vm_info_status() != 0 || m[63:32] < m[31:0]) { mark_to_drop(); }
#endif
#ifdef DEPARSE
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        hdr.ipv4.service = 0x28;
#endif
    }
}

control phases_deparser(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr); }
}

ubpf(phases_parser(), phases(), phases_deparser()) main;
