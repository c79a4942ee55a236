//! Rate limits with tonic.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use prost::Message;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Status};
use tower::Layer;
use tower_dist_ratelimit::backend::{
    Answer, Backend, BackendError, BoxFuture, Charge, Memory, PolicyId,
};
use tower_dist_ratelimit::{
    BuildError, CallLimitLayer, Decision, FailureMode, LimitError, Policy, Quota, RateLimitLayer,
    Reason, key,
};

use crate::few;
use crate::greeter::{Greeter, greet};

/// A client of a greeter behind a limit, and the number of requests that reached the greeter.
pub(crate) async fn greeter(backend: impl Backend, policy: Policy) -> (Channel, Arc<AtomicUsize>) {
    greeter_or(backend, policy, FailureMode::default()).await
}

/// Like [`greeter`], with another failure mode.
async fn greeter_or(
    backend: impl Backend,
    policy: Policy,
    on_error: FailureMode,
) -> (Channel, Arc<AtomicUsize>) {
    let layer = RateLimitLayer::builder(backend).limit(policy).grpc();
    let layer = layer.failure_mode(on_error).build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(AtomicUsize::new(0));
    let server = Server::builder()
        .layer(layer)
        .add_service(Greeter::new(Arc::clone(&requests)))
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(server);
    let channel = Endpoint::from_shared(url).unwrap().connect().await;
    (channel.unwrap(), requests)
}

/// The fields of `google.rpc.Status` that the tests read.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<ProtoDuration>,
}

#[derive(Clone, PartialEq, Message)]
struct ProtoDuration {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

#[derive(Clone, PartialEq, Message)]
struct QuotaFailure {
    #[prost(message, repeated, tag = "1")]
    violations: Vec<Violation>,
}

#[derive(Clone, PartialEq, Message)]
struct Violation {
    #[prost(string, tag = "1")]
    subject: String,
}

fn decode<M: Message + Default>(any: &Any, name: &str) -> M {
    assert_eq!(
        any.type_url,
        format!("type.googleapis.com/google.rpc.{name}")
    );
    M::decode(&any.value[..]).unwrap()
}

/// The wait of a rejection, from both places where it is stated.
fn told(status: &Status) -> (Duration, Duration) {
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.message(), "rate limit exceeded");
    let pushback = status.metadata().get("grpc-retry-pushback-ms").unwrap();
    let pushback = pushback.to_str().unwrap().parse().unwrap();
    let details = RpcStatus::decode(status.details()).unwrap();
    assert_eq!(
        (details.code, details.message.as_str()),
        (8, "rate limit exceeded")
    );
    let info: RetryInfo = decode(&details.details[0], "RetryInfo");
    let failure: QuotaFailure = decode(&details.details[1], "QuotaFailure");
    assert_eq!(failure.violations[0].subject, "peer");
    let delay = info.retry_delay.unwrap();
    let delay = Duration::new(
        delay.seconds.try_into().unwrap(),
        delay.nanos.try_into().unwrap(),
    );
    (Duration::from_millis(pushback), delay)
}

#[tokio::test]
async fn a_tonic_server_rejectes_by_peer_and_its_client_reads_why_and_until_when() {
    // Without the peer's address the status would differ.
    let policy = Policy::new("peer", few(2)).by(key::peer_addr());
    let (channel, requests) = greeter(Memory::default(), policy).await;
    for _ in 0..2 {
        assert_eq!(greet(channel.clone(), "ada").await.unwrap(), "hello, ada");
    }
    let status = greet(channel, "ada").await.unwrap_err();
    let (pushback, delay) = told(&status);
    assert!(delay <= pushback && pushback - delay < Duration::from_millis(1));
    assert!((50..=60).contains(&delay.as_secs()), "{delay:?}");
    assert!(status.metadata().get("ratelimit").is_some());
    assert_eq!(requests.load(SeqCst), 2);
}

#[tokio::test]
async fn a_client_that_waits_for_the_retry_after_is_allowed() {
    let quota = Quota::new(1, Duration::from_millis(150));
    let (channel, _) = greeter(Memory::default(), Policy::new("peer", quota)).await;
    greet(channel.clone(), "ada").await.unwrap();
    let status = greet(channel.clone(), "ada").await.unwrap_err();
    let (pushback, _) = told(&status);
    assert!(pushback <= Duration::from_millis(150), "{pushback:?}");
    tokio::time::sleep(pushback).await;
    greet(channel, "ada").await.unwrap();
}

#[tokio::test]
async fn a_tonic_client_waits_for_its_turn_and_is_rejected_beyond_that() {
    let (channel, requests) = greeter(Memory::default(), Policy::new("all", few(100))).await;
    let layer = CallLimitLayer::builder(Memory::default())
        .limit(
            Policy::new("mine", Quota::per_second(20).burst(1))
                .by_request(|call: &http::Request<Body>| call.uri().path().to_owned()),
        )
        .waiting();
    let service = layer.build().unwrap().layer(channel);
    let started = Instant::now();
    let calls = (0..4).map(|_| greet(service.clone(), "ada"));
    let calls = futures_util::future::join_all(calls).await;
    assert!(calls.iter().all(Result::is_ok), "{calls:?}");
    assert!(started.elapsed() >= Duration::from_millis(150));
    assert_eq!(requests.load(SeqCst), 4);

    // At most 20 of them fit into the maximum wait of a second, and fewer on a slow machine.
    let calls = (0..30).map(|_| greet(service.clone(), "ada"));
    let calls = futures_util::future::join_all(calls).await;
    let rejected: Vec<_> = calls.into_iter().filter_map(Result::err).collect();
    assert!((8..30).contains(&rejected.len()), "{}", rejected.len());
    for status in rejected {
        assert_eq!(status.code(), Code::Unknown);
        let error = status.source().unwrap();
        let limit: &LimitError<tonic::transport::Error> = error.downcast_ref().unwrap();
        let LimitError::RateLimited(rejected) = limit else {
            panic!("{limit:?}")
        };
        assert_eq!(rejected.reason(), Reason::TooLong);
    }
}

/// A backend that fails immediately.
pub(crate) struct Broken;

impl Backend for Broken {
    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        Ok((0..).map(PolicyId::new).take(policies.len()).collect())
    }

    fn acquire(&self, _: &[Charge<'_>], _: &mut [Decision]) -> Answer {
        Answer::Failed(BackendError::new("out of order"))
    }

    fn settle(&self, _: &[Charge<'_>], _: i64) -> Answer {
        Answer::Done(true)
    }

    fn reset(&self, _: PolicyId, _: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

#[tokio::test]
async fn a_store_that_fails_is_unavailable_if_that_is_chosen() {
    let policy = Policy::new("all", few(1));
    let (channel, requests) = greeter_or(Broken, policy, FailureMode::Closed).await;
    let status = greet(channel, "ada").await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.details().is_empty());
    assert_eq!(requests.load(SeqCst), 0);
}

#[tokio::test]
async fn a_server_whose_store_fails_limits_by_itself_and_is_unavailable_above_that() {
    let (channel, requests) = greeter(Broken, Policy::new("all", few(2))).await;
    for _ in 0..2 {
        greet(channel.clone(), "ada").await.unwrap();
    }
    let status = greet(channel, "ada").await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(!status.details().is_empty(), "when to come back");
    assert_eq!(requests.load(SeqCst), 2);
}
