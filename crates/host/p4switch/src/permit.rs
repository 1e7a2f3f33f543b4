//! Permissions of an operator for a switch in a compartment: further interfaces.
//!
//! The switch answers `p4shield switch port add`, and it alone cannot be believed that an operator has asked
//! for that. So the command first tells the process outside, on a socket of its own beside that of the
//! switch.

use crate::line::MAX_INTERFACES;
use p4shield_socket::{AskError, Endpoint, Patience, ask};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The limits of an answer.
const PATIENCE: Patience = Patience { time: Duration::from_secs(10), bytes: 4096 };

/// A request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Permit {
    /// The interface that the switch may open from now on.
    interface: String,
}

/// Permits the switch of a socket to open an interface, if it is in a compartment.
///
/// # Errors
/// The process outside does not answer, or refuses.
pub(crate) fn permit(socket: &Path, interface: &str) -> Result<(), String> {
    let request = Permit { interface: interface.to_owned() };
    match ask::<Result<(), String>>(&beside(socket), &request, PATIENCE) {
        Ok(answer) => answer,
        // The switch is in no compartment.
        Err(AskError::Connect(_)) => Ok(()),
        Err(error) => Err(format!("the switch's process outside its compartment: {error}")),
    }
}

/// Returns the socket beside that of a switch.
pub(crate) fn beside(socket: &Path) -> PathBuf {
    let mut name = socket.as_os_str().to_owned();
    name.push(".ports");
    name.into()
}

/// The interfaces that a switch may open.
#[derive(Clone, Debug, Default)]
pub(crate) struct Permitted(Arc<Mutex<Vec<String>>>);

impl Permitted {
    pub(crate) fn new(interfaces: Vec<String>) -> Self {
        Self(Arc::new(Mutex::new(interfaces)))
    }

    pub(crate) fn has(&self, interface: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|name| name == interface)
    }

    fn add(&self, interface: String) -> Result<(), String> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.contains(&interface) {
            return Ok(());
        }
        if all.len() >= MAX_INTERFACES {
            return Err(format!(
                "the switch was permitted {MAX_INTERFACES} interfaces since its start; start it again"
            ));
        }
        all.push(interface);
        Ok(())
    }
}

impl Endpoint for Permitted {
    type Answer = Result<(), String>;
    const MAX_CLIENTS: usize = 4;
    const MAX_LINE: u64 = 4096;

    fn admits(&self, uid: u32, _gid: u32) -> bool {
        uid == 0 || uid == rustix::process::geteuid().as_raw()
    }

    fn answer(&self, line: &[u8], _uid: u32) -> Self::Answer {
        let Permit { interface } =
            serde_json::from_slice(line).map_err(|e| format!("the request cannot be parsed: {e}"))?;
        self.add(interface)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_permitted_by_name_and_in_bounded_number() {
        let permitted = Permitted::new(vec!["veth1".to_owned()]);
        let ask = |name: &str| permitted.answer(format!("{{\"interface\":\"{name}\"}}\n").as_bytes(), 0);
        assert!(permitted.has("veth1") && !permitted.has("veth2"));
        assert_eq!(ask("veth2"), Ok(()));
        assert!(permitted.has("veth2"));
        assert!(permitted.answer(b"{}\n", 0).is_err());
        for n in 0..MAX_INTERFACES - 2 {
            assert_eq!(ask(&format!("more{n}")), Ok(()));
        }
        assert!(ask("last").unwrap_err().contains("start it again"));
        assert_eq!(ask("veth1"), Ok(()), "what is permitted stays so");
    }
}
