use std::any::Any;
use std::io;
#[cfg(feature = "http")]
use std::sync::Arc;

use super::*;
use crate::{Classify, ClassifyFn, EveryError, Generic, Hint, Outcomes, RetryIf, WrapsError};

type BoxError = Box<dyn Error + Send + Sync>;

const WAIT: Duration = Duration::from_millis(844);

/// The verdict of the generic protocol.
fn verdict<E: 'static>(error: E) -> Verdict {
    verdict_by(EveryError, error)
}

/// The verdict with a user's rule.
fn verdict_by<C, E: 'static>(rule: C, error: E) -> Verdict
where
    C: Classify<(), (), E, Context = ()>,
{
    let outcome: Result<(), E> = Err(error);
    Outcomes::<(), _, _>::classify(
        &<Generic>::default().rule(rule),
        &(),
        &Attempt::PRIMARY,
        &outcome,
    )
}

fn boxed(wait: Option<Duration>) -> BoxError {
    Rejected::new(wait).into()
}

/// A layer's unboxed error.
#[derive(Debug)]
enum Limit<E> {
    Rejected(Rejected),
    Inner(E),
}

impl<E: 'static> WrapsError for Limit<E> {
    fn wrapped(&self) -> &dyn Any {
        match self {
            Self::Rejected(rejected) => rejected,
            Self::Inner(error) => error,
        }
    }
}

#[test]
fn a_rejection_is_retried_after_its_wait_or_is_fatal() {
    let waited = Verdict::not_sent().after(WAIT);
    assert_eq!(verdict(boxed(Some(WAIT))), waited);
    assert_eq!(verdict(boxed(None)), Verdict::Fatal);
    assert_eq!(verdict(BoxError::from("reset")), Verdict::transient());
    // The source of another error.
    let nested = io::Error::other(Rejected::new(Some(WAIT)));
    assert_eq!(verdict(nested), waited);
}

#[test]
fn a_rule_that_retries_an_error_waits_for_a_rejection_or_gives_it_to_the_caller() {
    let retried = RetryIf(|outcome: &Result<(), BoxError>| outcome.is_err());
    assert_eq!(
        verdict_by(retried, boxed(Some(WAIT))),
        Verdict::not_sent().after(WAIT)
    );
    assert_eq!(verdict_by(retried, boxed(None)), Verdict::Fatal);
    assert_eq!(verdict_by(retried, "reset".into()), Verdict::transient());
    let never = RetryIf(|_: &Result<(), BoxError>| false);
    assert_eq!(verdict_by(never, boxed(Some(WAIT))), Verdict::Fatal);

    let by = |verdict, wait| {
        let rule = ClassifyFn(move |_: &Result<(), BoxError>, _: &Attempt| verdict);
        verdict_by(rule, boxed(wait))
    };
    let after = |wait| Verdict::not_sent().after(wait);
    for retried in [
        Verdict::Unprocessed,
        Verdict::throttled(),
        Verdict::timeout(),
    ] {
        assert_eq!(by(retried, Some(WAIT)), after(WAIT));
        assert_eq!(by(retried, None), Verdict::Fatal);
    }
    // The longer wait counts. One wait, from the rule or the rejection, is enough.
    assert_eq!(
        by(Verdict::transient().after(WAIT / 2), Some(WAIT)),
        after(WAIT)
    );
    assert_eq!(
        by(Verdict::transient().after(WAIT * 2), Some(WAIT)),
        after(WAIT * 2)
    );
    assert_eq!(by(Verdict::transient().after(WAIT), None), after(WAIT));
    let forbidden = Verdict::transient().hinted(Hint::Never);
    assert_eq!(by(forbidden, Some(WAIT)), forbidden);
}

#[cfg(feature = "http")]
#[test]
fn a_rule_of_http_does_not_shorten_the_wait_of_a_rejection() {
    use bytes::Bytes;
    use http::{Method, Request, Response};
    use http_body_util::Empty;

    use crate::{Dialect, Http, Requests};

    let rules = Http::default()
        .with(|settings| settings.classify = Some(Arc::new(|_| Verdict::transient())));
    for method in [Method::GET, Method::POST] {
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.method_mut() = method;
        let context = rules.context(&request);
        let classify_outcome = |error: BoxError| {
            let outcome = Err::<Response<()>, _>(error);
            let attempt = &Attempt::PRIMARY;
            Outcomes::<Request<Empty<Bytes>>, _, _>::classify(&rules, &context, attempt, &outcome)
        };
        assert_eq!(
            classify_outcome(boxed(Some(WAIT))),
            Verdict::not_sent().after(WAIT)
        );
        assert!(!classify_outcome(boxed(None)).is_retry());
    }
}

