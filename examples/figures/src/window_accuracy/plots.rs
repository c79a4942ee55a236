//! The article's graphs.

use super::TRACE;
use super::algorithm::Algorithm;
use super::trace::Trace;
use crate::plot::{Axis, Mark, Panel, Plot, Series};

pub(crate) fn plots(traces: &[Trace]) -> Vec<Plot> {
    traces.iter().filter_map(plot).collect()
}

fn plot(trace: &Trace) -> Option<Plot> {
    let (name, title, caption) = match trace.algorithm {
        Algorithm::FixedWindow => (
            "window-accuracy-fixed",
            "How well a fixed window counts",
            "Requests at random, at 0.8 times a limit of 100 per minute. The count of a fixed window starts from zero every minute, so it \
             misses requests of the last 60 s.",
        ),
        Algorithm::TwoWindow => (
            "window-accuracy-two",
            "How well two weighted windows count",
            "Requests at random, at 0.8 times a limit of 100 per minute. The sliding window adds a share of the previous window's \
             count to the current one. Its mean absolute error is below three requests.",
        ),
        Algorithm::SubWindowsInterpolated => (
            "window-accuracy-sub",
            "How well five windows of 15 s count",
            "Requests at random, at 0.8 times a limit of 100 per minute. The window is split into buckets of 15 s, and the oldest of \
             the five is weighted by its remaining share.",
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
            name: "the algorithm's count",
            mark: Mark::Curve(1),
            points: trace.believed.clone(),
        },
    ];
    Some(Plot {
        name,
        title,
        caption,
        x: Axis::linear("seconds", TRACE.as_secs_f64()),
        height: 330,
        panels: vec![Panel {
            title: "",
            y: Axis::linear("requests", 140.0),
            series,
        }],
    })
}
