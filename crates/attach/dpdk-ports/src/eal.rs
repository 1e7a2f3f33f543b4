//! EAL, which runs once in a process.

use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

use crate::config::DpdkConfig;
use crate::error::Error;
use crate::library::Library;
use crate::options;

/// EAL's state in this process.
enum State {
    Stopped,
    /// With these options.
    Runs(Library, String),
    /// With these options, and this log. EAL cannot be asked again.
    Failed(String, String),
}

static STATE: Mutex<State> = Mutex::new(State::Stopped);

/// Loads the library and starts EAL, unless it runs.
///
/// # Errors
/// The library is missing, an option is wrong, or EAL runs with other options.
pub(crate) fn start(config: &DpdkConfig) -> Result<Library, Error> {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    match &*state {
        State::Runs(_, options)
            if config.options.as_ref().is_some_and(|o| options::joined(o) != *options) =>
        {
            Err(Error::Running { running: options.clone() })
        }
        State::Runs(library, _) => Ok(*library),
        State::Failed(options, log) => {
            let source = Errno::ALREADY.into();
            Err(Error::Init { options: options.clone(), log: log.clone(), source })
        }
        State::Stopped => start_first(config, &mut state),
    }
}

fn start_first(config: &DpdkConfig, state: &mut State) -> Result<Library, Error> {
    let words = options::words(config.options.as_deref(), &config.devices);
    let arguments = options::arguments(&words)?;
    let library = Library::load(config.library.as_deref())?;
    let options = words.join(" ");
    let taken = library.init(arguments).map_err(|source| {
        *state = State::Failed(options.clone(), library.log());
        Error::Init { options: options.clone(), log: library.log(), source }
    })?;
    if let Some(word) = words.get(taken) {
        *state = State::Failed(options, String::new());
        let why = "EAL does not take it: separate options by blanks, each with its value";
        return Err(Error::Option { option: word.clone(), why });
    }
    tracing::debug!(options, log = library.log(), "DPDK runs");
    *state = State::Runs(library, options);
    Ok(library)
}
