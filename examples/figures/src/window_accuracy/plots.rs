//! The article's graphs.

use super::TRACE;
use super::algorithm::Algorithm;
use super::trace::Trace;
use crate::plot::{Axis, Corner, Mark, Panel, Plot, Series};

pub(crate) fn plots(traces: &[Trace]) -> Vec<Plot> {
    traces.iter().filter_map(plot).collect()
}

fn plot(trace: &Trace) -> Option<Plot> {
    let (name, title, counter) = match trace.algorithm {
        Algorithm::FixedWindow => (
            "window-accuracy-fixed",
            "A fixed window of 60 s",
            "the fixed window's count",
        ),
        Algorithm::TwoWindow => (
            "window-accuracy-two",
            "Two windows of 60 s, weighted",
            "the two windows' count",
        ),
        Algorithm::SubWindowsInterpolated => (
            "window-accuracy-sub",
            "Five windows of 15 s, the oldest weighted",
            "the five windows' count",
        ),
        _ => return None,
    };
    let series = vec![
        Series {
            name: "requests in the last 60 s",
            mark: Mark::Area(0),
            points: trace.passed.clone(),
        },
        Series {
            name: counter,
            mark: Mark::Curve(1),
            points: trace.believed.clone(),
        },
    ];
    Some(Plot {
        name,
        title,
        x: Axis::linear("seconds", TRACE.as_secs_f64()),
        legend: Corner::Right,
        height: 400,
        panels: vec![Panel {
            y: Axis::linear("requests", 140.0),
            series,
        }],
    })
}
