//! UNIX sockets that answer lines of JSON: each request and each answer is one line.
//!
//! | module | contents |
//! |---|---|
//! | `server` | accepts clients by the user of their process, and answers each in a thread of its own |
//! | `client` | asks |
//! | `lock` | one server at a time for a socket |
//! | `trusted_folder` | folders that only root and this user can change |
//!
//! Lines are bounded, and the server closes the connection of a client that stays silent.

#![forbid(unsafe_code)]

mod client;
mod lock;
mod server;
mod trusted_folder;

pub use client::{AskError, Client, Patience, ask};
pub use lock::{SocketLock, folder_of};
pub use server::{Endpoint, Entrance, Listener, Server, Visitor, listen, listen_for};
pub use trusted_folder::{FolderError, check, open_trusted};

use std::path::PathBuf;

/// The reason why a socket cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Others could change the folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// Another process serves the socket.
    #[error("another process serves {}; stop it, or choose another socket", .0.display())]
    Running(PathBuf),
    /// The socket cannot be opened.
    #[error("cannot listen on {}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}
