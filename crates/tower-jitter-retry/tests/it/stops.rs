//! Every reason to stop, in the observer's events and in the response's extensions.

use std::task::{Context, Poll};
use std::time::Duration;

use ::http::{Method, Request, Response};
use bytes::Bytes;
use http_body_util::Full;
use tower::{Layer, Service, ServiceExt};
use tower_jitter_retry::{
    Backoff, Budget, Deadline, Http, Mode, RetryInfo, RetryLayer, RetryLayerBuilder, RetryOverride,
    StopReason,
};

use crate::support::Event::Stopped;
use crate::support::{Answer, BoxError, Log, Upstream, ms};

fn http() -> RetryLayerBuilder<Http> {
    let backoff = Backoff::constant(ms(10)).jitter(tower_jitter_retry::Jitter::None);
    RetryLayer::builder().backoff(backoff).http()
}

fn get() -> Request<Full<Bytes>> {
    Request::get("/").body(Full::default()).unwrap()
}

fn hint(seconds: &'static str) -> Answer {
    Answer::Status(503, vec![("retry-after", seconds)])
}

/// Runs a call. Returns its attempts, its reason, and the report in the response.
async fn run(
    layer: RetryLayerBuilder<Http>,
    request: Request<Full<Bytes>>,
    answers: &[Answer],
) -> (u32, StopReason, Option<(u32, Duration, StopReason)>) {
    let log = Log::default();
    let layer = layer.observer(log.clone()).build().unwrap();
    let upstream = Upstream::new(answers.iter().cloned());
    let response = layer
        .layer(upstream.clone())
        .oneshot(request)
        .await
        .unwrap();
    let Some(Stopped(attempts, reason)) = log.take().pop() else {
        panic!("not stopped");
    };
    assert_eq!(upstream.seen().len(), attempts as usize);
    let info = response.extensions().get::<RetryInfo>();
    let info = info.map(|info| (info.attempts, info.slept, info.stop));
    (attempts, reason, info)
}

/// Checks a call whose response has a report.
async fn ends_with_report(
    layer: RetryLayerBuilder<Http>,
    request: Request<Full<Bytes>>,
    answers: &[Answer],
    (attempts, slept, reason): (u32, u64, StopReason),
) {
    let expected = (attempts, reason, Some((attempts, ms(slept), reason)));
    assert_eq!(run(layer, request, answers).await, expected);
}

/// Checks a call whose response has no report.
async fn ends_without_report(
    layer: RetryLayerBuilder<Http>,
    request: Request<Full<Bytes>>,
    answers: &[Answer],
    reason: StopReason,
) {
    assert_eq!(run(layer, request, answers).await, (1, reason, None));
}

#[tokio::test(start_paused = true)]
async fn a_success_ends_the_call() {
    let good = Answer::status(200);
    ends_without_report(
        http(),
        get(),
        std::slice::from_ref(&good),
        StopReason::Success,
    )
    .await;
    let answers = [Answer::status(503), good];
    ends_with_report(http(), get(), &answers, (2, 10, StopReason::Success)).await;
}

#[tokio::test(start_paused = true)]
async fn a_fatal_outcome_ends_the_call() {
    let bad = Answer::status(501);
    ends_without_report(http(), get(), std::slice::from_ref(&bad), StopReason::Fatal).await;
    let answers = [Answer::status(503), bad];
    ends_with_report(http(), get(), &answers, (2, 10, StopReason::Fatal)).await;
}

#[tokio::test(start_paused = true)]
async fn the_last_attempt_ends_the_call() {
    let answers = [Answer::status(503)];
    ends_with_report(
        http(),
        get(),
        &answers,
        (3, 20, StopReason::AttemptsExhausted),
    )
    .await;
    let once = http().max_attempts(1);
    ends_with_report(once, get(), &answers, (1, 0, StopReason::AttemptsExhausted)).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_resent_ends_the_call() {
    let mut connect = get();
    *connect.method_mut() = Method::CONNECT;
    let answers = [Answer::status(429)];
    ends_with_report(http(), connect, &answers, (1, 0, StopReason::NotResendable)).await;
    let mut upgrade = get();
    upgrade
        .headers_mut()
        .insert("upgrade", "websocket".parse().unwrap());
    ends_with_report(http(), upgrade, &answers, (1, 0, StopReason::NotResendable)).await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_above_the_maximum_ends_the_call() {
    ends_with_report(
        http(),
        get(),
        &[hint("61")],
        (1, 0, StopReason::RetryAfterTooLong),
    )
    .await;
    let patient = http().max_retry_after(ms(61_000)).max_attempts(2);
    let (attempts, reason, _) = run(patient, get(), &[hint("61")]).await;
    assert_eq!((attempts, reason), (2, StopReason::AttemptsExhausted));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_before_the_next_retry_ends_the_call() {
    let answers = [Answer::status(503)];
    let until = http().retry_until(ms(20));
    ends_with_report(
        until,
        get(),
        &answers,
        (2, 10, StopReason::DeadlineExceeded),
    )
    .await;
    let mut request = get();
    request
        .extensions_mut()
        .insert(RetryOverride::new().deadline(Deadline::after(ms(10))));
    ends_with_report(
        http(),
        request,
        &answers,
        (1, 0, StopReason::DeadlineExceeded),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_empty_budget_ends_the_call() {
    let answers = [Answer::status(503)];
    let poor = http().budget(Budget::ratio(0.0).burst(1));
    ends_with_report(poor, get(), &answers, (2, 10, StopReason::BudgetExhausted)).await;
    let none = http().budget(Budget::ratio(0.0).initial(0));
    ends_with_report(none, get(), &answers, (1, 0, StopReason::BudgetExhausted)).await;
}

#[tokio::test(start_paused = true)]
async fn shadow_mode_and_off_mode_end_the_call() {
    let answers = [Answer::status(503)];
    let shadow = || http().mode(Mode::Shadow);
    ends_without_report(shadow(), get(), &answers, StopReason::Shadow).await;
    ends_without_report(http().mode(Mode::Off), get(), &answers, StopReason::Off).await;
    // Shadow mode knows this without a copy of the request.
    let mut connect = get();
    *connect.method_mut() = Method::CONNECT;
    let answers = [Answer::status(429)];
    ends_without_report(shadow(), connect, &answers, StopReason::NotResendable).await;
}

/// A service of which only the first instance becomes ready.
struct First(Upstream, bool);

impl Clone for First {
    fn clone(&self) -> Self {
        Self(self.0.clone(), false)
    }
}

impl Service<Request<Full<Bytes>>> for First {
    type Response = Response<Full<Bytes>>;
    type Error = BoxError;
    type Future = <Upstream as Service<Request<Full<Bytes>>>>::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(match self.1 {
            true => Ok(()),
            false => Err("closed".into()),
        })
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        self.0.call(request)
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_fails_to_get_ready_ends_the_call() {
    let log = Log::default();
    let layer = http().observer(log.clone()).build().unwrap();
    let mut service = layer.layer(First(Upstream::new([Answer::status(503)]), true));
    let call = service.ready().await.unwrap().call(get());
    assert_eq!(call.await.unwrap_err().to_string(), "closed");
    assert_eq!(log.take().pop(), Some(Stopped(1, StopReason::NotReady)));
}
