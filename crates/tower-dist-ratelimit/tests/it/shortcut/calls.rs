//! Requests of any type: refused, or in a line.

use std::{
    convert::Infallible,
    fmt,
    future::{Ready, ready},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use proptest::prelude::*;
use tokio::task::{AbortHandle, JoinSet, yield_now};
use tower::{Layer, Service, ServiceExt, util::BoxCloneService};
use tower_dist_ratelimit::{CallLimitLayer, LimitError, Quota, backend::Backend};

use super::{Log, Pause, Rules, both, costs, keys, pauses, play, rules};

#[derive(Clone, Debug)]
struct Call {
    pause: Pause,
    key: Option<u8>,
    cost: u64,
    quota: Option<u64>,
    /// Its caller waits no longer than until the next one comes.
    dropped: bool,
}

#[derive(Clone, Copy, Debug)]
struct Form {
    shadow: bool,
    /// Waits for at most so many milliseconds, with so many others.
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
        policy.dynamic(|call| call.quota.map(Quota::per_second))
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

/// Notes what reaches it.
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

fn told(outcome: &Result<(), LimitError<Infallible>>) -> impl fmt::Debug {
    match outcome {
        Ok(()) => "passed".to_owned(),
        Err(LimitError::Refused(refused)) => {
            let decisions: Vec<_> = refused.decisions().collect();
            let (reason, wait) = (refused.reason(), refused.retry_after());
            format!("{refused}: {reason:?} {wait:?} {decisions:?}")
        }
        Err(error) => format!("{error:?}"),
    }
}

struct Side {
    service: Limited,
    log: Log,
    tasks: JoinSet<()>,
}

impl Side {
    async fn send(&mut self, call: &Call, number: usize) -> Option<AbortHandle> {
        let answer = self.service.ready().await.unwrap().call(call.clone());
        let log = self.log.clone();
        let task = self.tasks.spawn(async move {
            let outcome = answer.await;
            log.note(format_args!("{number}: {:?}", told(&outcome)));
        });
        call.dropped.then_some(task)
    }
}

async fn run(rules: Rules, form: Form, room: usize, calls: Vec<Call>) -> [Vec<String>; 2] {
    let mut sides = both(room, |backend| {
        let log = Log::start();
        Side {
            service: service(&rules, form, &log, backend),
            log,
            tasks: JoinSet::new(),
        }
    });
    let mut dropped = Vec::new();
    for (number, call) in calls.iter().enumerate() {
        call.pause.wait(&sides[0].log).await;
        for task in dropped.drain(..) {
            AbortHandle::abort(&task);
        }
        for side in &mut sides {
            dropped.extend(side.send(call, number).await);
        }
        yield_now().await;
    }
    let mut logs = Vec::new();
    for mut side in sides {
        while side.tasks.join_next().await.is_some() {}
        logs.push(side.log.all());
    }
    logs.try_into().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn calls_pass_wait_and_are_refused_alike_by_the_shortcut_and_by_the_way_of_all(
        rules in rules(), form in forms(), room in 1_usize..40, calls in calls()
    ) {
        let [short, long] = play(run(rules, form, room, calls));
        prop_assert_eq!(short, long);
    }
}
