//! A command of the operator's beside a switch in a virtual machine, where the host starts no process.

use super::tools::tool;
use crate::order::{MAX_PRINTED, Ran, Run};
use std::io::{ErrorKind, Read, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest time for a command. Meanwhile the switch takes no other orders.
const LONGEST: Duration = Duration::from_secs(30);
/// Longest time for what a command printed to be read after its end. Its children may have its outputs.
const REST: Duration = Duration::from_secs(1);
/// Time between two looks for its end.
const LOOK: Duration = Duration::from_millis(5);

/// Runs a command to its end.
///
/// # Errors
/// The input is none, or the command takes too long.
pub(super) fn run(run: &Run) -> Result<Ran, String> {
    let input = hex::decode(&run.input).map_err(|e| format!("the command's input: {e}"))?;
    let [program, arguments @ ..] = &run.words[..] else { return Err("there is no command".to_owned()) };
    let mut command = tool(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(e) => {
            // As shells have it.
            let code = if e.kind() == ErrorKind::NotFound { 127 } else { 126 };
            let errors = hex::encode(format!("cannot run {program} in the virtual machine: {e}\n"));
            return Ok(Ran { code, output: String::new(), errors });
        }
    };
    if let Some(mut pipe) = child.stdin.take() {
        // A command that does not read all of it may know why.
        let write = move || drop(pipe.write_all(&input));
        std::thread::Builder::new().spawn(write).map_err(|e| format!("cannot start a thread: {e}"))?;
    }
    let printed = [Printed::read(child.stdout.take())?, Printed::read(child.stderr.take())?];
    let status = wait(&mut child)?;
    let end = Instant::now() + REST;
    let [output, errors] = printed.map(|printed| hex::encode(printed.until(end)));
    Ok(Ran { code: code_of(status), output, errors })
}

/// Waits until the command ends, and kills it if it takes too long.
fn wait(child: &mut Child) -> Result<ExitStatus, String> {
    let end = Instant::now() + LONGEST;
    loop {
        match child.try_wait().map_err(|e| format!("cannot wait for the command: {e}"))? {
            Some(status) => return Ok(status),
            None if Instant::now() < end => std::thread::sleep(LOOK),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!(
                    "the command took more than {} s, the most in a virtual machine, and was ended",
                    LONGEST.as_secs()
                ));
            }
        }
    }
}

fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// An output of a command, which a thread reads.
struct Printed {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Printed {
    fn read(pipe: Option<impl Read + Send + 'static>) -> Result<Self, String> {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&bytes);
        let read = move || {
            let Some(mut pipe) = pipe else { return };
            let mut chunk = vec![0; 64 << 10];
            while let Ok(n @ 1..) = pipe.read(&mut chunk) {
                let mut bytes = into.lock().unwrap_or_else(PoisonError::into_inner);
                let left = MAX_PRINTED - bytes.len();
                bytes.extend_from_slice(&chunk[..n.min(left)]);
            }
        };
        let reader = std::thread::Builder::new().spawn(read);
        let reader = reader.map_err(|e| format!("cannot start a thread: {e}"))?;
        Ok(Self { bytes, reader })
    }

    /// Returns the bytes once all are read, at the latest at `end`.
    fn until(self, end: Instant) -> Vec<u8> {
        while !self.reader.is_finished() && Instant::now() < end {
            std::thread::sleep(LOOK);
        }
        std::mem::take(&mut self.bytes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(words: &[&str], input: &str) -> (u8, String, String) {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        let Ran { code, output, errors } = run(&Run { words, input: hex::encode(input) }).unwrap();
        let text = |digits: String| String::from_utf8(hex::decode(digits).unwrap()).unwrap();
        (code, text(output), text(errors))
    }

    #[test]
    fn commands_get_their_input_and_return_their_outputs() {
        assert_eq!(ran(&["cat"], "text"), (0, "text".to_owned(), String::new()));
        let (code, output, errors) = ran(&["sh", "-c", "echo out; echo err >&2; exit 7"], "");
        assert_eq!((code, &*output, &*errors), (7, "out\n", "err\n"));
        assert_eq!(ran(&["sh", "-c", "kill -9 $$"], "").0, 137);
        let (code, _, errors) = ran(&["no-such-program"], "");
        assert_eq!(code, 127);
        assert!(errors.contains("cannot run no-such-program"), "{errors}");
    }

    #[test]
    fn a_command_returns_no_more_than_its_limit() {
        let (code, output, _) = ran(&["head", "-c", "5000000", "/dev/zero"], "");
        assert_eq!((code, output.len()), (0, MAX_PRINTED));
        // A child that has its output does not delay the answer without end.
        assert_eq!(ran(&["sh", "-c", "sleep 20 & echo done"], "").1, "done\n");
        assert!(run(&Run { words: vec![], input: String::new() }).is_err());
        assert!(run(&Run { words: vec!["cat".to_owned()], input: "x".to_owned() }).is_err());
    }
}
