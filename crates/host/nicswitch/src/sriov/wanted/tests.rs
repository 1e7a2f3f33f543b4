use super::*;

fn port(interface: &str, role: Role) -> Port {
    Port { interface: interface.into(), tenant: None, role, packet_rate: None }
}

const fn mac(last: u8) -> MacAddr6 {
    MacAddr6::new(2, 0, 0, 0, 0, last)
}

fn ports() -> Vec<Port> {
    vec![
        port("eth0", Role::Uplink),
        port("ia", Role::InOut { mac: mac(1), addresses: vec![] }),
        port("ga", Role::Gateway { vlan: 10, mac: mac(2) }),
        port("a1", Role::Vm { vlan: 10, mac: mac(3), addresses: vec![] }),
    ]
}

fn functions() -> BTreeMap<String, Function> {
    let rate = |number| NonZero::new(number).filter(|_| number == 2);
    let function = |number| Function { number, rate: rate(number) };
    [("ia", 0), ("ga", 1), ("a1", 2)].map(|(name, number)| (name.to_owned(), function(number))).into()
}

fn refusal(functions: &BTreeMap<String, Function>, vlan: u16, ports: &[Port]) -> String {
    of("eth0", functions, vlan, ports).unwrap_err().to_string()
}

#[test]
fn ports_get_the_papers_vlans() {
    let list = ports();
    let wanted = of("eth0", &functions(), 0, &list).unwrap();
    let settings = wanted.values().map(|to| (to.port, to.settings.vlan, to.settings.max_rate));
    assert_eq!(settings.collect::<Vec<_>>(), [("ia", 0, 0), ("ga", 10, 0), ("a1", 10, 2)]);
    let outside = of("eth0", &functions(), 99, &list).unwrap();
    assert_eq!((outside[&0].settings.vlan, outside[&1].settings.vlan), (99, 10));
    assert!(of("eth0", &functions(), 0, &[]).unwrap().is_empty());
}

#[test]
fn ports_that_the_card_cannot_serve_are_named() {
    let list = ports();
    assert!(refusal(&BTreeMap::new(), 0, &list).contains("ia has no virtual function of eth0"));
    let mut same = functions();
    same.get_mut("a1").unwrap().number = 1;
    assert!(refusal(&same, 0, &list).contains("ga and a1 have the same virtual function 1"));
    same.get_mut("a1").unwrap().number = u32::MAX;
    assert!(refusal(&same, 0, &list).contains("a1 has the virtual function 4294967295"));
    assert!(refusal(&functions(), 0, &list[1..]).contains("no uplink"));
    assert!(refusal(&functions(), 0, &[port("eth1", Role::Uplink)]).contains("eth1 is the uplink"));
    assert!(refusal(&functions(), 10, &list).contains("VLAN of the outside, 10"));
    assert!(refusal(&functions(), 4095, &list).contains("4095"));
}

#[test]
fn a_function_is_closed_while_it_changes() {
    let settings = Settings { mac: mac(3).into_array(), vlan: 10, max_rate: 5, link: FunctionLink::Auto };
    let new = VirtualFunction { trusted: Some(true), spoof_check: Some(false), ..VirtualFunction::default() };
    let down = FunctionSetting::Link(FunctionLink::Down);
    let all = [
        down,
        FunctionSetting::Trust(false),
        FunctionSetting::SpoofCheck(true),
        FunctionSetting::Mac([2, 0, 0, 0, 0, 3]),
        FunctionSetting::Vlan(10),
        FunctionSetting::MaxRate(5),
        FunctionSetting::Link(FunctionLink::Auto),
    ];
    assert_eq!(settings.changes(&new), all);
    let mut done = VirtualFunction { mac: settings.mac, vlan: 10, max_rate: 5, ..VirtualFunction::default() };
    (done.trusted, done.spoof_check) = (Some(false), Some(true));
    assert_eq!(settings.changes(&done), []);
    done.max_rate = 6;
    assert_eq!(settings.changes(&done), [FunctionSetting::MaxRate(5)], "a rate interrupts nothing");
    assert_eq!(Settings::CLOSED.changes(&VirtualFunction::default()), [down]);
}

#[test]
fn tags_of_another_kind_are_replaced() {
    let settings = Settings { vlan: 10, ..Settings::RESET };
    for now in [
        VirtualFunction { vlan: 10, has_service_tag: true, ..VirtualFunction::default() },
        VirtualFunction { vlan: 10, priority: 5, ..VirtualFunction::default() },
    ] {
        assert!(settings.changes(&now).contains(&FunctionSetting::Vlan(10)), "{now:?}");
    }
}

#[test]
fn checks_that_a_driver_hides_are_set_each_time() {
    let mut now = VirtualFunction::default();
    assert_eq!(Settings::unseen(&now), Some(FunctionSetting::SpoofCheck(true)));
    now.spoof_check = Some(true);
    assert_eq!(Settings::unseen(&now), None);
}
