//! The article's graphs.

use super::algorithm::Algorithm;
use super::published::Published;
use super::trace::{Counts, Trace};
use super::{LIMIT, TRACE};
use crate::plot::{Axis, Mark, Panel, Plot, Series};

pub(crate) fn plots(traces: &[Trace]) -> Vec<Plot> {
    traces.iter().filter_map(plot).collect()
}

fn plot(trace: &Trace) -> Option<Plot> {
    let (name, title, caption) = match trace.algorithm {
        Algorithm::FixedWindow => (
            "window-accuracy-fixed",
            "How well a fixed window counts",
            "Upper graph: requests at random, at 0.8 times a limit of 100 per minute. The count of a fixed window starts from zero \
             every minute, so it misses requests of the last 60 s. Lower graph: its worst case. Ring: twice the limit, the bound \
             published in \"Distributed rate limiting algorithms\" (Criteo Engineering, 2022).",
        ),
        Algorithm::TwoWindow => (
            "window-accuracy-two",
            "How well two weighted windows count",
            "Upper graph: requests at random, at 0.8 times a limit of 100 per minute. The sliding window adds a share of the \
             previous window's count to the current one. Its mean absolute error is below three requests. Lower graph: its worst \
             case. Ring: the bound that follows from the algorithm, 1.99 times the limit. After \"Distributed rate limiting \
             algorithms\" (Criteo Engineering, 2022).",
        ),
        Algorithm::SubWindowsInterpolated => (
            "window-accuracy-sub",
            "How well five windows of 15 s count",
            "Upper graph: requests at random, at 0.8 times a limit of 100 per minute. The window is split into buckets of 15 s, \
             and the oldest of the five is weighted by its remaining share. Lower graph: its worst case, for which no bound is \
             published. After \"Distributed rate limiting algorithms\" (Criteo Engineering, 2022).",
        ),
        _ => return None,
    };
    let bound = Published::of(trace.algorithm, "adversarial");
    Some(Plot {
        name,
        title,
        caption,
        x: Axis::linear("seconds", TRACE.as_secs_f64()),
        height: 260,
        panels: vec![
            panel("random requests", &trace.random, None),
            panel("adversary", &trace.adversarial, bound),
        ],
    })
}

/// A ring at the highest true count marks the bound.
fn panel(title: &'static str, counts: &Counts, bound: Option<Published>) -> Panel {
    let highest = counts.passed.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let ring = highest.zip(bound).map(|((at, _), bound)| {
        let (Published::About(limits) | Published::AtMost(limits)) = bound;
        (*at, limits * LIMIT as f64)
    });
    let series = |name, mark, points| Series { name, mark, points };
    let ring = ring.map(|ring| series("known bound", Mark::Rings, vec![ring]));
    Panel {
        title,
        y: Axis::linear("requests", 250.0),
        series: [
            series(
                "requests in the last 60 s",
                Mark::Area(0),
                counts.passed.clone(),
            ),
            series(
                "the algorithm's count",
                Mark::Curve(1),
                counts.believed.clone(),
            ),
        ]
        .into_iter()
        .chain(ring)
        .collect(),
    }
}
