//! Goodput and offered load over time.

use super::row::{RECOVERED, Row};
use super::server::CAPACITY;
use super::{PLOTTED_LOAD, published};
use crate::plot::{Axis, Mark, Panel, Plot, Series};

/// The highest value of the plot.
const MOST: f64 = 4000.0;

pub(crate) fn plots(rows: &[Row]) -> Vec<Plot> {
    let plotted = |row: &&Row| (row.load - PLOTTED_LOAD).abs() < 1e-9;
    vec![Plot {
        name: "metastable-over-time",
        title: "An outage of ten seconds, with and without a retry budget",
        caption: "A server for 1,000 requests per second stops from 20 s to 30 s, at a load of 800 calls per second. Attempts time \
                  out after 1 s. Retries use three attempts with full jitter. no-budget: RetryLayer with an unlimited budget. budget: \
                  RetryLayer with its default budget. hedge: the same over HedgeLayer. tower-budget: tower's Retry with TpsBudget. \
                  Rings: an independent simulation's recovery, and without a budget its goodput and attempts a minute after the outage. \
                  After Bronson et al., \"Metastable Failures in Distributed Systems\" (HotOS 2021).",
        x: Axis::linear("seconds", 120.0),
        height: 140,
        panels: rows.iter().filter(plotted).map(panel).collect(),
    }]
}

fn panel(row: &Row) -> Panel {
    let over_time = |name, mark, counts: &[f64]| {
        let middles = (0_u32..).map(|second| f64::from(second) + 0.5);
        Series {
            name,
            mark,
            points: middles.zip(counts.iter().copied()).collect(),
        }
    };
    let outage = Series {
        name: "server stopped",
        mark: Mark::Band,
        points: vec![(20.0, MOST), (30.0, MOST)],
    };
    let published = Series {
        name: "independent simulation",
        mark: Mark::Rings,
        points: match published::recovery(row.mode, row.load) {
            Some(Some(seconds)) => vec![(
                30.0 + seconds as f64,
                RECOVERED * row.load * f64::from(CAPACITY),
            )],
            Some(None) => [0.0]
                .into_iter()
                .chain(published::STORM)
                .map(|rate| (90.0, rate))
                .collect(),
            None => vec![],
        },
    };
    let traffic = &row.traffic;
    Panel {
        title: row.mode.name(),
        y: Axis::linear("per second", MOST),
        series: vec![
            outage,
            over_time("successful calls", Mark::Area(0), &traffic.goodput),
            over_time("attempts", Mark::Curve(1), &traffic.offered),
            published,
        ],
    }
}
