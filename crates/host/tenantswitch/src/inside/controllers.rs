//! Where the switch listens for its controllers: at the loopback interface of its own network namespace, over
//! TLS. The host passes the connections on.

use super::enter::STATE;
use super::tools::{TIMEOUT, run, tool};
use crate::order::{Controllers, OPENFLOW, OVSDB};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Marks what the host gave, as an external ID. Managers and controllers of others stay.
const OURS: &str = "external_ids:p4shield=controllers";
/// The folder of keys and certificates, beside the database. It is there while the host gives end points.
const FILES: &str = "tls";
/// Longest time for the switch to listen.
const LISTENS: Duration = Duration::from_secs(5);

/// Has the switch listen as the host says, and no more for what it does not say.
///
/// # Errors
/// The tools' message, or that the switch does not listen.
pub(super) fn configure(controllers: &Controllers) -> Result<(), String> {
    let Controllers { bridge, ovsdb, openflow, tls } = controllers;
    let files = Path::new(STATE).join(FILES);
    if tls.is_none() && !files.exists() {
        return Ok(());
    }
    let mut vsctl = tool("ovs-vsctl");
    vsctl.arg(TIMEOUT);
    if let Some(tls) = tls {
        let key = file("private-key.pem", &tls.private_key)?;
        let certificate = file("certificate.pem", &tls.certificate)?;
        let ca = file("ca-certificate.pem", &tls.ca_certificate)?;
        if found("SSL", OURS)?.is_empty() {
            vsctl.args(["--", "--id=@tls", "create", "SSL", OURS]);
            vsctl.arg(format!("private_key={key:?}")).arg(format!("certificate={certificate:?}"));
            vsctl.arg(format!("ca_cert={ca:?}"));
            vsctl.args(["--", "set", "Open_vSwitch", ".", "ssl=@tls"]);
        }
    }
    let manager = End { table: "Manager", at: ["Open_vSwitch", ".", "manager_options"], port: OVSDB };
    manager.set(*ovsdb, &[], &mut vsctl)?;
    // A controller is no neighbour in the network that the bridge carries.
    let controller = End { table: "Controller", at: ["Bridge", bridge, "controller"], port: OPENFLOW };
    controller.set(*openflow, &["connection_mode=out-of-band"], &mut vsctl)?;
    // Open vSwitch tries addresses again that it could not open if its configuration changes.
    vsctl.args(["--", "set", "Open_vSwitch", ".", &super::ovs::another_order()]);
    run(&mut vsctl)?;
    if tls.is_none() {
        let removed = fs::remove_dir_all(&files);
        return removed.map_err(|e| format!("cannot remove {}: {e}", files.display()));
    }
    [(*ovsdb, OVSDB), (*openflow, OPENFLOW)]
        .into_iter()
        .filter(|(wanted, _)| *wanted)
        .try_for_each(|(_, port)| listens(port))
}

/// An end point in the database.
struct End<'a> {
    table: &'a str,
    /// Table, record and column that refer to it.
    at: [&'a str; 3],
    port: u16,
}

impl End<'_> {
    /// Adds what makes the end point exist, or not exist, to a transaction.
    fn set(&self, wanted: bool, values: &[&str], vsctl: &mut Command) -> Result<(), String> {
        let Self { table, at, port } = self;
        let target = format!("target={:?}", format!("pssl:{port}:{}", Ipv4Addr::LOCALHOST));
        if wanted {
            // Two rows with one target are refused, and a controller may have made it.
            if found(table, &target)?.is_empty() {
                let id = format!("@{}", table.to_lowercase());
                vsctl.args(["--", &format!("--id={id}"), "create", table, &target, OURS]).args(values);
                vsctl.args(["--", "add"]).args(at).arg(id);
            }
            return Ok(());
        }
        for row in found(table, OURS)? {
            vsctl.args(["--", "remove"]).args(at).arg(row);
        }
        Ok(())
    }
}

/// Returns the rows of a table that a condition holds for.
fn found(table: &str, condition: &str) -> Result<Vec<String>, String> {
    let find = [TIMEOUT, "--bare", "--columns=_uuid", "find", table, condition];
    let rows = run(tool("ovs-vsctl").args(find))?;
    Ok(rows.split_whitespace().map(ToOwned::to_owned).collect())
}

/// Writes a file for the switch alone, all of it or nothing. Open vSwitch reads it again when it changes.
fn file(name: &str, text: &str) -> Result<PathBuf, String> {
    let folder = Path::new(STATE).join(FILES);
    let (path, next) = (folder.join(name), folder.join(format!("{name}.next")));
    let write = || -> std::io::Result<()> {
        fs::create_dir_all(&folder)?;
        let mut options = OpenOptions::new();
        let mut to = options.create(true).write(true).truncate(true).mode(0o600).open(&next)?;
        to.write_all(text.as_bytes())?;
        fs::rename(&next, &path)
    };
    write().map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    Ok(path)
}

/// Waits until the switch listens.
fn listens(port: u16) -> Result<(), String> {
    let end = Instant::now() + LISTENS;
    while let Err(e) = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))) {
        if Instant::now() > end {
            return Err(format!("Open vSwitch does not listen for controllers at port {port}: {e}"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
