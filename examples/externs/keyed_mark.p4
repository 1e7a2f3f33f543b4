// A P4 switch with a secret: each IPv4 packet gets a keyed mark, which a second switch of the tenant checks. The
// function that knows the key is marked with `@compartment`: `p4shield switch run --placement extern` runs it in a
// sandboxed process of its own, and the rest of the program in the switch.
//
//   echo "secret 0 hex:$(openssl rand -hex 16)" > keyed_mark.maps
//   p4shield switch run keyed_mark.p4 --functions keyed_mark.c --placement extern --function-maps keyed_mark.maps \
//       --port 1=veth1 --port 2=veth2
//
// With --placement inline, the same source runs in the switch as a whole, with a key of zero.

#include <v1model.p4>

// Defined in keyed_mark.c.
@compartment
extern bit<16> keyed_mark(in bit<32> src, in bit<32> dst, in bit<8> protocol);

const bit<16> TYPE_IPV4 = 0x0800;

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  header_words;
    bit<8>  service;
    bit<16> total_length;
    bit<16> mark; // The identification: packets of this tenant are never fragmented.
    bit<3>  flags;
    bit<13> fragment_offset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
}

struct metadata_t {
}

parser MarkParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            TYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }
}

control MarkVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {
    }
}

control MarkIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
        // Port 1 is the tenant's: what leaves gets its mark. What arrives at port 2 without the right one is dropped.
        std.egress_spec = 3 - std.ingress_port;
        if (hdr.ipv4.isValid()) {
            bit<16> mark = keyed_mark(hdr.ipv4.src, hdr.ipv4.dst, hdr.ipv4.protocol);
            if (std.ingress_port == 1) {
                hdr.ipv4.mark = mark;
            } else if (hdr.ipv4.mark != mark) {
                mark_to_drop(std);
            }
        }
    }
}

control MarkEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    apply {
    }
}

control MarkUpdate(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(),
            { hdr.ipv4.version, hdr.ipv4.header_words, hdr.ipv4.service, hdr.ipv4.total_length, hdr.ipv4.mark,
              hdr.ipv4.flags, hdr.ipv4.fragment_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control MarkDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(MarkParser(), MarkVerify(), MarkIngress(), MarkEgress(), MarkUpdate(), MarkDeparser()) main;
