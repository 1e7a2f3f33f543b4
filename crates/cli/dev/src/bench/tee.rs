//! `p4shield-dev bench tee`.

use p4shield_batch_model::{Estimate, Published};
use p4shield_bench::tee::{Loaded, Options, Report, RowFigures, RowName, run, steps};
use p4shield_console::{Exit, output};
use serde::Serialize;

use super::{Form, table};

/// The most that a packet's processing may take, in microseconds: the bar for bare rows.
const BAR: f64 = 0.03;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    options: Options,
}

/// A row of the model's table.
#[derive(Serialize)]
struct Costs {
    #[serde(flatten)]
    row: RowName,
    batches: u64,
    a_io: String,
    b_io: String,
    a_p: String,
    b_p: String,
    t_b_32: String,
    io_share: f64,
}

/// A row of the table of maxima.
#[derive(Serialize)]
struct Maximum {
    #[serde(flatten)]
    row: RowName,
    modelled: f64,
    measured: f64,
    ratio: f64,
    with_notes: f64,
    of_measured: f64,
    lost_percent: f64,
    p50: f64,
    p90: f64,
    p99: f64,
}

/// A row of the paper.
#[derive(Serialize)]
struct Paper {
    processor: &'static str,
    placement: &'static str,
    driver: &'static str,
    a_io: f64,
    b_io: f64,
    a_p: f64,
    b_p: f64,
    t_b_32: f64,
    io_share: f64,
    modelled: f64,
    measured: f64,
}

/// A row of the table of rates.
#[derive(Serialize)]
struct Rate {
    bytes: usize,
    #[serde(flatten)]
    loaded: Loaded,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let measure = |step: &mut dyn FnMut(String)| run(&self.options, step);
        self.form.show(steps(&self.options), measure, tables, |_| Vec::new())
    }
}

/// Returns a value with half the width of its interval of 95 %.
fn estimate(e: &Estimate) -> String {
    format!("{:.4} ±{:.4}", e.value, e.half_width)
}

fn costs(r: &RowFigures) -> Costs {
    let c = &r.costs;
    Costs {
        row: r.row.clone(),
        batches: c.batches,
        a_io: estimate(&c.a_io),
        b_io: estimate(&c.b_io),
        a_p: estimate(&c.a_p),
        b_p: estimate(&c.b_p),
        t_b_32: estimate(&r.full_batch),
        io_share: c.io_share,
    }
}

fn maximum(r: &RowFigures) -> Maximum {
    let m = &r.maximum;
    Maximum {
        row: r.row.clone(),
        modelled: m.modelled,
        measured: m.measured.median,
        ratio: m.ratio,
        with_notes: m.noted.median,
        of_measured: m.noted_of_bare,
        lost_percent: m.lost_percent,
        p50: m.micros.p50,
        p90: m.micros.p90,
        p99: m.micros.p99,
    }
}

fn paper(p: &Published) -> Paper {
    let c = p.costs;
    Paper {
        processor: p.processor,
        placement: p.placement,
        driver: p.driver,
        a_io: c.a_io,
        b_io: c.b_io,
        a_p: c.a_p,
        b_p: c.b_p,
        t_b_32: c.batch(32),
        io_share: c.io_share(32),
        modelled: p.modelled,
        measured: p.measured,
    }
}

fn tables(r: &Report) -> anyhow::Result<()> {
    output::line(format_args!("{}; times in microseconds, rates in million packets a second", r.processor));
    let title = "the line of a batch, with intervals of 95 %: input and output (io), processing (p)";
    table::print(title, &r.rows.iter().map(costs).collect::<Vec<_>>())?;
    let title = "the maximum; the time of a batch in the switch there (p50, p90, p99)";
    table::print(title, &r.rows.iter().map(maximum).collect::<Vec<_>>())?;
    r.rows.iter().filter(|row| !row.maximum.holds).for_each(reasons);
    let rates =
        r.rows.iter().flat_map(|row| row.loads.iter().map(|l| Rate { bytes: row.row.bytes, loaded: *l }));
    table::print("veth, at rising rates of the sender", &rates.collect::<Vec<_>>())?;
    for missing in &r.missing {
        output::line(format_args!("({} is not measured: {})", title_of(&missing.row), missing.reason));
    }
    table::print("the paper: T4P4S, 1500 bytes", &r.paper.iter().map(paper).collect::<Vec<_>>())?;
    bar(r);
    Ok(())
}

fn title_of(row: &RowName) -> String {
    let RowName { placement, ports, bytes, threads } = row;
    format!("{placement}, {ports}, {bytes} bytes, threads: {threads}")
}

/// Prints the assumptions of the model that do not hold in a row.
fn reasons(r: &RowFigures) {
    output::line(format_args!(
        "\n{}: the modelled maximum is {:.2} of the measured one. 32 packets take {:.3} µs at full load, \
         not {:.3}; assumptions that do not hold:",
        title_of(&r.row),
        r.maximum.ratio,
        r.parts.iter().map(|part| part.micros).sum::<f64>(),
        r.full_batch.value,
    ));
    for part in r.parts.iter().filter(|part| part.explains) {
        output::line(format_args!(
            "  {:+.3} µs, {:+.1} %: {}",
            part.micros,
            part.percent,
            part.assumption.text()
        ));
    }
    let residuals = r.residuals.iter().map(|g| format!("{} to {}: {:+.1} %", g.from, g.to, g.percent));
    output::line(format_args!("  beyond the line, by size: {}", residuals.collect::<Vec<_>>().join(", ")));
}

/// Prints whether bare rows keep within the bar.
fn bar(r: &Report) {
    let bare = || r.rows.iter().filter(|row| row.row.placement == "bare");
    let most = bare().map(|row| row.costs.b_p.value).fold(f64::NAN, f64::max);
    let kept = bare().filter(|row| row.costs.b_p.value <= BAR).count();
    output::line(format_args!(
        "\nb_p, bare: at most {BAR} µs is the bar; {kept} of {} rows meet it, and the greatest is {most:.4}",
        bare().count(),
    ));
}
