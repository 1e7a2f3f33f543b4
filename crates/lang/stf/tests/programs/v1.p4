// Shared by the v1model programs of this folder: empty stages, and main.
control NoVerify(inout headers_t hdr, inout meta_t meta) { apply { } }
control NoUpdate(inout headers_t hdr, inout meta_t meta) { apply { } }
control NoEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) { apply { } }
control Emit(packet_out p, in headers_t hdr) { apply { p.emit(hdr); } }
