//! Parsers of the kernel's text files. They are pure, tolerate additions of newer kernels, and never panic.
//!
//! A missing value is `None`, and so is a number that does not fit its type.

/// TCP values of `/proc/net/sockstat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SockStat {
    /// Sockets in use in this network namespace (`inuse`).
    pub in_use: Option<u64>,
    /// Memory in use, in pages (`mem`). The kernel counts it for all network namespaces together.
    pub mem_pages: Option<u64>,
}

/// Reads `/proc/net/sockstat`: lines of a name, a colon, and pairs of word and number.
#[must_use]
pub fn sockstat(text: &str) -> SockStat {
    let Some(line) = text.lines().find_map(|l| l.strip_prefix("TCP:")) else { return SockStat::default() };
    let value = |name| pairs(line).find(|(n, _)| *n == name).and_then(|(_, v)| v.parse().ok());
    SockStat { in_use: value("inuse"), mem_pages: value("mem") }
}

/// Reads the IPv6 sockets in use from `/proc/net/sockstat6`.
#[must_use]
pub fn sockstat6(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix("TCP6:"))?;
    pairs(line).find(|(n, _)| *n == "inuse")?.1.parse().ok()
}

fn pairs(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut words = line.split_ascii_whitespace();
    std::iter::from_fn(move || Some((words.next()?, words.next()?)))
}

/// Reads the hard limit, the third number, of `/proc/sys/net/ipv4/tcp_mem`, in pages.
#[must_use]
pub fn tcp_mem_limit(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().nth(2)?.parse().ok()
}

/// Memory of the machine in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemInfo {
    /// Total memory.
    pub total: Option<u64>,
    /// `MemTotal - MemAvailable`.
    pub used: Option<u64>,
}

/// Reads `/proc/meminfo`, whose numbers are KiB.
#[must_use]
pub fn meminfo(text: &str) -> MemInfo {
    let value = |name: &str| {
        let rest = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
        rest.split_ascii_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    };
    let (total, available) = (value("MemTotal"), value("MemAvailable"));
    MemInfo { total, used: total.zip(available).and_then(|(t, a)| t.checked_sub(a)) }
}

/// Pressure stall information: ten-second averages in hundredths of a percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Share of time in which some task waited.
    pub some: Option<u64>,
    /// Share of time in which all tasks waited.
    pub full: Option<u64>,
}

/// Reads a file of `/proc/pressure`.
#[must_use]
pub fn pressure(text: &str) -> Pressure {
    let average = |kind: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(kind)?.strip_prefix(' '))?;
        let word = line.split_ascii_whitespace().find_map(|w| w.strip_prefix("avg10="))?;
        hundredths(word)
    };
    Pressure { some: average("some"), full: average("full") }
}

/// Parses `12.34` as 1234.
fn hundredths(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) {
        return None;
    }
    let mut part = part.bytes().map(|b| u64::from(b - b'0'));
    let tenth = part.next().unwrap_or(0);
    let hundredth = part.next().unwrap_or(0);
    whole.parse::<u64>().ok()?.checked_mul(100)?.checked_add(tenth * 10 + hundredth)
}

/// Running counters of one interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes transmitted.
    pub tx_bytes: u64,
    /// Packets transmitted.
    pub tx_packets: u64,
}

/// Reads one interface's counters from `/proc/net/dev`.
#[must_use]
pub fn net_dev(text: &str, interface: &str) -> Option<Counters> {
    // A colon follows the name, with or without blanks after it. Names may contain colons (aliases).
    let rest = text.lines().find_map(|l| l.trim_start().strip_prefix(interface)?.strip_prefix(':'))?;
    let mut numbers = rest.split_ascii_whitespace().map(|w| w.parse::<u64>().ok());
    let mut nth = |n| numbers.nth(n).flatten();
    // Each direction has eight columns, beginning with bytes and packets.
    let (rx_bytes, rx_packets) = (nth(0)?, nth(0)?);
    let (tx_bytes, tx_packets) = (nth(6)?, nth(0)?);
    Some(Counters { rx_bytes, rx_packets, tx_bytes, tx_packets })
}