#[test]
fn a_wrapper_that_wraps_itself_does_not_hang() {
    struct Ring;
    impl WrapsError for Ring {
        fn wrapped(&self) -> &dyn Any {
            self
        }
    }
    Ring::register();
    assert_eq!(verdict(Ring), Verdict::transient());
}

#[test]
fn a_wrapper_that_was_registered_shows_its_rejection_and_its_inner_error() {
    struct Own;
    let limit = || Limit::<Own>::Rejected(Rejected::new(Some(WAIT)));
    assert_eq!(verdict(limit()), Verdict::transient());
    Limit::<Own>::register();
    Limit::<Own>::register();
    assert_eq!(verdict(limit()), Verdict::not_sent().after(WAIT));
    assert_eq!(verdict(Limit::Inner(Own)), Verdict::transient());
    // An unboxed wrapper in an unboxed wrapper.
    Limit::<Limit<BoxError>>::register();
    Limit::<BoxError>::register();
    let inner: BoxError = Rejected::new(None).into();
    let nested = Limit::Inner(Limit::Inner(inner));
    assert_eq!(verdict(nested), Verdict::Fatal);
}

/// Fails when tower changes the texts of its errors.
#[tokio::test]
async fn rejections_of_towers_own_layers_are_fatal() {
    use tower::{ServiceExt, load_shed::error::Overloaded, service_fn};

    assert_eq!(verdict(BoxError::from(Overloaded::new())), Verdict::Fatal);

    let echo = service_fn(|(): ()| async { Ok::<_, BoxError>(()) });
    let (buffer, worker) = tower::buffer::Buffer::pair(echo, 1);
    drop(worker);
    let closed: BoxError = buffer.oneshot(()).await.unwrap_err();
    assert!(closed.is::<tower::buffer::error::Closed>());
    assert_eq!(verdict(closed), Verdict::Fatal);

    // A failed worker returns the same error for every further request.
    let never_ready = NeverReady;
    let (buffer, worker) = tower::buffer::Buffer::pair(never_ready, 1);
    tokio::spawn(worker);
    let failed: BoxError = buffer.oneshot(()).await.unwrap_err();
    assert!(failed.is::<tower::buffer::error::ServiceError>());
    assert_eq!(verdict(failed), Verdict::Fatal);
}

#[derive(Clone)]
struct NeverReady;

impl tower::Service<()> for NeverReady {
    type Response = ();
    type Error = BoxError;
    type Future = std::future::Ready<Result<(), BoxError>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), BoxError>> {
        std::task::Poll::Ready(Err("closed".into()))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        unreachable!("it is never ready")
    }
}

/// Copied from tower-resilience 0.14, which is not a dependency of this crate.
#[test]
fn rejections_of_tower_resilience_are_fatal() {
    for text in [
        "rate limit exceeded",
        "Rate limited",
        "Rate limited, retry after 844ms",
        "circuit is open; call not permitted",
        "Circuit breaker is open",
        "Circuit breaker 'payments' is open",
        "bulkhead is full: max concurrent calls (10) reached",
        "Bulkhead full (10/10)",
        "timeout waiting for bulkhead permit",
        "bulkhead semaphore is closed",
        "instance 'a' is ejected by outlier detection",
        "Instance 'a' ejected by outlier detection",
    ] {
        assert_eq!(verdict(BoxError::from(text)), Verdict::Fatal, "{text}");
    }
}

#[test]
fn a_text_that_only_begins_like_a_rejection_is_no_rejection() {
    for text in [
        "service overloaded!",
        "service",
        "the service overloaded",
        "Circuit breaker 'payments' is opening",
        "inner service error: rate limit exceeded",
    ] {
        assert_eq!(
            verdict(BoxError::from(text)),
            Verdict::transient(),
            "{text}"
        );
    }
}

#[test]
fn the_message_of_a_rejection_names_the_wait_if_there_is_one() {
    let text = "the request was rejected before it was sent";
    assert_eq!(Rejected::new(None).to_string(), text);
    let waiting = Rejected::new(Some(Duration::from_secs(2)));
    assert_eq!(waiting.to_string(), format!("{text}; retry after 2s"));
}
