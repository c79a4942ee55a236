//! The sizes of futures, which are moved and nested in each other in every call.
//!
//! The bounds are the present sizes. A change that lowers a size lowers its bound. A change that raises a size needs a
//! reason.
#![cfg(target_pointer_width = "64")]

use std::convert::Infallible;
use std::future::Ready;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use tower::util::{MapErr, ServiceFn};
use tower::{BoxError, Service};
use tower_hedge_latency::Hedge;
use tower_jitter_retry::{Http, NoObserver, Observed, Retry, StandardAnswer};

type HttpRequest = Request<Full<Bytes>>;
type HttpClient = Client<HttpConnector, Full<Bytes>>;
type BoxedErrors = MapErr<HttpClient, fn(Error) -> BoxError>;

/// A service without state, with a future as small as its outcome.
type Small = ServiceFn<fn(HttpRequest) -> Ready<Result<Response<()>, Infallible>>>;
/// The same for requests and responses of one byte.
type Tiny = ServiceFn<fn(u8) -> Ready<Result<u8, Infallible>>>;

/// The future of a service, in bytes.
const fn future_of<S: Service<Req>, Req>() -> usize {
    size_of::<S::Future>()
}

/// The size that a layer adds to the future of the service below it, in bytes.
fn added<L: Service<Req>, S: Service<Req>, Req>() -> usize {
    future_of::<L, Req>() - future_of::<S, Req>()
}

/// Asserts that each layer adds at most so many bytes to the future of the service below.
macro_rules! assert_added {
    ($($layer:ty, over $service:ty, of $request:ty: $most:literal;)*) => {
        $(
            let size = added::<$layer, $service, $request>();
            assert!(size <= $most, "{size} bytes of {}", stringify!($layer));
        )*
    };
}

/// Of these, the copy of request and client take 560 bytes.
#[test]
fn over_a_client_a_layer_adds_the_copies_of_request_and_client_and_little_more() {
    assert_added! {
        Retry<HttpClient, Http>, over HttpClient, of HttpRequest: 640;
        Hedge<HttpClient, Http>, over HttpClient, of HttpRequest: 872;
    }
}

/// Of these, the copy of an HTTP request takes 256 bytes, and tokio's timer 112 of a hedge.
#[test]
fn over_a_small_future_a_layer_adds_the_copy_of_the_request_and_little_more() {
    assert_added! {
        Retry<Small, Http>, over Small, of HttpRequest: 344;
        Hedge<Small, Http>, over Small, of HttpRequest: 576;
        Retry<Tiny>, over Tiny, of u8: 70;
        Hedge<Tiny>, over Tiny, of u8: 302;
    }
}

/// Of these, tokio's timer takes 112 bytes.
#[test]
fn hard_time_limits_take_a_timer_and_only_where_they_are_set() {
    type Limited = Retry<BoxedErrors, Http, NoObserver, StandardAnswer>;
    assert_added! { Limited, over Retry<BoxedErrors, Http>, of HttpRequest: 176; }
}

#[test]
fn an_observed_call_takes_one_pointer_and_an_unobserved_one_takes_nothing() {
    let pointer = size_of::<usize>();
    let unobserved = future_of::<Retry<HttpClient, Http>, HttpRequest>();
    assert_eq!(
        future_of::<Retry<HttpClient, Http, Observed>, HttpRequest>(),
        unobserved + pointer
    );
    let unobserved = future_of::<Hedge<HttpClient, Http>, HttpRequest>();
    assert_eq!(
        future_of::<Hedge<HttpClient, Http, Observed>, HttpRequest>(),
        unobserved + pointer
    );
}
