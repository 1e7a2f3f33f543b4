// The `v1model` architecture: the declarations that programs written for the reference software switch expect.
//
// P4 Shield's behaviour where the architecture does not specify it, or where it differs:
// - The verdict is `drop` if egress_spec is V1MODEL_DROP_PORT after ingress, or if egress sets it to that; otherwise
//   `pass`. The program reports the port (see the program ABI: output_port); an attachment may ignore it.
// - A parser error ends parsing; the pipeline continues with standard_metadata.parser_error set.
// - Only `p4shield switch run` and `p4shield test` replicate, clone, resubmit and recirculate packets: a P4 VM does not load a
//   program that may ask for it. What ingress asks for is done as in the reference switch: first the clone, then
//   resubmission, or the multicast group, or the port. Copies and packets that start again keep their ingress_port.
// - A port of `p4shield switch run` has a queue if it has a rate; elsewhere the queueing fields are 0. Timestamps are
//   microseconds of the P4 VM's monotonic clock, or of the switch's since its start. Of the packets that wait there, those of the greatest standard_metadata.priority leave first.
// - Each call of digest() sends a message at once, with the values at the call; there is one receiver, the control plane. Only `p4shield switch` delivers them. A failing assert() drops the packet.
// - A hit updates the entry's direct counter and meter, even if the action does not call count() or read().
// - crc32_custom and crc16_custom are crc32 and crc16, the default configuration of the reference switch.
// - An entry of a table with an action_selector may refer to a group of actions; the hash of the selector keys chooses
//   one. A group without members has no effect. Each table has its own groups, even if tables share a selector.
// - Members of a value_set match as its fields' @match annotations specify, otherwise exactly; it is empty at load.
#ifndef _V1_MODEL_P4_
#define _V1_MODEL_P4_

#include <core.p4>

#ifndef V1MODEL_VERSION
#define V1MODEL_VERSION 20180101
#endif

const bit<32> __v1model_version = V1MODEL_VERSION;

match_kind {
    range,
    optional,
    selector
}

#if V1MODEL_VERSION >= 20200408
typedef bit<9> PortId_t;
#endif

@metadata @name("standard_metadata")
struct standard_metadata_t {
#if V1MODEL_VERSION >= 20200408
    PortId_t ingress_port;
    PortId_t egress_spec;
    PortId_t egress_port;
#else
    bit<9>   ingress_port;
    bit<9>   egress_spec;
    bit<9>   egress_port;
#endif
    bit<32>  instance_type;
    bit<32>  packet_length; // of the original packet, in bytes
    @alias("queueing_metadata.enq_timestamp")
    bit<32>  enq_timestamp;
    @alias("queueing_metadata.enq_qdepth")
    bit<19>  enq_qdepth;
    @alias("queueing_metadata.deq_timedelta")
    bit<32>  deq_timedelta;
    @alias("queueing_metadata.deq_qdepth")
    bit<19>  deq_qdepth;
    @alias("intrinsic_metadata.ingress_global_timestamp")
    bit<48>  ingress_global_timestamp;
    @alias("intrinsic_metadata.egress_global_timestamp")
    bit<48>  egress_global_timestamp;
    @alias("intrinsic_metadata.mcast_grp")
    bit<16>  mcast_grp;
    @alias("intrinsic_metadata.egress_rid")
    bit<16>  egress_rid;
    bit<1>   checksum_error;
    error    parser_error;
    @alias("intrinsic_metadata.priority")
    bit<3>   priority;
}

enum CounterType {
    packets,
    bytes,
    packets_and_bytes
}

enum MeterType {
    packets,
    bytes
}

#define V1MODEL_METER_COLOR_GREEN  0
#define V1MODEL_METER_COLOR_YELLOW 1
#define V1MODEL_METER_COLOR_RED    2

#if V1MODEL_VERSION >= 20200408
/// `size` counters; `@metric` exports them to Prometheus.
extern counter<I> {
    counter(bit<32> size, CounterType type);
    /// Counts the packet; has no effect if the index is out of range.
    void count(in I index);
}

/// `size` two-rate three-colour meters. A meter without configured rates is green.
extern meter<I> {
    meter(bit<32> size, MeterType type);
    /// The colour of the packet.
    void execute_meter<T>(in I index, out T result);
}

/// `size` values of type T, all 0 at load.
extern register<T, I> {
    register(bit<32> size);
    /// The value at `index`; 0 if `index` is out of range.
    @noSideEffects
    void read(out T result, in I index);
    /// Sets the value at `index`; has no effect if `index` is out of range.
    void write(in I index, in T value);
}
#else
extern counter {
    counter(bit<32> size, CounterType type);
    void count(in bit<32> index);
}

extern meter {
    meter(bit<32> size, MeterType type);
    void execute_meter<T>(in bit<32> index, out T result);
}

extern register<T> {
    register(bit<32> size);
    @noSideEffects
    void read(out T result, in bit<32> index);
    void write(in bit<32> index, in T value);
}
#endif

