//! A hedge layer whose trigger is armed, around a service that answers long before it: what every call
//! pays for the hedge that it does not need.

mod inner;
mod peers;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tower::{Layer, Service};
use tower_hedge_latency::HedgeLayer;

use self::inner::{AtOnce, Overflow, YieldsOnce};
use crate::measure::{Case, Subject};
use crate::report::OURS;

/// Answers at its first poll.
pub(crate) const AT_ONCE: &str = "hedge armed, primary answers at once";
/// Answers at its second poll, so that a timer is armed.
const YIELDS: &str = "hedge armed, primary yields once";

/// Beyond what any call takes, and no more than a percentile often is: what tower pays for reading its
/// histogram grows with it.
const DELAY: Duration = Duration::from_millis(50);

pub(crate) fn cases() -> Vec<Case> {
    vec![case(AT_ONCE, AtOnce), case(YIELDS, YieldsOnce)]
}

fn case<S>(name: &'static str, inner: S) -> Case
where
    S: Service<u64, Response = u64, Error = Overflow> + Copy + Send + Sync + 'static,
    S::Future: Send,
{
    let runtime = runtime();
    // A percentile, armed by its initial delay, until the samples make it the least there is.
    let ours = HedgeLayer::builder()
        .initial_delay(DELAY)
        .min_delay(DELAY)
        .build()
        .expect("valid");
    let fixed = HedgeLayer::builder().fixed(DELAY).build().expect("valid");
    let at_once = name == AT_ONCE;
    let against = |subject: Subject| match at_once {
        true => subject.goal(0.25),
        false => subject.goal_over_bare(0.5),
    };
    let subjects = vec![
        Subject::in_runtime("bare", inner, request, &runtime),
        Subject::in_runtime(OURS, ours.layer(inner), request, &runtime),
        Subject::in_runtime("ours, fixed", fixed.layer(inner), request, &runtime),
        against(Subject::in_runtime(
            "tower",
            peers::tower(inner, DELAY),
            request,
            &runtime,
        )),
        against(Subject::in_runtime(
            "tower-resilience",
            peers::resilience(inner, DELAY),
            request,
            &runtime,
        )),
    ];
    Case { name, subjects }
}

fn request() -> u64 {
    7
}

/// For the timers; nothing runs on it.
fn runtime() -> Arc<Runtime> {
    let runtime = Builder::new_current_thread().enable_time().build();
    Arc::new(runtime.expect("no more than a timer"))
}
