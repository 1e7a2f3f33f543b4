//! The interface of programs matches its version: `versions/N.txt` describes version N. If a helper,
//! a map type or a layout changes, this test fails until `PROGRAM_ABI_VERSION` is incremented and the
//! new version has a file of its own.

use std::fmt::Write as _;
use std::path::Path;

use p4shield_abi::context::{CONTEXT_SIZE, PROGRAM_ABI_VERSION, offset};
use p4shield_abi::helper::{self, algorithm};
use p4shield_abi::map::{self, MAP_DEFINITION_SIZE};
use p4shield_abi::meter::METER_CELL_SIZE;
use p4shield_abi::{Direction, Verdict, info, object};

/// Describes the current interface.
fn described() -> String {
    let mut out = format!("version {PROGRAM_ABI_VERSION}\ncontext, {CONTEXT_SIZE} bytes\n");
    let mut line = |text: std::fmt::Arguments<'_>| writeln!(out, "{text}").expect("memory");
    let fields = [
        ("data", offset::DATA),
        ("data_end", offset::DATA_END),
        ("input_port", offset::INPUT_PORT),
        ("packet_length", offset::PACKET_LENGTH),
        ("output_action", offset::OUTPUT_ACTION),
        ("output_port", offset::OUTPUT_PORT),
        ("direction", offset::DIRECTION),
        ("vm", offset::VM),
        ("timestamp_ns", offset::TIMESTAMP_NS),
    ];
    fields.iter().for_each(|(name, at)| line(format_args!("  {at} {name}")));
    line(format_args!("verdicts drop {}, pass {}", Verdict::Drop as u8, Verdict::Pass as u8));
    Direction::ALL.iter().for_each(|d| line(format_args!("direction {} {}", *d as u8, d.name())));
    helper::ALL.iter().for_each(|(number, c)| line(format_args!("helper {number} {c}")));
    let algorithms = [
        ("crc32", algorithm::CRC32),
        ("crc16", algorithm::CRC16),
        ("identity, first 64 bits", algorithm::IDENTITY),
        ("csum16", algorithm::CSUM16),
        ("xor16", algorithm::XOR16),
        ("random", algorithm::RANDOM),
        ("lookup3", algorithm::LOOKUP3),
        ("sum16", algorithm::SUM16),
    ];
    algorithms.iter().for_each(|(name, n)| line(format_args!("algorithm {n} {name}")));
    let maps = [
        ("hash", map::TYPE_HASH),
        ("array", map::TYPE_ARRAY),
        ("lpm_trie", map::TYPE_LPM_TRIE),
        ("classifier", map::TYPE_CLASSIFIER),
    ];
    maps.iter().for_each(|(name, n)| line(format_args!("map {n} {name}")));
    line(format_args!("map definition, {MAP_DEFINITION_SIZE} bytes"));
    line(format_args!("classifier rule of a 13-byte key, {} bytes", map::rule_size(13)));
    line(format_args!("meter cell, {METER_CELL_SIZE} bytes"));
    for name in [
        object::PROGRAM_SECTION,
        object::ENTRY_SYMBOL,
        object::MAPS_SECTION,
        object::ENTRIES_SECTION,
        object::ABI_SECTION,
        object::LINES_SECTION,
    ] {
        line(format_args!("object {name}"));
    }
    let information = [
        ("tcp_mem", info::field::TCP_MEM),
        ("interfaces", info::field::INTERFACE_BASE),
        ("interface stride", info::field::INTERFACE_STRIDE),
        ("application values", info::field::APP_BASE),
    ];
    information.iter().for_each(|(name, n)| line(format_args!("information {n} {name}")));
    out
}

#[test]
fn the_interface_matches_its_version() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("versions/{PROGRAM_ABI_VERSION}.txt"));
    let now = described();
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == now,
        "the interface of programs differs from {}. Released versions never change: increment \
         PROGRAM_ABI_VERSION and write this to the new version's file:\n{now}",
        file.display()
    );
}
