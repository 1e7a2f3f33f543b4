//! Tenants' sockets: each sees its own VMs and replaces its own programs, and nothing else.
//!
//! A tenant names no file of the host: it sends what its objects contain. Requests are limited in number, and
//! those that take the time of the tenant's supervisor more so; a P4 VM verifies programs with its own
//! tenant's share of the machine. Other tenants, and what belongs to the operator, do not exist here.

use super::operator::{self, bytes};
use super::{Answer, Command, MAX_LINE, ObjectBytes};
use crate::config::TenantSocket;
use crate::lifecycle::state::{DaemonState, LoadRequest, Target};
use p4shield_attach::Allowed;
use p4shield_socket::{Endpoint, Server, listen_for};
use p4shield_tables::view::Inspection;
use p4shield_text::printable;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Requests of a tenant: one each interval on average, so many at once.
const REQUESTS: Limit = Limit { interval: Duration::from_millis(20), burst: 100 };
/// Verifications of a tenant.
const VERIFICATIONS: Limit = Limit { interval: Duration::from_secs(1), burst: 10 };
/// Most bytes of the name of an object.
const MAX_NAME: usize = 255;

/// Opens the socket of a tenant. Dropping the server closes it.
///
/// # Errors
/// The socket cannot be opened.
pub(crate) fn serve_tenant(
    tenant: &str,
    socket: &TenantSocket,
    state: &Arc<DaemonState>,
) -> std::io::Result<Server> {
    let allowed = Allowed { uids: socket.uids.clone(), gids: socket.gids.clone() };
    let listener = listen_for(&socket.path, &allowed)?;
    let endpoint = TenantEndpoint {
        tenant: tenant.to_owned(),
        allowed,
        state: Arc::clone(state),
        requests: Mutex::new(REQUESTS.full()),
        verifications: Mutex::new(VERIFICATIONS.full()),
    };
    Server::start(listener, endpoint)
}

/// A tenant's endpoint.
struct TenantEndpoint {
    tenant: String,
    allowed: Allowed,
    state: Arc<DaemonState>,
    requests: Mutex<Bucket>,
    verifications: Mutex<Bucket>,
}

impl Endpoint for TenantEndpoint {
    type Answer = Answer;
    const MAX_CLIENTS: usize = 4;
    const MAX_LINE: u64 = MAX_LINE;

    fn admits(&self, uid: u32, gid: u32) -> bool {
        self.allowed.admits(uid, gid)
    }

    fn answer(&self, line: &[u8], uid: u32) -> Answer {
        self.execute(line, uid).unwrap_or_else(Answer::Failed)
    }
}

impl TenantEndpoint {
    fn execute(&self, line: &[u8], uid: u32) -> Result<Answer, String> {
        take(&self.requests, "requests")?;
        if line.len() as u64 >= MAX_LINE {
            return Err(format!("a request has at most {MAX_LINE} bytes"));
        }
        let command = serde_json::from_slice(line).map_err(|e| format!("invalid request: {e}"))?;
        let state = &self.state;
        Ok(match command {
            Command::Status => Answer::Status(Box::new(state.status().of_tenant(&self.tenant))),
            Command::Load { tenant, vm, direction, objects, contents, temporary } => {
                let target = self.target(&tenant, &vm, &direction)?;
                let objects = names(&objects, &contents)?;
                take(&self.verifications, "verifications")?;
                let request = LoadRequest { objects, contents: bytes(contents), temporary, uid };
                operator::load(state, &target, request)
            }
            Command::Check { tenant, vm, direction, contents } => {
                let target = self.target(&tenant, &vm, &direction)?;
                take(&self.verifications, "verifications")?;
                operator::check(state, &target, contents)
            }
            Command::Revert { tenant, vm, direction } => {
                let target = self.target(&tenant, &vm, &direction)?;
                take(&self.verifications, "verifications")?;
                operator::revert(state, &target, uid)
            }
            Command::History { tenant, vm, direction } => {
                operator::history(state, &self.target(&tenant, &vm, &direction)?)
            }
            Command::Inspect(inspection) => {
                let tenant = inspection.tenant.clone().unwrap_or_else(|| self.tenant.clone());
                self.check_name(&tenant)?;
                operator::inspect(state, &Inspection { tenant: Some(tenant), ..inspection })
            }
            Command::Metrics
            | Command::Reload { .. }
            | Command::Preview { .. }
            | Command::Rotate(_)
            | Command::Upgrade { .. } => {
                return Err(
                    "this request is the operator's; a tenant's socket does not execute it".to_owned()
                );
            }
        })
    }

