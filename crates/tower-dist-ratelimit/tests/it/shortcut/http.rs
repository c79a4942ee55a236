//! A layer over HTTP: what clients, handlers and observers are told.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use proptest::prelude::*;
use tokio::task::{AbortHandle, JoinSet, yield_now};
use tower::{Layer, Service, ServiceExt, util::BoxCloneService};
use tower_dist_ratelimit::{
    Fields, MissingKey, Quota, RateLimitHandle, RateLimitLayer,
    backend::Backend,
    key::{self, RequestHead},
};

use super::{Log, Pause, Rules, both, costs, keys, pauses, play, rules};

/// How a layer is set up.
#[derive(Clone, Debug)]
struct Setup {
    missing: MissingKey,
    fields: Fields,
    x_ratelimit: bool,
    shadow: bool,
    handle: bool,
    refunds: bool,
    grpc: bool,
    /// Whether requests say what they cost; otherwise all the same, which is at most what there is at once.
    weighted: bool,
}

fn setups() -> impl Strategy<Value = Setup> {
    let missing = prop_oneof![
        Just(MissingKey::Shared),
        Just(MissingKey::Skip),
        Just(MissingKey::Refuse)
    ];
    let fields = prop_oneof![
        3 => Just(Fields::Always),
        1 => Just(Fields::OnRefusal),
        1 => (0.01_f64..1.0).prop_map(Fields::NearLimit),
        1 => Just(Fields::Never),
    ];
    let seldom = || prop::bool::weighted(0.25);
    (
        missing,
        fields,
        any::<bool>(),
        (seldom(), seldom(), seldom(), seldom()),
        any::<bool>(),
    )
        .prop_map(
            |(missing, fields, x_ratelimit, (shadow, handle, refunds, grpc), weighted)| Setup {
                missing,
                fields,
                x_ratelimit,
                shadow,
                handle,
                refunds,
                grpc,
                weighted,
            },
        )
}

/// A request, and what its handler does.
#[derive(Clone, Debug)]
struct Visit {
    pause: Pause,
    key: Option<u8>,
    cost: u64,
    quota: Option<u64>,
    exempt: bool,
    fails: bool,
    correction: Correction,
    /// Its client waits no longer than until the next one comes.
    dropped: bool,
}

#[derive(Clone, Copy, Debug)]
enum Correction {
    None,
    Charge(u64),
    Refund(u64),
    Settle(u64),
}

fn visits() -> impl Strategy<Value = Vec<Visit>> {
    let correction = prop_oneof![
        3 => Just(Correction::None),
        1 => costs().prop_map(Correction::Charge),
        1 => costs().prop_map(Correction::Refund),
        1 => costs().prop_map(Correction::Settle),
    ];
    let quota = prop::option::weighted(0.3, 0_u64..30);
    let seldom = || prop::bool::weighted(0.15);
    let flags = (seldom(), any::<bool>(), seldom());
    let visit = (pauses(), keys(), costs(), quota, flags, correction).prop_map(
        |(pause, key, cost, quota, (exempt, fails, dropped), correction)| Visit {
            pause,
            key,
            cost,
            quota,
            exempt,
            fails,
            correction,
            dropped,
        },
    );
    prop::collection::vec(visit, 1..40)
}

impl Visit {
    fn request(&self) -> Request<()> {
        let mut request = Request::builder().header("cost", self.cost);
        if let Some(key) = self.key {
            request = request.header("key", key.to_string());
        }
        if let Some(quota) = self.quota {
            request = request.header("quota", quota);
        }
        let mut request = request.method(if self.exempt { "OPTIONS" } else { "GET" });
        request.extensions_mut().unwrap().insert(self.clone());
        request.body(()).unwrap()
    }
}

fn number(head: RequestHead<'_>, name: &str) -> Option<u64> {
    head.headers().get(name)?.to_str().ok()?.parse().ok()
}

/// Notes what it is told of a request's limits, and corrects them.
#[derive(Clone)]
struct Handler(Log);