/// A counter in each entry of the table whose property `counters` refers to it; `@metric` exports it.
extern direct_counter {
    direct_counter(CounterType type);
    /// Counts the packet in the entry that matched; a hit counts without it, too.
    void count();
}

/// A meter in each entry of the table whose property `meters` refers to it.
extern direct_meter<T> {
    direct_meter(MeterType type);
    /// The colour of the packet by the meter of the entry that matched.
    void read(out T result);
}

enum HashAlgorithm {
    crc32,
    crc32_custom,
    crc16,
    crc16_custom,
    random,
    identity,
    csum16,
    xor16
}

/// Shares actions among the entries of tables.
extern action_profile {
    action_profile(bit<32> size);
}

/// Shares groups of actions among the entries of tables; a hash chooses one of a group.
extern action_selector {
    action_selector(HashAlgorithm algorithm, bit<32> size, bit<32> outputWidth);
}

/// A random number from `lo` to `hi`, inclusive; not for secrets.
extern void random<T>(out T result, in T lo, in T hi);

/// Sends `data` to the control plane: see `p4shield switch digest`. A P4 VM delivers no digests.
extern void digest<T>(in bit<32> receiver, in T data);

/// Drops the packet, unless egress_spec is set later.
@deprecated("write mark_to_drop(standard_metadata)")
extern void mark_to_drop();
/// Drops the packet if `standard_metadata` is the pipeline's, or is copied to it, unless its egress_spec
/// is set later.
@pure
extern void mark_to_drop(inout standard_metadata_t standard_metadata);

/// `base` plus the hash of `data` modulo `max`; `base` if `max` is 0.
@pure
extern void hash<O, T, D, M>(out O result, in HashAlgorithm algo, in T base, in D data, in M max);

enum CloneType {
    I2E,
    E2E
}

@deprecated("use verify_checksum and update_checksum")
extern Checksum16 {
    Checksum16();
    /// The Internet checksum of `data`.
    bit<16> get<D>(in D data);
}

/// Sets standard_metadata.checksum_error if the checksum is wrong and `condition` holds.
extern void verify_checksum<T, O>(in bool condition, in T data, in O checksum, HashAlgorithm algo);
/// Sets the checksum if `condition` holds.
@pure
extern void update_checksum<T, O>(in bool condition, in T data, inout O checksum, HashAlgorithm algo);
/// As above, over `data` followed by the bytes that the parser did not extract. csum16 only; a packet is dropped if
/// the P4 VM does not have all its bytes.
extern void verify_checksum_with_payload<T, O>(in bool condition, in T data, in O checksum, HashAlgorithm algo);
@noSideEffects
extern void update_checksum_with_payload<T, O>(in bool condition, in T data, inout O checksum, HashAlgorithm algo);

/// Makes a clone for each target of a session, when the control ends: of the packet as it arrived if ingress calls it,
/// else of the packet as egress leaves it. The last call counts. A clone passes egress, with instance_type 1 or 2, and
/// keeps the metadata fields of the list.
extern void clone(in CloneType type, in bit<32> session);
@deprecated("use clone_preserving_field_list")
extern void clone3<T>(in CloneType type, in bit<32> session, in T data);
extern void clone_preserving_field_list(in CloneType type, in bit<32> session, bit<8> index);
/// Lets the packet start again as it arrived, when ingress ends, with instance_type 6 and the fields of the list.
@deprecated("use resubmit_preserving_field_list")
extern void resubmit<T>(in T data);
extern void resubmit_preserving_field_list(bit<8> index);
/// Lets the packet start again instead of leaving, as the deparser made it, with instance_type 4 and the fields of the
/// list.
@deprecated("use recirculate_preserving_field_list")
extern void recirculate<T>(in T data);
extern void recirculate_preserving_field_list(bit<8> index);

/// Truncates the outgoing packet to `length` bytes.
extern void truncate(in bit<32> length);

/// Drops the packet unless `check` holds.
extern void assert(in bool check);
/// No effect: an assumption for analysis tools.
extern void assume(in bool check);

/// No effect: programs cannot write to logs.
extern void log_msg(string msg);
extern void log_msg<T>(string msg, in T data);

parser Parser<H, M>(packet_in b, out H parsedHdr, inout M meta, inout standard_metadata_t standard_metadata);
control VerifyChecksum<H, M>(inout H hdr, inout M meta);
@pipeline
control Ingress<H, M>(inout H hdr, inout M meta, inout standard_metadata_t standard_metadata);
@pipeline
control Egress<H, M>(inout H hdr, inout M meta, inout standard_metadata_t standard_metadata);
control ComputeChecksum<H, M>(inout H hdr, inout M meta);
@deparser
control Deparser<H>(packet_out b, in H hdr);

package V1Switch<H, M>(Parser<H, M> p, VerifyChecksum<H, M> vr, Ingress<H, M> ig, Egress<H, M> eg,
                       ComputeChecksum<H, M> ck, Deparser<H> dep);

#endif
