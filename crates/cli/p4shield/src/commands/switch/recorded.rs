//! Packets that a switch records, as they come.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use p4shield_console::{Exit, Refused, output, signals};
use p4shield_p4switch::api::{self, ApiError, RecordView, Wanted};

/// Pause between two requests. The switch ends a recording after ten seconds without one.
const PAUSE: Duration = Duration::from_millis(100);

/// When a recording ends.
#[derive(Debug, clap::Args)]
pub(super) struct Limits {
    /// End after so many packets
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) count: u64,
    /// End after so many seconds
    #[arg(long = "for", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
}

/// Records packets until the limits are reached, or until SIGINT or SIGTERM.
pub(super) fn follow(
    socket: &Path,
    wanted: Wanted,
    limits: &Limits,
    each: impl FnMut(&RecordView) -> anyhow::Result<()>,
) -> anyhow::Result<Exit> {
    api::record(socket, wanted).map_err(failed)?;
    output::note("recording; Ctrl-C ends it");
    take(socket, limits, each)
}

/// Takes the packets of a recording until the limits are reached, or until SIGINT or SIGTERM.
pub(super) fn take(
    socket: &Path,
    limits: &Limits,
    mut each: impl FnMut(&RecordView) -> anyhow::Result<()>,
) -> anyhow::Result<Exit> {
    let stop = signals::stop_flag()?;
    let end = limits.seconds.map(|s| Instant::now() + Duration::from_secs(s));
    let mut missed = 0;
    loop {
        // What came before the end is still shown.
        let last = stop.load(Ordering::Relaxed) || end.is_some_and(|end| Instant::now() >= end);
        let records = api::records(socket).map_err(failed)?;
        let shown = records.packets.iter().try_for_each(&mut each);
        missed += records.missed;
        if shown.is_err() || last || records.done {
            let stopped = api::stop_recording(socket).map_err(failed);
            shown.and(stopped)?;
            break;
        }
        std::thread::sleep(PAUSE);
    }
    if missed > 0 {
        output::note(format_args!("{missed} packets more, for which the switch had no room"));
    }
    Ok(Exit::Done)
}

/// Returns the error of a request that the switch refused, or that did not reach it.
pub(super) fn failed(error: ApiError) -> anyhow::Error {
    match error {
        ApiError::Failed(why) => Refused(why).into(),
        error => error.into(),
    }
}

/// Returns the time of day, in UTC.
pub(super) fn clock(time_ns: u64) -> String {
    let time = time::OffsetDateTime::from_unix_timestamp_nanos(time_ns.into());
    let text = |t: time::OffsetDateTime| {
        format!("{:02}:{:02}:{:02}.{:06}", t.hour(), t.minute(), t.second(), t.microsecond())
    };
    time.map(text).unwrap_or_default()
}
