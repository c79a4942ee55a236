//! HTTP layers: responses, handles and events.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use proptest::prelude::*;
use tower::{Layer, Service, util::BoxCloneService};
use tower_dist_ratelimit::{
    MissingKey, Quota, RateLimitHandle, RateLimitLayer, ResponseHeaders,
    backend::Backend,
    key::{self, RequestParts},
};

use super::{
    Log, Pause, Rules, costs, keys, pauses, play, rules,
    sides::{Turn, run},
};

/// Settings of a layer.
#[derive(Clone, Debug)]
struct Setup {
    missing: MissingKey,
    fields: ResponseHeaders,
    x_ratelimit: bool,
    shadow: bool,
    handle: bool,
    refunds: bool,
    grpc: bool,
    /// Whether requests carry their own costs. Otherwise all cost the same, at most the burst.
    weighted: bool,
}

fn setups() -> impl Strategy<Value = Setup> {
    let missing = prop_oneof![
        Just(MissingKey::Shared),
        Just(MissingKey::Skip),
        Just(MissingKey::Reject)
    ];
    let fields = prop_oneof![
        3 => Just(ResponseHeaders::Always),
        1 => Just(ResponseHeaders::OnRejection),
        1 => (0.01_f64..1.0).prop_map(ResponseHeaders::NearLimit),
        1 => Just(ResponseHeaders::Never),
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

/// A request and its handler's corrections.
#[derive(Clone, Debug)]
struct Visit {
    pause: Pause,
    key: Option<u8>,
    cost: u64,
    quota: Option<u64>,
    exempt: bool,
    fails: bool,
    correction: Correction,
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

impl Turn for Visit {
    type Request = Request<()>;

    fn pause(&self) -> Pause {
        self.pause
    }

    fn is_dropped(&self) -> bool {
        self.dropped
    }

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

fn number(head: RequestParts<'_>, name: &str) -> Option<u64> {
    head.headers().get(name)?.to_str().ok()?.parse().ok()
}

/// An inner service that records the limits of its requests and corrects their charges.
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
        policy.quota_by(|head| number(head, "quota").map(Quota::per_second))
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

fn told(outcome: &Result<Response<Bytes>, Infallible>) -> String {
    let response = outcome.as_ref().unwrap();
    let fields: &HeaderMap = response.headers();
    let (status, body) = (response.status(), response.body());
    format!("{status} {fields:?} {body:?}")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn a_layer_sends_the_same_responses_on_the_shortcut_and_on_the_general_path(
        rules in rules(), setup in setups(), room in 1_usize..40, visits in visits()
    ) {
        let service = |log: &Log, backend| service(&rules, &setup, log, backend);
        let [short, long] = play(run(room, service, visits, told));
        prop_assert_eq!(short, long);
    }
}
