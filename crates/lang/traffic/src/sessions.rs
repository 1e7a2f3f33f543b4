//! Clone sessions: where the clones of a packet go.

use std::collections::BTreeMap;

/// Highest number of a session, as in the reference switch.
pub const MAX_SESSION: u16 = 32_767;

/// Where the clones of one session go: to a port, to each member of a multicast group, or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// The port of one clone.
    pub port: Option<u16>,
    /// The group, with one clone for each member.
    pub group: Option<u16>,
}

/// The reason why a session is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The number is too large.
    #[error("clone session {0}: the number of a session is 0 to {MAX_SESSION}")]
    TooLarge(u16),
    /// The session has no target.
    #[error("clone session {0} has neither a port nor a multicast group: name one, or delete the session")]
    Nowhere(u16),
}

/// The clone sessions of a switch, by number.
#[derive(Clone, Debug, Default)]
pub struct Sessions(BTreeMap<u16, Session>);

impl Sessions {
    /// Creates or replaces a session.
    ///
    /// # Errors
    /// [`SessionError`]; the session stays as it was.
    pub fn set(&mut self, number: u16, session: Session) -> Result<(), SessionError> {
        if number > MAX_SESSION {
            return Err(SessionError::TooLarge(number));
        }
        if session == Session::default() {
            return Err(SessionError::Nowhere(number));
        }
        self.0.insert(number, session);
        Ok(())
    }

    /// Deletes a session. Returns false if there was none.
    pub fn delete(&mut self, number: u16) -> bool {
        self.0.remove(&number).is_some()
    }

    /// Returns a session, if it exists.
    #[must_use]
    pub fn get(&self, number: u32) -> Option<Session> {
        u16::try_from(number).ok().and_then(|n| self.0.get(&n)).copied()
    }

    /// Returns the sessions, by number.
    pub fn iter(&self) -> impl Iterator<Item = (u16, Session)> {
        self.0.iter().map(|(number, session)| (*number, *session))
    }
}
