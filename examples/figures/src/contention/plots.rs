//! The article's graphs.

use super::cell::{BIN, Cell};
use super::published::Published;
use super::strategy::Strategy;
use crate::plot::{Axis, Corner, Mark, Panel, Plot, Series};

const CLIENTS: Axis = Axis::linear("contending clients", 200.0);
/// Of the graph over time.
const CLIENTS_OVER_TIME: u32 = 100;

type Measure = fn(&Cell) -> f64;
type PublishedMeasure = fn(Published) -> f64;

pub(crate) fn plots(cells: &[Cell]) -> Vec<Plot> {
    vec![calls(cells), completion(cells), over_time(cells)]
}

fn calls(cells: &[Cell]) -> Plot {
    let y = Axis::linear("calls, mean per trial", 9000.0);
    let panel = over_clients(cells, y, &Strategy::ALL, |cell| cell.calls, |p| p.calls);
    Plot {
        name: "contention-calls",
        title: "Calls until every client has written the row",
        x: CLIENTS,
        legend: Corner::Left,
        height: 500,
        panels: vec![panel],
    }
}

/// The article leaves exponential backoff without jitter off its graph, since the others could not
/// be told apart beside it; here it has a panel of its own.
fn completion(cells: &[Cell]) -> Plot {
    let exponential = |strategy: &Strategy| *strategy == Strategy::Exponential;
    let (without, others): (Vec<_>, Vec<_>) = Strategy::ALL.into_iter().partition(exponential);
    let panel = |label, end, strategies: &[Strategy]| {
        let y = Axis::linear(label, end);
        over_clients(
            cells,
            y,
            strategies,
            |c| c.completion_ms,
            |p| p.completion_ms,
        )
    };
    Plot {
        name: "contention-completion",
        title: "Time until every client has written the row",
        x: CLIENTS,
        legend: Corner::Left,
        height: 400,
        panels: vec![
            panel("completion in ms, mean", 12_000.0, &others),
            panel("completion in ms, mean", 120_000.0, &without),
        ],
    }
}

fn over_clients(
    cells: &[Cell],
    y: Axis,
    strategies: &[Strategy],
    measure: Measure,
    published: PublishedMeasure,
) -> Panel {
    let of = |strategy| cells.iter().filter(move |cell| cell.strategy == strategy);
    let line = |strategy| Series {
        name: Strategy::name(strategy),
        mark: Mark::Line(colour(strategy)),
        points: of(strategy)
            .map(|cell| (f64::from(cell.clients), measure(cell)))
            .collect(),
    };
    let mut series: Vec<Series> = strategies.iter().copied().map(line).collect();
    let points = strategies.iter().copied().flat_map(of).filter_map(|cell| {
        let known = Published::of(cell.clients, cell.strategy)?;
        Some((f64::from(cell.clients), published(known)))
    });
    series.push(Series {
        name: "the article's simulator",
        mark: Mark::Rings,
        points: points.collect(),
    });
    Panel { y, series }
}

fn over_time(cells: &[Cell]) -> Plot {
    let panel = |cell: &Cell| {
        let middles = (0_u32..).map(|bin| (f64::from(bin) + 0.5) * BIN);
        let series = Series {
            name: cell.strategy.name(),
            mark: Mark::Area(colour(cell.strategy)),
            points: middles.zip(cell.calls_over_time.iter().copied()).collect(),
        };
        let y = Axis::linear("calls per 20 ms, mean", 60.0);
        Panel {
            y,
            series: vec![series],
        }
    };
    let cells = cells
        .iter()
        .filter(|cell| cell.clients == CLIENTS_OVER_TIME);
    Plot {
        name: "contention-over-time",
        title: "When 100 clients call (mean over the trials; the first peaks are cut off)",
        x: Axis::linear("ms since all clients started", 6000.0),
        legend: Corner::Right,
        height: 240,
        panels: cells.map(panel).collect(),
    }
}

/// The same in every graph.
fn colour(strategy: Strategy) -> usize {
    strategy as usize
}
