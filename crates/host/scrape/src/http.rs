//! Metrics over HTTP, on a loopback address: just enough of HTTP/1.1 for a scraper.

use crate::exposition::CONTENT_TYPE;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest request in bytes.
const MAX_REQUEST: usize = 8 << 10;
/// Pause after a failed `accept`.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The answer to requests for anything else.
const ELSEWHERE: &str = "metrics are at /metrics\n";
/// Longest time for a client's request; clients are served one after the other.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// The thread that serves metrics. Ends when dropped.
#[derive(Debug)]
pub struct Server {
    configured: SocketAddr,
    /// The thread's own socket.
    socket: TcpListener,
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves what `render` returns.
    ///
    /// # Errors
    /// The address cannot be bound, or the system has no thread left.
    pub fn start(configured: SocketAddr, render: impl Fn() -> String + Send + 'static) -> io::Result<Self> {
        Self::on(TcpListener::bind(configured)?, configured, render)
    }

    /// Serves what `render` returns at an address that was bound already.
    ///
    /// # Errors
    /// The system has no descriptor or thread left.
    pub fn on(
        listener: TcpListener,
        configured: SocketAddr,
        render: impl Fn() -> String + Send + 'static,
    ) -> io::Result<Self> {
        let socket = listener.try_clone()?;
        let ending = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ending);
        let run = move || {
            for stream in listener.incoming() {
                if end.load(Ordering::Acquire) {
                    break;
                }
                // The error of one client concerns no other.
                match stream {
                    Ok(stream) => drop(serve(stream, &render)),
                    Err(_) => std::thread::sleep(ACCEPT_PAUSE),
                }
            }
        };
        let thread = std::thread::Builder::new().name("metrics".into()).spawn(run)?;
        Ok(Self { configured, socket, ending, thread: Some(thread) })
    }

    /// Returns the configured address; port 0 stands for any.
    #[must_use]
    pub const fn configured(&self) -> SocketAddr {
        self.configured
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Release);
        // Wakes the thread, which then checks `ending`.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(mut stream: TcpStream, body: impl FnOnce() -> String) -> io::Result<()> {
    stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
    let end = Instant::now() + REQUEST_TIMEOUT;
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.windows(4).any(|w| w == b"\r\n\r\n") {
        // The timeout is for the whole request: a client that sends it byte by byte must not delay other
        // clients.
        let remaining = end.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(remaining))?;
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            n if request.len() + n > MAX_REQUEST => {
                return respond(&mut stream, "431 Request Header Fields Too Large", "");
            }
            n => request.extend_from_slice(&buffer[..n]),
        }
    }
    match request.split(|byte| byte.is_ascii_whitespace()).take(2).collect::<Vec<_>>()[..] {
        [b"GET", b"/metrics"] => respond(&mut stream, "200 OK", &body()),
        [b"HEAD", b"/metrics"] => stream.write_all(head("200 OK", &body()).as_bytes()),
        [b"HEAD", _] => stream.write_all(head("404 Not Found", ELSEWHERE).as_bytes()),
        _ => respond(&mut stream, "404 Not Found", ELSEWHERE),
    }
}

/// Returns status line and header fields of the answer with this body.
fn head(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    )
}

fn respond(stream: &mut TcpStream, status: &str, body: &str) -> io::Result<()> {
    stream.write_all([head(status, body).as_str(), body].concat().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response_to(request: &[u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(request).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let _ = serve(listener.accept().unwrap().0, || "a 1\n".to_owned());
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    #[test]
    fn only_get_metrics_is_answered() {
        assert!(response_to(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").ends_with("\r\n\r\na 1\n"));
        assert!(response_to(b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert_eq!(response_to(b"GET /metrics"), "");
        assert!(!response_to(&[b'a'; 20_000]).contains("200"));
    }

    #[test]
    fn head_is_answered_without_a_body() {
        let get = response_to(b"GET /metrics HTTP/1.1\r\n\r\n");
        let head = response_to(b"HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert_eq!(head, get.strip_suffix("a 1\n").unwrap());
        let elsewhere = response_to(b"HEAD / HTTP/1.1\r\n\r\n");
        assert!(elsewhere.starts_with("HTTP/1.1 404") && elsewhere.ends_with("\r\n\r\n"), "{elsewhere}");
    }

    #[test]
    fn a_slow_client_times_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let slow = std::thread::spawn(move || {
            while client.write_all(b"a").is_ok() {
                std::thread::sleep(ACCEPT_PAUSE);
            }
        });
        assert!(serve(listener.accept().unwrap().0, || unreachable!("the request never ended")).is_err());
        slow.join().unwrap();
    }
}
