//! The article's graphs.

use super::cell::{BIN, Cell};
use super::published::Published;
use super::strategy::Strategy;
use crate::plot::{Axis, Mark, Panel, Plot, Series};

const CLIENTS: Axis = Axis::linear("contending clients", 200.0);
/// Number of clients in the graph over time.
const CLIENTS_OVER_TIME: u32 = 100;

type Measure = fn(&Cell) -> f64;
type PublishedMeasure = fn(Published) -> f64;

pub(crate) fn plots(cells: &[Cell]) -> Vec<Plot> {
    vec![calls(cells), completion(cells), over_time(cells)]
}

fn calls(cells: &[Cell]) -> Plot {
    let y = Axis::linear("calls, mean per trial", 9000.0);
    Plot {
        name: "contention-calls",
        title: "Jitter saves calls: attempts until every client has written the row",
        caption: "Clients start together and write one row with optimistic concurrency control. Each retries until its write \
                  succeeds, with the backoff strategies of RetryLayer (base 10 ms, or 5 ms for decorrelated jitter; cap 2 s). The \
                  lines of full and equal jitter coincide. Means over 30 to 100 trials. Rings: the simulator published with \
                  \"Exponential Backoff And Jitter\" (AWS, 2015).",
        x: CLIENTS,
        height: 430,
        panels: vec![over_clients(cells, y, |cell| cell.calls, |p| p.calls)],
    }
}

fn completion(cells: &[Cell]) -> Plot {
    let y = Axis::logarithmic("completion in ms, mean", 200.0, 200_000.0);
    Plot {
        name: "contention-completion",
        title: "Time until every client has written the row",
        caption: "Clients start together and write one row. The time axis is logarithmic: exponential backoff without jitter takes ten times as long as \
                  with jitter, because clients that collided retry at the same time again. Rings: the simulator \
                  published with \"Exponential Backoff And Jitter\" (AWS, 2015).",
        x: CLIENTS,
        height: 430,
        panels: vec![over_clients(
            cells,
            y,
            |c| c.completion_ms,
            |p| p.completion_ms,
        )],
    }
}

fn over_clients(cells: &[Cell], y: Axis, measure: Measure, published: PublishedMeasure) -> Panel {
    let line = |strategy: Strategy| Series {
        name: strategy.name(),
        mark: Mark::Line(strategy as usize),
        points: cells
            .iter()
            .filter(|cell| cell.strategy == strategy)
            .map(|cell| (f64::from(cell.clients), measure(cell)))
            .collect(),
    };
    let mut series: Vec<Series> = Strategy::ALL.into_iter().map(line).collect();
    let points = cells.iter().filter_map(|cell| {
        let known = Published::of(cell.clients, cell.strategy)?;
        Some((f64::from(cell.clients), published(known)))
    });
    series.push(Series {
        name: "published",
        mark: Mark::Rings,
        points: points.collect(),
    });
    Panel {
        title: "",
        y,
        series,
    }
}

fn over_time(cells: &[Cell]) -> Plot {
    let panel = |cell: &Cell| {
        let middles = (0_u32..).map(|bin| (f64::from(bin) + 0.5) * BIN);
        let series = Series {
            name: "calls",
            mark: Mark::Area(0),
            points: middles.zip(cell.calls_over_time.iter().copied()).collect(),
        };
        Panel {
            title: cell.strategy.name(),
            y: Axis::linear("calls per 20 ms", 60.0),
            series: vec![series],
        }
    };
    let cells = cells
        .iter()
        .filter(|cell| cell.clients == CLIENTS_OVER_TIME);
    Plot {
        name: "contention-over-time",
        title: "Arrival times of the calls of 100 clients",
        caption: "Calls that reach the server in each 20 ms, mean over 100 trials; the first peaks are cut off. Without jitter the \
                  calls arrive in waves with idle time between them. Full and decorrelated jitter spread them.",
        x: Axis::linear("ms since all clients started", 6000.0),
        height: 150,
        panels: cells.map(panel).collect(),
    }
}
