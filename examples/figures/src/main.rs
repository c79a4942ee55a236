//! Published results, made again: the crates' own layers against simulated servers, on a clock
//! that jumps from one event to the next. The README says what to run.

mod arrivals;
mod contention;
mod hedging_demo;
mod latencies;
mod leases;
mod metastable;
mod normal;
mod options;
mod parallel;
mod plot;
mod report;
mod seeds;
mod svg_dir;
mod tail_at_scale;
mod virtual_time;
mod window_accuracy;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use indicatif::{ProgressBar, ProgressStyle};
use tower::BoxError;

use crate::options::Options;
use crate::report::Report;
use crate::svg_dir::SvgDir;

fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) if error.use_stderr() => {
            // The first paragraph says what is wrong; the rest repeats the usage.
            let text = error.to_string();
            let lines = text
                .lines()
                .map(str::trim)
                .take_while(|line| !line.is_empty());
            let line = lines.collect::<Vec<_>>().join(" ");
            log(line.trim_start_matches("error: "));
            return ExitCode::from(2);
        }
        // --help
        Err(error) => error.exit(),
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), BoxError> {
    // First of all, since it would be a pity to find out after the work.
    let svg_dir = options.svg.as_deref().map(SvgDir::open).transpose()?;
    let mut reports = Vec::new();
    for figure in options.figure.figures() {
        let progress = progress()?;
        let report = figure(options.seed, &progress)?;
        progress.finish_and_clear();
        if let Some(dir) = &svg_dir {
            for plot in &report.plots {
                log(&format!("wrote {}", dir.write(plot)?.display()));
            }
        }
        reports.push(report);
    }
    print(&reports, options.json).map_err(|error| format!("cannot write to stdout: {error}"))?;
    Ok(())
}

/// Hidden where stderr is not a terminal.
fn progress() -> Result<ProgressBar, BoxError> {
    let style = ProgressStyle::with_template("{bar:30} {percent} %, {eta} left: {msg}")?;
    Ok(ProgressBar::new(0).with_style(style))
}

fn print(reports: &[Report], json: bool) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    if json {
        let rows: Vec<_> = reports.iter().flat_map(|report| &report.rows).collect();
        serde_json::to_writer_pretty(&mut stdout, &rows)?;
        return writeln!(stdout);
    }
    for (index, report) in reports.iter().enumerate() {
        if index > 0 {
            writeln!(stdout)?;
        }
        writeln!(stdout, "{}\n\n{}", report.title, report.table)?;
    }
    Ok(())
}

/// One line on stderr; unlike `eprintln!` it does not panic when nobody reads there any more.
fn log(message: &str) {
    let _ = writeln!(io::stderr(), "figures: {message}");
}
