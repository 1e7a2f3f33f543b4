use super::*;

const LOCAL: [u8; 4] = [192, 0, 2, 7];

/// A frame in VXLAN to [`LOCAL`], in network 7. No checksum is set: none is read.
fn wrapped() -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([8, 0, 0x45, 0, 0, 110, 0, 1, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1]);
    frame.extend(LOCAL);
    frame.extend([0x80, 1, 18, 181, 0, 90, 0, 0, 8, 0, 0, 0, 0, 0, 7, 0]);
    frame.resize(50 + 60, 7);
    frame
}

fn any(kind: TunnelKind) -> Tunnel {
    Tunnel { kind, address: None, port: kind.default_port() }
}

fn at(address: [u8; 4]) -> Tunnel {
    Tunnel { address: Some(address.into()), ..any(TunnelKind::Vxlan) }
}

/// A host with another address than [`LOCAL`].
fn host(tunnels: &[Tunnel]) -> Tunnels {
    host_at(tunnels, Some([192, 0, 2, 99]))
}

/// A host with this address; none if it is not known.
fn host_at(tunnels: &[Tunnel], address: Option<[u8; 4]>) -> Tunnels {
    let local = address.map(|address| [IpAddr::from(address)].into());
    Tunnels::new(tunnels, local, &mediator::Config::default())
}

/// A tenant with VMs of these addresses and networks.
fn tenants(vms: &[(IpAddr, Option<u32>)]) -> mediator::Config {
    let vm = |(address, network): &(IpAddr, Option<u32>)| mediator::VmConfig {
        network: *network,
        ..mediator::VmConfig::new("vm", vec![*address])
    };
    mediator::Config { tenants: vec![mediator::TenantConfig::new("a", vms.iter().map(vm).collect())] }
}

#[test]
fn only_packets_for_an_end_point_are_inspected() {
    let frame = wrapped();
    let both = host(&[any(TunnelKind::Geneve), any(TunnelKind::Vxlan)]);
    assert_eq!(Tunnels::default().inspect(&frame, Origin::Shared), Inside::Nothing);
    assert_eq!(host(&[any(TunnelKind::Geneve)]).inspect(&frame, Origin::Shared), Inside::Nothing, "the port");
    assert_eq!(host(&[at([192, 0, 2, 8])]).inspect(&frame, Origin::Shared), Inside::Nothing, "the address");
    let here = host(&[at(LOCAL)]);
    assert_eq!(here.inspect(&frame, Origin::Shared), Inside::Frame(50));
    assert_eq!(here.inspect(&frame, Origin::Vm), Inside::Unknown, "no VM speaks with the switch's endpoint");
    assert_eq!(both.inspect(&frame, Origin::Vm), Inside::Nothing, "a VM's own tunnel to elsewhere");
    let vms = |tunnel| Tunnels::new(&[tunnel], None, &tenants(&[(IpAddr::from(LOCAL), None)]));
    assert_eq!(vms(any(TunnelKind::Vxlan)).inspect(&frame, Origin::Shared), Inside::Nothing, "to a VM");
    assert_eq!(vms(at(LOCAL)).inspect(&frame, Origin::Shared), Inside::Frame(50), "the switch's own address");
    let mut tcp = frame;
    tcp[23] = 6;
    assert_eq!(both.inspect(&tcp, Origin::Shared), Inside::Nothing);
}

#[test]
fn tunnels_without_an_address_end_at_every_host_address() {
    let frame = wrapped();
    let unspecified = at([0; 4]);
    for (tunnel, address, shared, vm) in [
        (unspecified, Some(LOCAL), Inside::Frame(50), Inside::Unknown),
        (unspecified, Some([192, 0, 2, 8]), Inside::Nothing, Inside::Nothing),
        // Nothing is let past while the host's addresses are not known.
        (unspecified, None, Inside::Frame(50), Inside::Unknown),
        (any(TunnelKind::Vxlan), Some(LOCAL), Inside::Frame(50), Inside::Unknown),
        (any(TunnelKind::Vxlan), Some([192, 0, 2, 8]), Inside::Frame(50), Inside::Nothing),
        (any(TunnelKind::Vxlan), None, Inside::Frame(50), Inside::Unknown),
    ] {
        let host = host_at(&[tunnel], address);
        assert_eq!(host.inspect(&frame, Origin::Shared), shared, "{tunnel:?} {address:?}");
        assert_eq!(host.inspect(&frame, Origin::Vm), vm, "from a VM: {tunnel:?} {address:?}");
        assert_eq!(host.allows(&frame, Origin::Vm), vm == Inside::Nothing, "made by a VM's program");
        assert_eq!(host.allows(&frame, Origin::Shared), shared == Inside::Nothing, "made by a program");
    }
}

#[test]
fn a_tunnel_inside_a_tunnel_is_unknown() {
    let nested = [&wrapped()[..50], &wrapped()].concat();
    assert_eq!(host(&[at(LOCAL)]).inspect(&nested, Origin::Shared), Inside::Unknown);
    let elsewhere = {
        let mut nested = nested;
        nested[50 + 33] = 8;
        nested
    };
    assert_eq!(host(&[at(LOCAL)]).inspect(&elsewhere, Origin::Shared), Inside::Frame(50));
}

#[test]
fn uncertain_insides_are_unknown() {
    let both = host(&[any(TunnelKind::Geneve), any(TunnelKind::Vxlan)]);
    let changed = |at: usize, value: u8, len: usize| {
        let mut frame = wrapped();
        frame[at] = value;
        both.inspect(&frame[..len], Origin::Shared)
    };
    assert_eq!(changed(42, 0, 110), Inside::Unknown, "no network's number");
    assert_eq!(changed(20, 0x20, 110), Inside::Unknown, "a first fragment");
    assert_eq!(changed(20, 0x20, 36), Inside::Unknown, "a first fragment without a port");
    assert_eq!(changed(21, 1, 110), Inside::Nothing, "a later fragment");
    assert_eq!(changed(0, 2, 60), Inside::Unknown, "no whole Ethernet header inside");
}

#[test]
fn the_network_of_what_is_inside_distinguishes_vms() {
    let (vm, end_points) = (IpAddr::from([10, 0, 0, 1]), [any(TunnelKind::Vxlan)]);
    assert!(!Tunnels::new(&end_points, None, &tenants(&[(vm, None)])).distinguish_networks());
    let network = |vni| {
        let tunnels = Tunnels::new(&end_points, None, &tenants(&[(vm, Some(vni))]));
        assert!(tunnels.distinguish_networks());
        tunnels.network(&wrapped()[..50])
    };
    assert_eq!(network(7), Network::Number(7));
    assert_eq!(network(8), Network::Foreign, "no VM is in it");
}
