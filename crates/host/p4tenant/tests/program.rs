//! The program of tenants' switches, with packets.

use p4shield_p4::{NoIncludes, Options, compile};
use p4shield_stf::device::{Device, Engine};
use p4shield_stf::{parse, runner};

#[test]
fn the_program_does_what_the_script_says() {
    let program = include_str!("../src/tenant_switch.p4");
    let compiled = compile("tenant_switch.p4", program, &NoIncludes, &Options::default()).unwrap();
    let script = parse::parse(include_str!("tenant_switch.stf")).unwrap();
    let report = runner::run(&script, &mut Device::load(&compiled, &[], Engine::Both).unwrap());
    assert_eq!(report.failures, []);
    assert_eq!((report.packets, report.expected), (29, 13));
}
