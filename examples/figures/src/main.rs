//! Reproduces published results: the shipping layers run against simulated servers, on a clock that jumps from one
//! event to the next. The README lists the commands.

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
mod plot_dir;
mod report;
mod seeds;
mod tail_at_scale;
mod virtual_time;
mod window_accuracy;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use indicatif::{ProgressBar, ProgressStyle};
use tower::BoxError;

use crate::options::Options;
use crate::plot::PngRenderer;
use crate::plot_dir::PlotDir;
use crate::report::Report;

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
    // Errors are reported before the work, which can take a minute.
    let svg_dir = options.svg.as_deref().map(PlotDir::open).transpose()?;
    let png_dir = options.png.as_deref().map(PlotDir::open).transpose()?;
    let png_dir = match png_dir {
        Some(dir) => Some((dir, PngRenderer::new()?)),
        None => None,
    };
    let mut reports = Vec::new();
    for figure in options.figure.figures() {
        let progress = progress()?;
        let report = figure(options.seed, &progress)?;
        progress.finish_and_clear();
        for plot in &report.plots {
            let svg = plot.svg()?;
            if let Some(dir) = &svg_dir {
                let path = dir.write(&format!("{}.svg", plot.name), svg.as_bytes())?;
                log(&format!("wrote {}", path.display()));
            }
            if let Some((dir, renderer)) = &png_dir {
                let path = dir.write(&format!("{}.png", plot.name), &renderer.render(&svg)?)?;
                log(&format!("wrote {}", path.display()));
            }
        }
        reports.push(report);
    }
    print(&reports, options.json).map_err(|error| format!("cannot write to stdout: {error}"))?;
    Ok(())
}

/// Returns a progress bar, which is hidden if stderr is not a terminal.
fn progress() -> Result<ProgressBar, BoxError> {
    let style = ProgressStyle::with_template("{bar:30} {percent} %, {eta} left: {msg}")?;
    // A bar of length 0 would look complete until its figure sets the length.
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

/// Writes a line to stderr. Unlike `eprintln!`, it does not panic if stderr is closed.
fn log(message: &str) {
    let _ = writeln!(io::stderr(), "figures: {message}");
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use indicatif::{ProgressDrawTarget, TermLike};

    use super::*;

    /// A terminal that records all output.
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
