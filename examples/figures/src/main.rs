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
    match run(&Options::parse()) {
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
    // A bar of length 0 would be full until its figure says how long it is.
    Ok(ProgressBar::no_length().with_style(style))
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use indicatif::{ProgressDrawTarget, TermLike};

    use super::*;

    /// A terminal that keeps all that is written to it.
    #[derive(Clone, Debug, Default)]
    struct Terminal(Arc<Mutex<String>>);

    impl TermLike for Terminal {
        fn width(&self) -> u16 {
            80
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn progress_begins_at_0_per_cent() {
        let terminal = Terminal::default();
        let progress = progress().unwrap();
        progress.set_draw_target(ProgressDrawTarget::term_like(Box::new(terminal.clone())));
        // As every figure begins.
        progress.set_message("a figure");
        progress.tick();
        progress.set_length(4);
        progress.tick();
        let drawn = terminal.0.lock().unwrap();
        assert!(
            drawn.contains(" 0 %") && drawn.contains("a figure"),
            "{drawn}"
        );
        assert!(!drawn.contains("100 %"), "{drawn}");
    }
}
