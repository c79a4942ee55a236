//! A hedge layer with an armed trigger around a fast service: the cost of a hedge that is never sent.

mod floor;
mod inner;
mod peers;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tower::Layer;
use tower_hedge_latency::HedgeLayer;

pub(crate) use self::inner::AtOnce;
use self::inner::{Inner, YieldsOnce};
use crate::measure::{Case, Figure, Subject};
use crate::report::{BARE, OURS};

/// Answers at its first poll.
pub(crate) const AT_ONCE: &str = "hedge armed, primary answers at once";
/// Answers at its second poll, so that a timer is armed.
const YIELDS: &str = "hedge armed, primary yields once";
/// A fixed delay, because tower-resilience learns no percentile.
const FIXED_AT_ONCE: &str = "hedge armed, fixed delay, primary answers at once";
const FIXED_YIELDS: &str = "hedge armed, fixed delay, primary yields once";

/// Longer than any call, and not longer than a usual percentile: the cost of tower's histogram grows with the latency.
const DELAY: Duration = Duration::from_millis(50);

type Against = fn(Subject) -> Subject;

pub(crate) fn cases() -> Vec<Case> {
    let at_once: Against = |peer| peer.goal(0.25);
    let yields: Against = |peer| peer.goal_over_bare(0.5);
    vec![
        percentile(AT_ONCE, AtOnce, at_once),
        percentile(YIELDS, YieldsOnce, yields),
        fixed(FIXED_AT_ONCE, AtOnce, at_once),
        fixed(FIXED_YIELDS, YieldsOnce, yields),
    ]
}

/// A percentile whose lower bound keeps the delay fixed after it has learned.
fn percentile<S: Inner>(name: &'static str, inner: S, against: Against) -> Case {
    let builder = HedgeLayer::builder().initial_delay(DELAY).min_delay(DELAY);
    let ours = builder.build().expect("valid");
    let runtime = runtime();
    let tower = peers::tower(inner, DELAY);
    let resilience = peers::resilience(inner, DELAY);
    let subjects = vec![
        Subject::in_runtime(BARE, inner, request, &runtime),
        Subject::in_runtime(OURS, ours.layer(inner), request, &runtime),
        against(Subject::in_runtime("tower", tower, request, &runtime)),
        against(Subject::in_runtime(
            "tower-resilience",
            resilience,
            request,
            &runtime,
        )),
        Subject::in_runtime("floor", floor::floor(inner, DELAY), request, &runtime),
    ];
    Case::new(name, Figure::Call, subjects)
}

fn fixed<S: Inner>(name: &'static str, inner: S, against: Against) -> Case {
    let ours = HedgeLayer::builder().fixed(DELAY).build().expect("valid");
    let runtime = runtime();
    let resilience = peers::resilience(inner, DELAY);
    let subjects = vec![
        Subject::in_runtime(BARE, inner, request, &runtime),
        Subject::in_runtime(OURS, ours.layer(inner), request, &runtime),
        against(Subject::in_runtime(
            "tower-resilience",
            resilience,
            request,
            &runtime,
        )),
    ];
    Case::new(name, Figure::Call, subjects)
}

fn request() -> u64 {
    7
}

/// A runtime for the timers only.
pub(crate) fn runtime() -> Arc<Runtime> {
    let runtime = Builder::new_current_thread().enable_time().build();
    Arc::new(runtime.expect("no more than a timer"))
}
