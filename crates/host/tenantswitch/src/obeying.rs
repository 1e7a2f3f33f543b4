//! Executes the host's orders, whatever switch a compartment has.

use crate::order::{Answer, Controllers, MAX_ORDER, Order, Ran, Run, Settings};
use crate::read_line::read_line;
use std::io::{self, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Longest time for the host to send an order once it has connected.
const PATIENCE: Duration = Duration::from_secs(10);

/// The pauses before announcements. Linux keeps an entry for one second after it has changed (locktime in
/// `Documentation/networking/ip-sysctl.rst`).
pub const ANNOUNCEMENTS: [Duration; 3] =
    [Duration::ZERO, Duration::from_millis(200), Duration::from_millis(1_100)];

/// A switch that executes the host's orders. Each error is a reason for people.
pub trait Obeying {
    /// Gives the switch these ports and rules instead of those before.
    ///
    /// # Errors
    /// The switch refuses them.
    fn configure(&self, settings: Settings) -> Result<(), String>;

    /// Has the switch listen for controllers, or no more.
    ///
    /// # Errors
    /// The switch refuses it, or does not listen.
    fn listen(&self, controllers: &Controllers) -> Result<(), String>;

    /// Announces the VMs' addresses, and again twice: a machine does not change an entry that it has just
    /// changed.
    ///
    /// # Errors
    /// No thread can be started.
    fn announce(&self) -> Result<(), String>;

    /// Ends the switch.
    ///
    /// # Errors
    /// It does not answer.
    fn stop(&self) -> Result<(), String>;

    /// Returns whether the switch answers.
    ///
    /// # Errors
    /// It does not, for this reason.
    fn health(&self) -> Result<(), String>;

    /// Returns how often a program was started again.
    fn restarts(&self) -> u64;

    /// Runs an operator's command beside the switch.
    ///
    /// # Errors
    /// The switch has no place for it.
    fn run(&self, run: &Run) -> Result<Ran, String>;
}

/// Executes an order, a line of JSON.
pub(crate) fn execute(order: &[u8], switch: &impl Obeying) -> Answer {
    let mut ran = None;
    let done = match serde_json::from_slice(order) {
        Ok(Order::Configure(settings)) => switch.configure(settings),
        Ok(Order::Controllers(controllers)) => switch.listen(&controllers),
        Ok(Order::Announce) => switch.announce(),
        Ok(Order::Stop) => switch.stop(),
        Ok(Order::Report) => switch.health(),
        Ok(Order::Run(run)) => switch.run(&run).map(|end| ran = Some(end)),
        Err(e) => Err(format!("the order cannot be parsed: {e}")),
    };
    Answer { error: done.err(), restarts: switch.restarts(), ran }
}

/// Answers the orders of a client until it closes the connection.
///
/// # Errors
/// The client fails, which costs no other one, or breaks the protocol.
pub fn obey(client: &UnixStream, switch: &impl Obeying) -> io::Result<()> {
    serve(client, |order| {
        let mut line = serde_json::to_vec(&execute(order, switch))?;
        line.push(b'\n');
        Ok(line)
    })
}

/// Answers each line of a client.
pub(crate) fn serve<E: From<io::Error>>(
    client: &UnixStream,
    mut answer: impl FnMut(&[u8]) -> Result<Vec<u8>, E>,
) -> Result<(), E> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(client);
    while let Some(order) = read_line(&mut lines, MAX_ORDER)? {
        let answer = answer(&order)?;
        (&*client).write_all(&answer)?;
    }
    Ok(())
}