impl Service<Request<()>> for Handler {
    type Response = Response<Bytes>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Bytes>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let visit: &Visit = request.extensions().get().unwrap();
        let handle: Option<&RateLimitHandle> = request.extensions().get();
        let decisions = handle.map(|handle| handle.decisions().collect::<Vec<_>>());
        self.0.note(format_args!("called {decisions:?}"));
        if let Some(handle) = handle {
            match visit.correction {
                Correction::None => {}
                Correction::Charge(tokens) => handle.charge(tokens),
                Correction::Refund(tokens) => handle.refund(tokens),
                Correction::Settle(tokens) => handle.settle(tokens),
            }
        }
        let mut response = Response::new(Bytes::from_static(b"hello"));
        if visit.fails {
            *response.status_mut() = StatusCode::BAD_GATEWAY;
        }
        ready(Ok(response))
    }
}

type Limited = BoxCloneService<Request<()>, Response<Bytes>, Infallible>;

fn service(rules: &Rules, setup: &Setup, log: &Log, backend: Arc<dyn Backend>) -> Limited {
    let policy = rules
        .policy()
        .by(key::header("key"))
        .missing_key(setup.missing);
    let policy = if setup.weighted {
        policy.cost_fn(|head| number(head, "cost").unwrap_or(1))
    } else {
        policy.cost(rules.most().min(2))
    };
    let policy = if rules.dynamic {
        policy.dynamic(|head| number(head, "quota").map(Quota::per_second))
    } else {
        policy
    };
    let mut builder = RateLimitLayer::builder(backend)
        .limit(policy)
        .exempt(|head| head.method() == "OPTIONS")
        .headers(setup.fields);
    if setup.x_ratelimit {
        builder = builder.x_ratelimit();
    }
    if setup.shadow {
        builder = builder.shadow();
    }
    if setup.handle {
        builder = builder.handle();
    }
    if setup.refunds {
        builder = builder
            .refund_when(|response| response.is_none_or(|head| head.status().is_server_error()));
    }
    let (builder, handler) = (builder.observer(log.clone()), Handler(log.clone()));
    if setup.grpc {
        BoxCloneService::new(builder.grpc().build().unwrap().layer(handler))
    } else {
        BoxCloneService::new(builder.build().unwrap().layer(handler))
    }
}

fn told(response: &Response<Bytes>) -> String {
    let fields: &HeaderMap = response.headers();
    let (status, body) = (response.status(), response.body());
    format!("{status} {fields:?} {body:?}")
}

struct Side {
    service: Limited,
    log: Log,
    tasks: JoinSet<()>,
}

impl Side {
    async fn send(&mut self, visit: &Visit, number: usize) -> Option<AbortHandle> {
        let answer = self.service.ready().await.unwrap().call(visit.request());
        let log = self.log.clone();
        let task = self.tasks.spawn(async move {
            let Ok(response) = answer.await;
            log.note(format_args!("{number}: {}", told(&response)));
        });
        visit.dropped.then_some(task)
    }
}

async fn run(rules: Rules, setup: Setup, room: usize, visits: Vec<Visit>) -> [Vec<String>; 2] {
    let mut sides = both(room, |backend| {
        let log = Log::start();
        Side {
            service: service(&rules, &setup, &log, backend),
            log,
            tasks: JoinSet::new(),
        }
    });
    let mut dropped = Vec::new();
    for (number, visit) in visits.iter().enumerate() {
        visit.pause.wait(&sides[0].log).await;
        for task in dropped.drain(..) {
            AbortHandle::abort(&task);
        }
        for side in &mut sides {
            dropped.extend(side.send(visit, number).await);
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
    fn a_layer_answers_alike_by_the_shortcut_and_by_the_way_of_all(
        rules in rules(), setup in setups(), room in 1_usize..40, visits in visits()
    ) {
        let [short, long] = play(run(rules, setup, room, visits));
        prop_assert_eq!(short, long);
    }
}
