//! Log lines for operators: one per change, not one per request.

use std::{
    fmt::{self, Write},
    sync::{Arc, Mutex},
    time::Duration,
};

use tower::Layer;
use tower_dist_ratelimit::{
    FailureMode, Limiter, MissingKey, Policy, RateLimitLayer, TrustedProxies,
    backend::{BackendError, CasBackend, CompareAndSwap, Memory},
    key::{self, KeyExtractor},
};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

use crate::support::{Mood, Probe, Remote, Scripted, from, get, send, slow};

/// Records the levels and fields of events.
#[derive(Clone, Default)]
struct Levels {
    levels: Arc<Mutex<Vec<Level>>>,
    text: Arc<Mutex<String>>,
}

struct Text<'a>(&'a mut String);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl Levels {
    /// Returns the messages, without the fields.
    fn messages(&self) -> Vec<String> {
        let text = self.text.lock().unwrap();
        let lines = text.split(" message=").skip(1);
        let ends = [" name=", " policy=", " action=", " hint=", " deadline="];
        lines
            .map(|line| {
                let end = ends.iter().filter_map(|field| line.find(field)).min();
                line[..end.unwrap_or(line.len())].to_owned()
            })
            .collect()
    }

    fn seen(&self) -> Vec<Level> {
        self.levels.lock().unwrap().clone()
    }
}

impl Subscriber for Levels {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tower_dist_ratelimit")
    }

    fn event(&self, event: &Event<'_>) {
        self.levels.lock().unwrap().push(*event.metadata().level());
        event.record(&mut Text(&mut self.text.lock().unwrap()));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test(start_paused = true)]
async fn missing_keys_log_one_warning_per_policy() {
    let levels = Levels::default();
    let _guard = tracing::subscriber::set_default(levels.clone());
    let mut service = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("each", slow(9)).by(key::header("key")))
        .build()
        .unwrap()
        .layer(Probe::default());
    send(&mut service, from("a")).await;
    assert!(levels.seen().is_empty());
    for _ in 0..3 {
        send(&mut service, get()).await;
    }
    assert_eq!(levels.seen(), vec![Level::WARN]);
    let message = "rate-limit key missing: the `missing_key` action of the policy applies";
    assert_eq!(levels.messages(), [message]);
}

