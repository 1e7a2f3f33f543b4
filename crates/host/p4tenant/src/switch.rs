//! Executes the host's orders, as a client of the switch's socket.

use crate::program::HOST_PORT;
use p4shield_p4switch::CONTROLLER;
use p4shield_p4switch::api::{self, ApiError};
use p4shield_tables::entry::{ActionText, MatchText, Named};
use p4shield_tables::write::{Entry, Write};
use p4shield_tenantswitch::{ANNOUNCEMENTS, Controllers, Obeying, Ran, Run, Settings};
use p4shield_text::chain;
use p4shield_topology::TableEntry;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Longest time for the switch to end.
const END: Duration = Duration::from_secs(10);

/// A P4 switch that runs.
pub(crate) struct P4Switch {
    socket: PathBuf,
    /// Set to end it.
    stop: Arc<AtomicBool>,
    made: Mutex<Made>,
}

/// Settings and entries that the switch has by orders.
#[derive(Default)]
struct Made {
    settings: Settings,
    /// Its entries, by table and keys.
    entries: BTreeMap<Place, TableEntry>,
}

/// A table, and the values of an entry's keys.
type Place = (String, Vec<String>);

impl P4Switch {
    pub(crate) fn new(socket: PathBuf, stop: Arc<AtomicBool>) -> Self {
        Self { socket, stop, made: Mutex::default() }
    }

    /// Has the switch these ports and no other. Numbers stay with interfaces.
    fn exchange_ports(&self, settings: &Settings) -> Result<(), ApiError> {
        let wanted: Vec<_> = settings.ports.iter().map(|port| (port.number, &*port.interface)).collect();
        let status = api::status(&self.socket)?;
        let ports = || status.ports.iter().filter(|port| port.interface != CONTROLLER);
        for port in ports().filter(|port| !wanted.contains(&(port.number, &*port.interface))) {
            api::delete_port(&self.socket, port.number)?;
        }
        for (number, interface) in wanted {
            if !ports().any(|port| (port.number, &*port.interface) == (number, interface)) {
                api::add_port(&self.socket, number, interface.to_owned())?;
            }
        }
        Ok(())
    }

    /// Deletes entries that are not wanted.
    fn delete_others(&self, made: &mut Made, wanted: &BTreeMap<Place, TableEntry>) -> Result<(), ApiError> {
        let others: Vec<_> =
            made.entries.keys().filter(|place| !wanted.contains_key(place)).cloned().collect();
        for place in others {
            let (table, keys) = place.clone();
            api::write(&self.socket, Write::Delete { table, matches: matching(keys) })?;
            made.entries.remove(&place);
        }
        Ok(())
    }

    /// Writes entries that the switch lacks or has with another action.
    fn set(&self, made: &mut Made, wanted: BTreeMap<Place, TableEntry>) -> Result<(), ApiError> {
        for (place, entry) in wanted {
            if made.entries.get(&place) != Some(&entry) {
                api::write(&self.socket, Write::Set(written(entry.clone())))?;
                made.entries.insert(place, entry);
            }
        }
        Ok(())
    }
}

impl Obeying for P4Switch {
    fn configure(&self, settings: Settings) -> Result<(), String> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let place = |entry: &TableEntry| ((entry.table.clone(), entry.keys.clone()), entry.clone());
        let wanted: BTreeMap<_, _> = settings.entries.iter().map(place).collect();
        let failed = |e: ApiError| chain(&e);
        // What is for a port goes before it, and comes after it.
        self.delete_others(&mut made, &wanted).map_err(failed)?;
        self.exchange_ports(&settings).map_err(failed)?;
        self.set(&mut made, wanted).map_err(failed)?;
        made.settings = settings;
        Ok(())
    }

    fn listen(&self, controllers: &Controllers) -> Result<(), String> {
        let listens = controllers.ovsdb || controllers.openflow;
        if listens { Err("a P4 switch has neither OVSDB nor OpenFlow".to_owned()) } else { Ok(()) }
    }

    fn announce(&self) -> Result<(), String> {
        let settings = self.made.lock().unwrap_or_else(PoisonError::into_inner).settings.clone();
        let socket = self.socket.clone();
        let announce = move || {
            for pause in ANNOUNCEMENTS {
                std::thread::sleep(pause);
                if let Err(error) = send(&socket, &settings) {
                    tracing::warn!(event = "announcement_failed", error = chain(&error), "no announcement");
                }
            }
        };
        let started = std::thread::Builder::new().spawn(announce);
        started.map(drop).map_err(|e| format!("cannot start a thread: {e}"))
    }

    /// The process ends with the switch, and this connection with it.
    fn stop(&self) -> Result<(), String> {
        self.stop.store(true, Ordering::Relaxed);
        std::thread::sleep(END);
        Err("the switch does not end".to_owned())
    }

    fn health(&self) -> Result<(), String> {
        api::status(&self.socket).map(drop).map_err(|e| chain(&e))
    }

    fn restarts(&self) -> u64 {
        // It is started again together with this process.
        0
    }

    fn run(&self, _run: &Run) -> Result<Ran, String> {
        Err("no command runs beside a P4 switch".to_owned())
    }
}

/// Has the switch send announcements to the outside.
fn send(socket: &Path, settings: &Settings) -> Result<(), ApiError> {
    for frame in settings.announcements.iter().filter_map(|text| hex::decode(text).ok()) {
        let field = |name: &str, value: u16| Named { name: Some(name.to_owned()), value: value.to_string() };
        api::packet_out(socket, vec![field("padding", 0), field("port", settings.outside)], &frame)?;
    }
    Ok(())
}

fn matching(keys: Vec<String>) -> MatchText {
    MatchText { keys: keys.into_iter().map(value).collect(), priority: None }
}

fn written(entry: TableEntry) -> Entry {
    let TableEntry { table, keys, action, parameters } = entry;
    let params = parameters.into_iter().map(value).collect();
    Entry { table, matches: matching(keys), action: ActionText { name: action, params } }
}

fn value(text: String) -> Named {
    Named { name: None, value: text }
}

/// The ports that a switch starts with: only the host's.
pub(crate) fn first_ports() -> Vec<(u16, String)> {
    vec![(HOST_PORT, CONTROLLER.to_owned())]
}
