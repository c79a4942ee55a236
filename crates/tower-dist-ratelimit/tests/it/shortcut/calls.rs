//! Requests of any type: rejected or waiting.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use proptest::prelude::*;
use tower::{Layer, Service, util::BoxCloneService};
use tower_dist_ratelimit::{CallLimitLayer, LimitError, Quota, backend::Backend};

use super::{
    Log, Pause, Rules, costs, keys, pauses, play, rules,
    sides::{Turn, run},
};

#[derive(Clone, Debug)]
struct Call {
    pause: Pause,
    key: Option<u8>,
    cost: u64,
    quota: Option<u64>,
    dropped: bool,
}

#[derive(Clone, Copy, Debug)]
struct Form {
    shadow: bool,
    /// Longest wait in milliseconds, and the bound on waiting requests.
    waiting: Option<(u64, usize)>,
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let quota = prop::option::weighted(0.3, 0_u64..30);
    let dropped = prop::bool::weighted(0.2);
    let call = (pauses(), keys(), costs(), quota, dropped).prop_map(
        |(pause, key, cost, quota, dropped)| Call {
            pause,
            key,
            cost,
            quota,
            dropped,
        },
    );
    prop::collection::vec(call, 1..40)
}

fn forms() -> impl Strategy<Value = Form> {
    let waiting = prop::option::of((1_u64..5_000, 1_usize..6));
    (any::<bool>(), waiting).prop_map(|(shadow, waiting)| Form { shadow, waiting })
}

type Limited = BoxCloneService<Call, (), LimitError<Infallible>>;

fn service(rules: &Rules, form: Form, log: &Log, backend: Arc<dyn Backend>) -> Limited {
    let policy = rules
        .policy()
        .by_request(|call: &Call| call.key.map(u64::from));
    let policy = policy.cost_fn(|call| call.cost);
    let policy = if rules.dynamic {
        policy.quota_by(|call| call.quota.map(Quota::per_second))
    } else {
        policy
    };
    let builder = CallLimitLayer::builder(backend)
        .limit(policy)
        .observer(log.clone());
    let builder = if form.shadow {
        builder.shadow()
    } else {
        builder
    };
    let inner = Inner(log.clone());
    match form.waiting {
        None => BoxCloneService::new(builder.build().unwrap().layer(inner)),
        Some((max_wait, waiters)) => {
            let builder = builder.waiting().max_wait(Duration::from_millis(max_wait));
            let layer = builder.max_waiters(waiters).build().unwrap();
            BoxCloneService::new(layer.layer(inner))
        }
    }
}

/// An inner service that records its requests.
#[derive(Clone)]
struct Inner(Log);

impl Service<Call> for Inner {
    type Response = ();
    type Error = Infallible;
    type Future = Ready<Result<(), Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        self.0.note(format_args!("called for {:?}", call.key));
        ready(Ok(()))
    }
}

fn told(outcome: &Result<(), LimitError<Infallible>>) -> String {
    match outcome {
        Ok(()) => "passed".to_owned(),
        Err(LimitError::RateLimited(rejected)) => {
            let decisions: Vec<_> = rejected.decisions().collect();
            let (reason, wait) = (rejected.reason(), rejected.retry_after());
            format!("{rejected}: {reason:?} {wait:?} {decisions:?}")
        }
        Err(error) => format!("{error:?}"),
    }
}

impl Turn for Call {
    type Request = Self;

    fn pause(&self) -> Pause {
        self.pause
    }

    fn request(&self) -> Self {
        self.clone()
    }

    fn is_dropped(&self) -> bool {
        self.dropped
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn calls_have_the_same_outcomes_on_the_shortcut_and_on_the_general_path(
        rules in rules(), form in forms(), room in 1_usize..40, calls in calls()
    ) {
        let service = |log: &Log, backend| service(&rules, form, log, backend);
        let [short, long] = play(run(room, service, calls, told));
        prop_assert_eq!(short, long);
    }
}