/// Reads `/sys/class/net/X/speed` in megabits per second; -1 and 0 mean that the speed is unknown.
#[must_use]
pub fn speed(text: &str) -> Option<u64> {
    let mbps: u64 = text.trim().parse().ok()?;
    // Some drivers write -1 as 4294967295.
    (mbps != 0 && mbps < u64::from(u32::MAX)).then(|| mbps * 1_000_000)
}

/// For fuzzers: passes any bytes to every parser.
pub fn fuzz(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = (sockstat(&text), sockstat6(&text), tcp_mem_limit(&text), meminfo(&text));
    let _ = (pressure(&text), net_dev(&text, "eth0"), speed(&text));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From Linux 6.18.
    const SOCKSTAT: &str = "sockets: used 16\nTCP: inuse 1 orphan 0 tw 0 alloc 1 mem 324\nUDP: inuse 0 mem \
                            0\nUDPLITE: inuse 0\nRAW: inuse 0\nFRAG: inuse 0 memory 0\n";
    const MEMINFO: &str =
        "MemTotal:       24609312 kB\nMemFree:        22018896 kB\nMemAvailable:   23781908 kB\n";
    const NET_DEV: &str = "Inter-|   Receive                                                |  Transmit\n \
        face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo \
        colls carrier compressed\n    lo:  1372      14    0    0    0     0          0         0     1372 \
             14    0    0    0     0       0          0\n  eth0:18446744073709551615 2 0 0 0 0 0 0 30 4 0 \
        0 0 0 0 0\n";

    #[test]
    fn sockstat_of_linux() {
        assert_eq!(sockstat(SOCKSTAT), SockStat { in_use: Some(1), mem_pages: Some(324) });
        assert_eq!(sockstat6("TCP6: inuse 7\nUDP6: inuse 0\n"), Some(7));
    }

    #[test]
    fn sockstat_with_more_words_in_another_order() {
        let s = sockstat("TCP: mem 5 new 9 inuse 2\n");
        assert_eq!(s, SockStat { in_use: Some(2), mem_pages: Some(5) });
        assert_eq!(sockstat("TCP: mem -5 inuse 99999999999999999999\n"), SockStat::default());
        assert_eq!(sockstat("TCP: mem"), SockStat::default());
        assert_eq!(sockstat("UDP: inuse 1 mem 2\n"), SockStat::default());
    }

    #[test]
    fn tcp_mem_of_linux() {
        assert_eq!(tcp_mem_limit("287898\t383867\t575796\n"), Some(575_796));
        assert_eq!(tcp_mem_limit("1 2"), None);
    }

    #[test]
    fn meminfo_of_linux() {
        let m = meminfo(MEMINFO);
        assert_eq!(m.total, Some(24_609_312 * 1024));
        assert_eq!(m.used, Some((24_609_312 - 23_781_908) * 1024));
        let none = meminfo("MemTotal: 18446744073709551615 kB\nMemAvailable: 1 kB\n");
        assert_eq!(none, MemInfo::default(), "does not overflow");
        assert_eq!(meminfo("MemTotal: 1 kB\nMemAvailable: 2 kB\n").used, None);
    }

    #[test]
    fn pressure_of_linux() {
        let p = pressure(
            "some avg10=12.34 avg60=0.28 avg300=0.59 total=17350013\nfull avg10=0.05 avg60=0.00 \
             avg300=0.00 total=0\n",
        );
        assert_eq!(p, Pressure { some: Some(1234), full: Some(5) });
        assert_eq!(pressure("some avg10=-1.0\nfull avg10=1.-2\n"), Pressure::default());
        assert_eq!(pressure("some avg10=100\n").some, Some(10_000));
    }

    #[test]
    fn net_dev_of_linux() {
        let c = net_dev(NET_DEV, "eth0").unwrap();
        assert_eq!(c, Counters { rx_bytes: u64::MAX, rx_packets: 2, tx_bytes: 30, tx_packets: 4 });
        assert_eq!(net_dev(NET_DEV, "lo").unwrap().tx_packets, 14);
        assert_eq!(net_dev(NET_DEV, "eth"), None, "not a prefix of a name");
        assert_eq!(net_dev("eth0: 1 2 3\n", "eth0"), None);
    }

    #[test]
    fn speed_of_linux() {
        assert_eq!(speed("10000\n"), Some(10_000_000_000));
        for none in ["-1\n", "0\n", "4294967295\n", "", "fast"] {
            assert_eq!(speed(none), None);
        }
    }
}