#[tokio::test(start_paused = true)]
async fn a_misconfigured_server_logs_one_error() {
    let levels = Levels::default();
    let _guard = tracing::subscriber::set_default(levels.clone());
    let mut service = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("peer", slow(9)).by(key::peer_addr()))
        .build()
        .unwrap()
        .layer(Probe::default());
    for _ in 0..3 {
        send(&mut service, get()).await;
    }
    assert_eq!(levels.seen(), [Level::ERROR]);
    let message = "rate-limit key missing: requests without it are rejected with an internal error";
    assert_eq!(levels.messages(), [message]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hides_the_peer_logs_one_warning_in_every_mode() {
    for action in [MissingKey::Shared, MissingKey::Skip, MissingKey::Reject] {
        let peers: [Policy; 3] = [
            Policy::new("peer", slow(9)).by(key::peer_addr()),
            Policy::new("client", slow(9)).by(key::client_ip(TrustedProxies::private())),
            Policy::new("either", slow(9)).by(key::header("key").or(key::peer_addr())),
        ];
        for policy in peers {
            let levels = Levels::default();
            let _guard = tracing::subscriber::set_default(levels.clone());
            let mut service = RateLimitLayer::builder(Memory::default())
                .limit(policy.missing_key(action))
                .build()
                .unwrap()
                .layer(Probe::default());
            for _ in 0..3 {
                send(&mut service, get()).await;
            }
            assert_eq!(levels.seen(), vec![Level::WARN], "{action:?}");
            let text = levels.text.lock().unwrap();
            assert!(
                text.contains("into_make_service_with_connect_info")
                    && text.contains("axum-08")
                    && text.contains("tonic-014"),
                "{text}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_backend_logs_one_line_and_its_recovery_another() {
    let levels = Levels::default();
    let _guard = tracing::subscriber::set_default(levels.clone());
    let remote = Remote::after(Duration::from_secs(1));
    let delay = remote.delay();
    let mut service = RateLimitLayer::builder(remote)
        .limit(Policy::new("all", slow(9)))
        .failure_mode(FailureMode::Open)
        .build()
        .unwrap()
        .layer(Probe::default());
    for _ in 0..4 {
        send(&mut service, get()).await;
    }
    assert!(levels.seen().is_empty(), "accidents");
    for _ in 0..100 {
        send(&mut service, get()).await;
        tokio::time::advance(Duration::from_millis(50)).await;
    }
    assert_eq!(levels.seen(), vec![Level::WARN]);
    *delay.lock().unwrap() = Duration::from_millis(1);
    tokio::time::advance(Duration::from_secs(2)).await;
    for _ in 0..3 {
        send(&mut service, get()).await;
    }
    assert_eq!(levels.seen(), vec![Level::WARN, Level::INFO]);
}

#[tokio::test(start_paused = true)]
async fn each_change_of_the_circuit_logs_one_line() {
    let levels = Levels::default();
    let _guard = tracing::subscriber::set_default(levels.clone());
    let store = Scripted::new(Mood::AtOnce);
    let layer = RateLimitLayer::builder(store.clone()).limit(Policy::new("all", slow(9_000)));
    let mut service = layer.build().unwrap().layer(Probe::default());
    for outages in 1..4 {
        for mood in [Mood::Failing, Mood::After(Duration::from_millis(1))] {
            store.is(mood);
            for _ in 0..200 {
                send(&mut service, get()).await;
                tokio::time::advance(Duration::from_millis(10)).await;
            }
        }
        assert_eq!(levels.seen(), [Level::WARN, Level::INFO].repeat(outages));
    }
    let text = levels.text.lock().unwrap();
    let lines: Vec<_> = text.split(" message=").skip(1).take(2).collect();
    assert_eq!(
        lines,
        [
            "rate-limit circuit opened: the failure mode decides error=the rate limit's backend did not decide: out of order failure_mode=Local { instances: 1 }",
            "rate-limit circuit closed: the backend decides",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn late_quotas_log_one_warning_and_are_not_failures_of_the_backend() {
    let levels = Levels::default();
    let _guard = tracing::subscriber::set_default(levels.clone());
    let policy = Policy::new("p", slow(2)).quota_by_async(|_| std::future::pending());
    let mut service = RateLimitLayer::builder(Memory::default())
        .limit(policy)
        .build()
        .unwrap()
        .layer(Probe::default());
    for _ in 0..9 {
        send(&mut service, get()).await;
    }
    assert_eq!(levels.seen(), vec![Level::WARN]);
    let message = "rate-limit quota look-up timed out: the failure mode decides";
    assert_eq!(levels.messages(), [message]);
}

/// A store that takes its first value and then fails each swap.
#[derive(Default)]
struct WritesOnce(Mutex<Option<Vec<u8>>>);

impl CompareAndSwap for WritesOnce {
    type Version = ();

    async fn load(&self, _: &[u8]) -> Result<Option<(Vec<u8>, ())>, BackendError> {
        let value = self.0.lock().unwrap().clone();
        Ok(value.map(|value| (value, ())))
    }

    async fn swap(
        &self,
        _: &[u8],
        expected: Option<()>,
        value: &[u8],
        _: Duration,
    ) -> Result<bool, BackendError> {
        if expected.is_some() {
            return Err(BackendError::new("read-only"));
        }
        *self.0.lock().unwrap() = Some(value.to_vec());
        Ok(true)
    }
}

#[tokio::test(start_paused = true)]
async fn lost_refunds_log_one_warning() {
    let levels = Levels::default();
    let _guard = tracing::subscriber::set_default(levels.clone());
    let backend = CasBackend::new(WritesOnce::default());
    let limiter = Limiter::new(backend, Policy::new("p", slow(9))).unwrap();
    assert!(limiter.check("k").await.unwrap().allowed);
    for _ in 0..2 {
        limiter.refund("k", 1).await.unwrap_err();
    }
    let message = "gave up a refund or an extra charge of a rate limit: its count stays wrong";
    assert_eq!(levels.messages().len(), 1);
    assert!(levels.messages()[0].starts_with(message));
}