    fn target<'a>(&self, tenant: &'a str, vm: &'a str, direction: &'a str) -> Result<Target<'a>, String> {
        self.check_name(tenant)?;
        Ok(Target { tenant, vm, direction })
    }

    /// Refuses other tenants with the error for those that do not exist.
    fn check_name(&self, tenant: &str) -> Result<(), String> {
        if tenant == self.tenant { Ok(()) } else { Err(DaemonState::no_tenant(tenant)) }
    }
}

/// Returns the names of the objects for the history: the daemon opens no file that a tenant names.
fn names(objects: &[PathBuf], contents: &[ObjectBytes]) -> Result<Vec<PathBuf>, String> {
    if objects.len() != contents.len() {
        return Err("a tenant's request contains its objects; update p4shield on the tenant's machine".into());
    }
    let name = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name: String = printable(&name).chars().take(MAX_NAME / 4).collect();
        PathBuf::from(if name.is_empty() { "object" } else { &name })
    };
    Ok(objects.iter().map(name).collect())
}

/// A limit of events.
#[derive(Clone, Copy)]
struct Limit {
    /// Average time between two.
    interval: Duration,
    /// Most at once.
    burst: u32,
}

/// The events that a limit still allows.
struct Bucket {
    limit: Limit,
    left: u32,
    since: Instant,
}

impl Limit {
    fn full(self) -> Bucket {
        Bucket { limit: self, left: self.burst, since: Instant::now() }
    }
}

impl Bucket {
    /// Takes an event, or returns the time until the next.
    fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let interval = self.limit.interval;
        let passed = now.saturating_duration_since(self.since).as_nanos() / interval.as_nanos();
        let more = u32::try_from(passed).unwrap_or(u32::MAX);
        if self.left.saturating_add(more) >= self.limit.burst {
            (self.left, self.since) = (self.limit.burst, now);
        } else {
            self.left += more;
            self.since += interval * more;
        }
        if self.left == 0 {
            return Err(interval.saturating_sub(now.saturating_duration_since(self.since)));
        }
        self.left -= 1;
        Ok(())
    }
}

fn take(bucket: &Mutex<Bucket>, what: &str) -> Result<(), String> {
    let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
    let Limit { interval, burst } = bucket.limit;
    bucket.take(Instant::now()).map_err(|wait| {
        format!("too many {what}: at most {burst} at once and one in {interval:?}; try again in {wait:?}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_bucket_fills_with_time_up_to_its_burst() {
        let mut bucket = Limit { interval: Duration::from_millis(10), burst: 3 }.full();
        let start = bucket.since;
        let at = |ms: u64| start + Duration::from_millis(ms);
        for _ in 0..3 {
            assert_eq!(bucket.take(at(0)), Ok(()));
        }
        assert_eq!(bucket.take(at(4)), Err(Duration::from_millis(6)));
        assert_eq!(bucket.take(at(25)), Ok(()));
        assert_eq!(bucket.take(at(25)), Ok(()));
        assert_eq!(bucket.take(at(25)), Err(Duration::from_millis(5)));
        let later = at(1_000_000);
        assert_eq!((0..10).filter(|_| bucket.take(later).is_ok()).count(), 3);
        assert!(bucket.take(start).is_err(), "time that steps back gives nothing");
    }

    #[test]
    fn a_tenants_names_lead_to_no_file_and_no_terminal() {
        let contents = vec![ObjectBytes(vec![1])];
        let name = |path: &str| names(&[PathBuf::from(path)], &contents).unwrap().remove(0);
        assert_eq!(name("/etc/shadow"), Path::new("shadow"));
        assert_eq!(name("../../x.o"), Path::new("x.o"));
        assert_eq!(name(".."), Path::new("object"));
        assert!(!name("a\u{1b}[2J").to_string_lossy().contains('\u{1b}'));
        assert!(name(&"x".repeat(4000)).to_string_lossy().len() <= MAX_NAME);
        assert!(
            names(&[PathBuf::from("/etc/shadow")], &[]).is_err(),
            "the daemon reads no file for a tenant"
        );
    }
}
