//! A compartment that sends past traffic control, where the NIC switch is, to the host's own network stack.

use super::two_tenants;
use std::net::UdpSocket;
use std::time::Duration;

/// Sends UDP to the host from a compartment's interface ($1, port $2). An IFB marks what is redirected to it
/// so that the next interface's traffic control passes it by, if no filter sees it again before: it waits
/// there, until the filter is gone.
const ATTACK: &str = r#"
set -e
trap 'ip link del ifb0; tc qdisc del dev $1 clsact' EXIT
ip link add ifb0 type ifb
ip link set ifb0 up
tc qdisc add dev ifb0 root tbf rate 500bit burst 100 limit 10000
tc qdisc add dev $1 clsact
tc filter add dev $1 egress protocol all u32 match u32 0 0 action mirred egress redirect dev ifb0
perl -e '
my ($index, $port) = @ARGV;
socket(my $s, 17, 3, 0) or die $!;
bind($s, pack("S n l S C C a8", 17, 0, $index, 0, 0, 6, "")) or die $!;
my $udp = pack("n n n n a5", 1, $port, 13, 0, "hello");
my $ip = pack("C C n n n C C n C4 C4", 0x45, 0, 33, 1, 0, 64, 17, 0, 10, 99, 0, 9, 10, 99, 0, 1);
my $sum = 0;
$sum += $_ for unpack("n*", $ip);
$sum = ($sum >> 16) + ($sum & 0xffff) for 1 .. 2;
substr($ip, 10, 2) = pack("n", ~$sum & 0xffff);
my $frame = "\xff" x 6 . "\x02\0\0\0\0\x77" . "\x08\0" . $ip . $udp;
for (1 .. 40) { send($s, $frame, 0) or die $! }
' $(ip -o link show dev $1 | cut -d: -f1) $2
tc filter del dev $1 egress
sleep 3
"#;

#[test]
fn a_compartment_reaches_no_service_of_the_host() {
    let Some(scene) = two_tenants() else { return };
    let plan = scene.topology("plan");
    if plan["nic_switch"] != "tc" {
        return p4shield_need::skip("tcx", "the NIC switch is not in traffic control by default");
    }
    scene.topology("apply");
    let link = &plan["compartments"][0]["in_out"];
    let [outer, inner] = ["outer", "inner"].map(|end| link[end].as_str().unwrap());
    scene.host.ip("addr add 10.99.0.1/32 dev lo").unwrap();
    let service = scene.host.inside(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    service.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let port = service.local_addr().unwrap().port().to_string();
    let is_reached = || {
        let words = ["sh", "-c", ATTACK, "sh", inner, &port];
        let done = scene.exec("alice").args(words).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        service.recv(&mut [0; 8]).is_ok()
    };
    assert!(!is_reached());
    // The attack has power where the host's stack takes what comes from there.
    let setting = format!("/proc/sys/net/ipv4/conf/{outer}/rp_filter");
    scene.host.inside(|| std::fs::write(setting, "0")).unwrap();
    assert!(is_reached());
    scene.topology("apply");
    while service.recv(&mut [0; 8]).is_ok() {}
    assert!(!is_reached(), "the next apply has set it again");
}
