// P4 Shield's additions to an architecture: in-VM information, counters, and the user VM of a packet.
//
// In-VM information is a snapshot that the user VM publishes. A value is unknown if no snapshot was published yet, or
// if the last snapshot is stale, forged or replayed. An unknown value reads as a value that is safe to compare with
// (see each function). If a program calls neither vm_info_status() nor vm_info_known(), a packet for which it reads an
// unknown value is dropped.
#ifndef _P4SHIELD_P4_
#define _P4SHIELD_P4_

/// The tenant's threshold for TCP memory (bits 63..32) and the TCP memory in use (bits 31..0), both in bytes and at
/// most 2^32-1. Unknown: threshold 0, all ones in use.
extern bit<64> get_tcp_mem();
/// TCP memory in use in bytes. Unknown: all ones.
extern bit<64> get_tcp_mem_used();
/// The tenant's threshold for TCP memory in bytes. Unknown: 0.
extern bit<64> get_tcp_mem_threshold();
/// Number of TCP sockets in use.
extern bit<64> get_tcp_sockets();
/// Memory in use (total less available), in bytes.
extern bit<64> get_mem_used();
/// Total memory, in bytes.
extern bit<64> get_mem_total();
/// Memory pressure `some` (PSI, ten-second average), in hundredths of a percent.
extern bit<64> get_mem_pressure();
/// Memory pressure `full` (PSI, ten-second average), in hundredths of a percent.
extern bit<64> get_mem_pressure_full();
/// CPU pressure `some` (PSI, ten-second average), in hundredths of a percent.
extern bit<64> get_cpu_pressure();
/// Bits per second that interface `index` received (0..7, in the order of the agent's configuration).
extern bit<64> get_rx_bps(in bit<8> index);
/// Bits per second that interface `index` sent.
extern bit<64> get_tx_bps(in bit<8> index);
/// Packets per second that interface `index` received.
extern bit<64> get_rx_pps(in bit<8> index);
/// Packets per second that interface `index` sent.
extern bit<64> get_tx_pps(in bit<8> index);
/// What interface `index` receives, in hundredths of a percent of its speed.
extern bit<64> get_rx_utilisation(in bit<8> index);
/// What interface `index` sends, in hundredths of a percent of its speed.
extern bit<64> get_tx_utilisation(in bit<8> index);
/// Speed of interface `index` in bits per second.
extern bit<64> get_link_speed(in bit<8> index);
/// The value that the tenant set in `slot` (0..63) with `p4shield agent set`.
extern bit<64> get_app_value(in bit<8> slot);
/// A field by its number.
extern bit<64> read_vm_info(in bit<32> field);
/// 0: information is fresh and genuine; 1 missing, 2 stale, 3 forged, 4 replayed.
extern bit<8> vm_info_status();
/// Whether `field` has a value in a fresh and genuine snapshot.
extern bool vm_info_known(in bit<32> field);

/// Direction of the packet: 0 towards the user VM, 1 from it.
extern bit<8> get_direction();
/// Index of the user VM within its tenant.
extern bit<32> get_vm();
/// When the P4 VM fetched the packet, in nanoseconds of its clock since boot, which never goes back.
extern bit<64> get_timestamp_ns();

/// `size` counters of packets (or of the amounts that `add` adds), all 0 at load; `@metric` exports them.
extern Counter<S> {
    Counter(bit<32> size);
    /// Adds one to the counter at `index`; has no effect if `index` is out of range.
    void increment(in S index);
    /// Adds `value` to the counter at `index`.
    void add(in S index, in bit<64> value);
}

#endif
