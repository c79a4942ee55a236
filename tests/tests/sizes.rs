//! How large futures are: they are moved, and nested in each other, on the way of every call.
#![cfg(target_pointer_width = "64")]

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use tower::util::MapErr;
use tower::{BoxError, Service};
use tower_hedge_latency::Hedge;
use tower_jitter_retry::{Http, NoObserver, Observed, Retry, StandardAnswer};

type HttpRequest = Request<Full<Bytes>>;
type HttpClient = Client<HttpConnector, Full<Bytes>>;
type BoxedErrors = MapErr<HttpClient, fn(Error) -> BoxError>;

/// The future of a service over HTTP, in bytes.
fn future_of<S: Service<HttpRequest>>() -> usize {
    size_of::<S::Future>()
}

#[test]
fn a_retry_takes_the_copies_of_request_and_client_and_little_more() {
    let copies = size_of::<HttpRequest>() + size_of::<HttpClient>();
    let client = future_of::<HttpClient>();
    let size = future_of::<Retry<HttpClient, Http>>();
    assert!(
        size <= client + copies + 144,
        "{size} bytes over {client} and {copies} of copies"
    );
}

#[test]
fn hard_time_limits_take_a_timer_and_only_where_they_are_set() {
    let without = future_of::<Retry<BoxedErrors, Http>>();
    let with = future_of::<Retry<BoxedErrors, Http, NoObserver, StandardAnswer>>();
    let timer = size_of::<tokio::time::Sleep>();
    assert!(
        with <= without + timer + 72,
        "{with} bytes over {without} and {timer} of a timer"
    );
}

#[test]
fn a_hedge_takes_the_copies_of_request_and_client_a_timer_and_little_more() {
    let copies = size_of::<HttpRequest>() + size_of::<HttpClient>();
    let (client, timer) = (future_of::<HttpClient>(), size_of::<tokio::time::Sleep>());
    let size = future_of::<Hedge<HttpClient, Http>>();
    assert!(
        size <= client + copies + timer + 248,
        "{size} bytes over {client}, {copies} of copies and {timer} of a timer"
    );
}

#[test]
fn an_observed_call_takes_one_pointer_and_an_unobserved_one_takes_nothing() {
    let pointer = size_of::<usize>();
    let unobserved = future_of::<Retry<HttpClient, Http>>();
    assert_eq!(
        future_of::<Retry<HttpClient, Http, Observed>>(),
        unobserved + pointer
    );
    let unobserved = future_of::<Hedge<HttpClient, Http>>();
    assert_eq!(
        future_of::<Hedge<HttpClient, Http, Observed>>(),
        unobserved + pointer
    );
}
