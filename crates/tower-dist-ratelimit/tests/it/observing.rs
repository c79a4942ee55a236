//! Shadows, exemptions and observers.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::StatusCode;
use tower::{Layer, Service, ServiceExt};
use tower_dist_ratelimit::{
    Event, FailureMode, MissingKey, Observer, Policy, RateLimitLayer, RateLimitLayerBuilder,
    ResponseHeaders,
    backend::{Backend, BackendError, Memory},
    key,
};

use crate::support::{Broken, Probe, Remote, Told, field, from, get, send, slow};

fn builder(backend: impl Backend) -> RateLimitLayerBuilder {
    let keyed = Policy::new("each", slow(1)).by(key::header("key"));
    RateLimitLayer::builder(backend).limit(keyed.missing_key(MissingKey::Reject))
}

#[tokio::test(start_paused = true)]
async fn each_request_emits_one_event() {
    let told = Told::default();
    let layer = builder(Memory::default()).limit(Policy::new("all", slow(9)));
    let layer = layer.observer(told.clone()).build().unwrap();
    let mut service = layer.layer(Probe::default());
    send(&mut service, from("a")).await;
    assert_eq!(told.all(), [r#"allowed [("each", 0), ("all", 8)]"#]);
    send(&mut service, from("a")).await;
    assert_eq!(told.all(), [r#"rejected Quota ["each"] of 2"#]);
    send(&mut service, get()).await;
    assert_eq!(told.all(), ["rejected MissingKey [] of 0"]);
}

#[tokio::test(start_paused = true)]
async fn a_backend_failure_is_emitted_before_the_outcome() {
    for (action, follows) in [
        (FailureMode::Open, r#"allowed [("each", 0)]"#),
        (FailureMode::Closed, "rejected Backend [] of 1"),
    ] {
        let told = Told::default();
        let layer = builder(Broken).failure_mode(action);
        let layer = layer.observer(told.clone()).build().unwrap();
        send(&mut layer.layer(Probe::default()), from("a")).await;
        assert_eq!(told.all(), ["failed late=false", follows]);

        let layer = builder(Remote::after(Duration::from_secs(9)));
        let layer = layer.failure_mode(action).observer(told.clone());
        let layer = layer.build().unwrap();
        send(&mut layer.layer(Probe::default()), from("a")).await;
        assert_eq!(told.all(), ["failed late=true", follows]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_dropped_before_its_decision_emits_one_event_and_a_decided_request_one() {
    let told = Told::default();
    let layer = builder(Remote::after(Duration::from_millis(1)));
    let layer = layer.observer(Arc::new(told.clone())).build().unwrap();
    let mut service = layer.layer(Probe::default());
    let undecided = service.ready().await.unwrap().call(from("a"));
    assert!(told.all().is_empty());
    drop(undecided);
    assert_eq!(told.all(), ["cancelled"]);
    send(&mut service, from("b")).await;
    assert_eq!(told.all(), [r#"allowed [("each", 0)]"#]);
    send(&mut service, from("b")).await;
    assert_eq!(told.all(), [r#"rejected Quota ["each"] of 1"#]);
}

#[tokio::test(start_paused = true)]
async fn a_shadow_rejects_no_request_and_sends_no_fields() {
    let told = Told::default();
    let probe = Probe::default();
    let layer = builder(Memory::default()).shadow().x_ratelimit();
    let layer = layer.observer(told.clone()).build().unwrap();
    let mut service = layer.layer(probe.twin());
    for request in [from("a"), from("a"), get()] {
        let response = send(&mut service, request).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert!(response.headers().is_empty(), "{response:?}");
    }
    assert_eq!(
        told.all(),
        [
            r#"allowed [("each", 0)]"#,
            r#"shadowed Quota ["each"] of 1"#,
            "shadowed MissingKey [] of 0"
        ]
    );
    assert_eq!((probe.calls(), probe.clones()), (3, 0), "called in place");

    let layer = builder(Broken).failure_mode(FailureMode::Closed).shadow();
    let response = send(
        &mut layer.build().unwrap().layer(Probe::default()),
        from("a"),
    )
    .await;
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_late_shadow_calls_the_ready_instance() {
    let probe = Probe::default();
    let layer = builder(Remote::after(Duration::from_millis(1))).shadow();
    let mut service = layer.build().unwrap().layer(probe.twin());
    for _ in 0..2 {
        assert_eq!(send(&mut service, from("a")).await.status(), StatusCode::OK);
    }
    assert_eq!(probe.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_exempt_request_is_not_charged_and_has_no_fields_and_no_event() {
    let told = Told::default();
    let layer = builder(Memory::default())
        .exempt(|head| head.method() == "OPTIONS")
        .exempt(|head| head.uri().path() == "/healthz")
        .observer(told.clone())
        .build()
        .unwrap();
    let mut service = layer.layer(Probe::default());
    let health = || {
        let mut request = from("a");
        *request.uri_mut() = "/healthz".parse().unwrap();
        request
    };
    let preflight = || {
        let mut request = from("a");
        *request.method_mut() = http::Method::OPTIONS;
        request
    };
    for request in [health(), preflight(), health(), preflight()] {
        let response = send(&mut service, request).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert!(response.headers().is_empty());
    }
    assert!(told.all().is_empty());
    assert_eq!(send(&mut service, from("a")).await.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn older_fields_describe_the_policy_that_rejects_or_would_reject_first() {
    let layer = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("wide", slow(9)))
        .limit(Policy::new("narrow", slow(3)).cost(2))
        .x_ratelimit()
        .build()
        .unwrap();
    let mut service = layer.layer(Probe::default());
    let standing = |response: &http::Response<_>| {
        ["limit", "remaining", "reset"].map(|name| {
            let value = field(response, &format!("x-ratelimit-{name}"));
            value.unwrap().parse::<u64>().unwrap()
        })
    };
    assert_eq!(standing(&send(&mut service, get()).await), [3, 1, 2]);
    let response = send(&mut service, get()).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(standing(&response), [3, 1, 1], "one more token is needed");
    assert!(field(&response, "ratelimit").is_some());

    let layer = builder(Memory::default())
        .headers(ResponseHeaders::OnRejection)
        .x_ratelimit();
    let mut service = layer.build().unwrap().layer(Probe::default());
    let response = send(&mut service, from("a")).await;
    assert!(response.headers().is_empty());
    let response = send(&mut service, from("a")).await;
    assert_eq!(standing(&response), [1, 0, 1]);
}

/// Another policy has fewer remaining tokens but allows the request.
#[tokio::test(start_paused = true)]
async fn older_fields_of_a_rejection_are_not_those_of_a_policy_that_allows() {
    let layer = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("dear", slow(5)).cost(3))
        .limit(Policy::new("cheap", slow(2)))
        .x_ratelimit();
    let mut service = layer.build().unwrap().layer(Probe::default());
    for remaining in ["1", "2"] {
        let response = send(&mut service, get()).await;
        assert_eq!(field(&response, "x-ratelimit-remaining"), Some(remaining));
    }
}

#[tokio::test(start_paused = true)]
async fn older_fields_of_an_inner_service_stay_as_they_are() {
    const NAMES: [&str; 3] = [
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
    ];
    for own in NAMES {
        let inner = tower::service_fn(async |_| {
            let response = http::Response::builder().header(own, "7");
            Ok::<_, std::convert::Infallible>(response.body(bytes::Bytes::new()).unwrap())
        });
        let layer = RateLimitLayer::builder(Memory::default()).limit(Policy::new("p", slow(9)));
        let layer = layer.x_ratelimit().build().unwrap();
        let response = send(&mut layer.layer(inner), get()).await;
        for name in NAMES {
            let expected = (name == own).then_some("7");
            assert_eq!(field(&response, name), expected, "{own}");
        }
    }
}

/// Records the events that are not about the decision on one request.
#[derive(Clone, Default)]
struct Changes(Arc<Mutex<Vec<&'static str>>>);

impl Observer for Changes {
    fn on_event(&self, _: &Arc<str>, event: Event<'_>) {
        self.0.lock().unwrap().push(match event {
            Event::BackendFailed(_) => "failed",
            Event::CircuitOpened(_) => "opened",
            Event::CircuitClosed => "closed",
            Event::Waited(_) => "waited",
            Event::Cancelled => "cancelled",
            _ => return,
        });
    }
}

#[tokio::test(start_paused = true)]
async fn an_arc_of_an_observer_passes_on_every_event() {
    let changes = Changes::default();
    let (shared, name) = (Arc::new(changes.clone()), Arc::from(""));
    let error = BackendError::new("out of order");
    for event in [
        Event::BackendFailed(&error),
        Event::CircuitOpened(&error),
        Event::CircuitClosed,
        Event::Waited(Duration::ZERO),
        Event::Cancelled,
    ] {
        Observer::on_event(&shared, &name, event);
    }
    let all = ["failed", "opened", "closed", "waited", "cancelled"];
    assert_eq!(*changes.0.lock().unwrap(), all);

    let told = Told::default();
    let shared = Arc::new(told.clone());
    let open = builder(Memory::default()).observer(Arc::clone(&shared));
    let mut service = open.build().unwrap().layer(Probe::default());
    send(&mut service, from("a")).await;
    send(&mut service, from("a")).await;
    let shadow = builder(Memory::default()).observer(shared).shadow();
    send(&mut shadow.build().unwrap().layer(Probe::default()), get()).await;
    let outcomes = told.all();
    let outcomes: Vec<_> = outcomes.iter().map(|one| one.split(' ').next()).collect();
    assert_eq!(outcomes, ["allowed", "rejected", "shadowed"].map(Some),);
}

#[tokio::test(start_paused = true)]
async fn each_observer_of_a_pair_receives_every_event() {
    let (first, second) = (Told::default(), Told::default());
    let layer = builder(Memory::default()).observer((first.clone(), second.clone()));
    let mut service = layer.build().unwrap().layer(Probe::default());
    send(&mut service, from("a")).await;
    send(&mut service, from("a")).await;
    let received = first.all();
    assert_eq!(received.len(), 2);
    assert_eq!(second.all(), received);
}
