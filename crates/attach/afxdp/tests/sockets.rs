//! Sockets of the kernel: one UMEM for several interfaces and queues, which come and go.

use p4shield_afxdp::{FramePool, Mode, Port, Socket, SocketConfig, Umem, UmemConfig};
use p4shield_testbed::NetNs;

fn usable() -> bool {
    p4shield_testbed::usable().map_err(|why| p4shield_need::skip("machine", why)).is_ok()
}

fn index(ns: &NetNs, name: &str) -> u32 {
    let text = ns.ip(&format!("-o link show {name}")).unwrap();
    text.split(':').next().unwrap().trim().parse().unwrap()
}

fn bind(
    ns: &NetNs,
    umem: &std::sync::Arc<Umem>,
    interface: u32,
    mode: Mode,
) -> p4shield_afxdp::Result<Socket> {
    ns.inside(|| Socket::bind(umem, &SocketConfig { interface, queue: 0, ring: 64, mode }))
}

#[test]
fn frames_go_out_and_come_back_on_shared_memory() {
    if !usable() {
        return;
    }
    let ns = NetNs::create("xsk").unwrap();
    ns.ip("link add a0 type veth peer name a1").unwrap();
    ns.ip("link add b0 type veth peer name b1").unwrap();
    for name in ["a0", "a1", "b0", "b1"] {
        ns.ip(&format!("link set {name} up")).unwrap();
    }
    let umem = Umem::new(UmemConfig { frames: 256, frame_size: 2048, huge_pages: false }).unwrap();
    let pool = FramePool::new(umem.clone());
    let (a, b) = (index(&ns, "a0"), index(&ns, "b0"));
    let first = bind(&ns, &umem, a, Mode::Auto).unwrap();
    assert!(!first.zero_copy(), "veth has copy mode only");
    let mut ports: Vec<Port> = vec![Port::new(first, &pool).unwrap()];
    ports.push(Port::new(bind(&ns, &umem, b, Mode::Auto).unwrap(), &pool).unwrap());
    // The first socket is closed and bound again, and joins the second one's registration.
    let gone = ports.remove(0);
    let id = gone.id();
    drop(gone.into_socket());
    pool.close_port(id);
    let again = p4shield_testbed::wait_until("the queue to be free again", 5, || {
        match bind(&ns, &umem, a, Mode::Copy) {
            Ok(s) => {
                ports.push(Port::new(s, &pool).unwrap());
                true
            }
            Err(e) => {
                assert_eq!(e.errno(), Some(libc::EBUSY), "{e}");
                false
            }
        }
    });
    again.unwrap();
    let before = ns.ip("-s link show a1").unwrap();
    for port in &mut ports {
        assert_eq!(port.refill(&pool, 64), 64);
        for n in 0..40usize {
            let mut frame = pool.take().unwrap();
            assert!(frame.set_packet(256, 60 + n));
            frame.bytes_mut().fill(0xff);
            port.send(&pool, frame).unwrap();
        }
        assert_eq!(pool.counts().transmit, 40);
        p4shield_testbed::wait_until("completion", 5, || {
            port.kick().unwrap();
            port.reap(&pool);
            port.sending() == 0
        })
        .unwrap();
        let sent = port.statistics().unwrap();
        assert_eq!((sent.tx_invalid, sent.rx_invalid), (0, 0));
    }
    assert_ne!(ns.ip("-s link show a1").unwrap(), before, "nothing arrived at the other end");
    let counts = pool.counts();
    assert_eq!((counts.free, counts.receive, counts.total()), (256 - 128, 128, 256));
    assert_eq!(pool.refused(), 0);
}

#[test]
fn what_cannot_be_bound_says_why() {
    if !usable() {
        return;
    }
    let ns = NetNs::create("xskno").unwrap();
    ns.ip("link add a0 type veth peer name a1").unwrap();
    let a = index(&ns, "a0");
    let umem = Umem::new(UmemConfig { frames: 256, frame_size: 2048, huge_pages: false }).unwrap();
    let error = bind(&ns, &umem, 9999, Mode::Auto).unwrap_err();
    assert!(error.to_string().contains("interface 9999, queue 0: bind"), "{error}");
    assert_eq!(error.errno(), Some(libc::ENODEV));
    assert!(bind(&ns, &umem, a, Mode::ZeroCopy).is_err(), "veth has no zero-copy");
    let beyond = SocketConfig { interface: a, queue: 7, ring: 64, mode: Mode::Copy };
    let error = ns.inside(|| Socket::bind(&umem, &beyond)).unwrap_err();
    assert_eq!(error.errno(), Some(libc::EINVAL), "{error}");
    let config = SocketConfig { interface: a, queue: 0, ring: 63, mode: Mode::Copy };
    assert!(ns.inside(|| Socket::bind(&umem, &config)).is_err(), "rings are powers of two");
}
