//! Open vSwitch, by its own programs and tools.

use super::dpdk::{self, Datapath};
use super::enter::{RUN, STATE};
use super::tools::{TIMEOUT, feed, run, tool};
use crate::order::Settings;
use serde_json::json;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where the switch answers `ovs-appctl`, whatever its process number is.
const CONTROL: &str = "/run/openvswitch/ovs-vswitchd.ctl";
/// Marks the ports that the host gave, as an external ID.
const OURS: &str = "external_ids:p4shield=port";
/// Longest time for a program that was started to listen.
const START: Duration = Duration::from_secs(20);
/// Frames that the tool is given at a time, as its arguments.
const AT_A_TIME: usize = 256;
/// Where the distribution has the schema of the database.
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Makes the database, if this is the compartment's first start, or brings one of an earlier release up to
/// date.
///
/// # Errors
/// The tool's message.
pub(super) fn create_database() -> Result<(), String> {
    let database = format!("{STATE}/conf.db");
    let tool = || tool("ovsdb-tool");
    if !Path::new(&database).exists() {
        return run(tool().args(["create", &database, SCHEMA])).map(drop);
    }
    let needs = run(tool().args(["needs-conversion", &database, SCHEMA]))?;
    if needs.trim() == "yes" {
        run(tool().args(["convert", &database, SCHEMA]))?;
    }
    Ok(())
}

/// Starts the database's server, and waits until it answers.
///
/// # Errors
/// It does not start, or does not answer.
pub(super) fn start_database() -> Result<Child, String> {
    let socket = format!("{RUN}/db.sock");
    let mut command = tool("ovsdb-server");
    command.arg(format!("{STATE}/conf.db")).arg(format!("--remote=punix:{socket}")).args(QUIET);
    // What ovs-ctl of Open vSwitch gives it: managers, and their TLS, are in the database.
    command.arg("--remote=db:Open_vSwitch,Open_vSwitch,manager_options");
    command.args(
        ["private_key", "certificate", "ca_cert"]
            .map(|column| format!("--{}=db:Open_vSwitch,SSL,{column}", column.replace('_', "-"))),
    );
    let child = start(command)?;
    listens(&socket)?;
    run(tool("ovs-vsctl").args([TIMEOUT, "--no-wait", "init"]))?;
    Ok(child)
}

/// Starts the switch.
///
/// # Errors
/// It does not start.
pub(super) fn start_switch(datapath: &Datapath) -> Result<Child, String> {
    let mut command = tool(datapath.program());
    command.arg(format!("unix:{RUN}/db.sock")).arg(format!("--unixctl={CONTROL}")).args(QUIET);
    start(command)
}

/// Warnings go to standard error, which is the compartment's log; nothing else is logged.
const QUIET: [&str; 3] = ["-vconsole:warn", "-vsyslog:off", "-vfile:off"];

/// Returns whether the switch answers.
///
/// # Errors
/// The tool's message.
pub(super) fn answers() -> Result<(), String> {
    run(tool("ovs-appctl").args([TIMEOUT, "--target", CONTROL, "version"])).map(drop)
}

/// Ends the switch.
///
/// # Errors
/// The tool's message.
pub(super) fn stop() -> Result<(), String> {
    run(tool("ovs-appctl").args([TIMEOUT, "--target", CONTROL, "exit"])).map(drop)
}

/// Gives the bridge these ports and rules instead of those before.
///
/// # Errors
/// The tools' message, or that of a port that the switch could not open.
pub(super) fn configure(settings: &Settings) -> Result<(), String> {
    let bridge = &*settings.bridge;
    let mut vsctl = tool("ovs-vsctl");
    vsctl.arg(TIMEOUT).args(["--may-exist", "add-br", bridge]);
    // Without rules nothing passes; and a controller is no neighbour in the network that the bridge carries.
    let secure = "fail_mode=secure";
    vsctl.args(["--", "set", "bridge", bridge, "datapath_type=netdev", secure]);
    vsctl.arg("other_config:disable-in-band=true");
    let given = |name: &str| settings.ports.iter().any(|p| p.interface == name);
    for stale in ours()?.lines().filter(|name| !given(name)) {
        vsctl.args(["--", "--if-exists", "del-port", bridge, stale]);
    }
    for port in &settings.ports {
        vsctl.args(["--", "--may-exist", "add-port", bridge, &port.interface]);
        let number = format!("ofport_request={}", port.number);
        vsctl.args(["--", "set", "interface", &port.interface, &number, OURS]);
        if settings.dpdk {
            vsctl.args(dpdk::port(&port.interface, port.number));
        }
        // One that a controller gave stays. A string in JSON is one of the database.
        vsctl.args(port.iface_id.as_ref().map(|id| format!("external_ids:iface-id={}", json!(id))));
    }
    // The tool waits for the switch only if it changes something.
    vsctl.args(["--", "set", "Open_vSwitch", ".", &another_order()]);
    if settings.dpdk {
        dpdk::wait()?;
        vsctl.args(dpdk::pauses(settings.is_core_shared));
    }
    run(&mut vsctl)?;
    let failed = run(tool("ovs-vsctl").args([TIMEOUT, "--bare", "--columns=name,error", "find"]).args([
        "interface",
        OURS,
        "error!=[]",
    ]))?;
    if !failed.trim().is_empty() {
        return Err(format!("the switch cannot open a port: {}", failed.trim()));
    }
    // A switch that was just started makes the bridge after it has read the database.
    listens(&format!("{RUN}/{bridge}.mgmt"))?;
    // All rules, or none of them.
    feed(tool("ovs-ofctl").args([TIMEOUT, "--bundle", "add-flows", bridge, "-"]), &settings.rules)
}

/// Returns a value of the database that each order changes.
pub(super) fn another_order() -> String {
    let order = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("external_ids:p4shield-order={order}")
}

/// Sends the announcements.
///
/// # Errors
/// The tool's message.
pub(super) fn announce(settings: &Settings) -> Result<(), String> {
    let Settings { bridge, outside, announcements, .. } = settings;
    for some in announcements.chunks(AT_A_TIME) {
        let from = ["packet-out", bridge, "none"];
        run(tool("ovs-ofctl").arg(TIMEOUT).args(from).arg(format!("output:{outside}")).args(some))?;
    }
    Ok(())
}

/// Waits until a program listens on its socket. A file may be there of one that has ended.
fn listens(socket: &str) -> Result<(), String> {
    let end = Instant::now() + START;
    while let Err(e) = UnixStream::connect(socket) {
        if Instant::now() > end {
            return Err(format!("Open vSwitch does not listen on {socket}: {e}"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Returns the ports that the host gave before, one a line.
fn ours() -> Result<String, String> {
    run(tool("ovs-vsctl").args([TIMEOUT, "--bare", "--columns=name", "find", "interface", OURS]))
}

fn start(mut command: Command) -> Result<Child, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdout(Stdio::null()).spawn().map_err(|e| format!("cannot start {name}: {e}"))
}
