//! tower's own layers reject requests. A retry does not help: this process stays overloaded after a wait, and a
//! terminated worker does not come back.

use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use tests::clients::{echo, hyper};
use tests::{Events, soon};
use tokio::net::TcpListener;
use tower::buffer::{Buffer, error::Closed};
use tower::limit::ConcurrencyLimit;
use tower::load_shed::{LoadShed, error::Overloaded};
use tower::{BoxError, Layer, Service, ServiceExt};
use tower_jitter_retry::StopReason;

use crate::builder;

async fn get() -> Request<Body> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    echo(listener);
    Request::get(url).body(Body::empty()).unwrap()
}

#[tokio::test]
async fn a_call_that_was_shed_is_not_retried() {
    let events = Events::default();
    let busy = ConcurrencyLimit::new(hyper(false), 0);
    let stack = builder(&events).build().unwrap().layer(LoadShed::new(busy));
    let error = stack.oneshot(get().await).await.unwrap_err();
    assert!(error.is::<Overloaded>(), "{error}");
    assert_eq!(events.attempts(), 1);
    assert_eq!(events.stop(), StopReason::Fatal);
}

#[tokio::test]
async fn a_buffer_without_its_worker_is_not_asked_again() {
    let events = Events::default();
    let (buffer, worker) = Buffer::pair(hyper(false), 1);
    let mut stack = builder(&events).build().unwrap().layer(buffer);
    let call = stack.ready().await.unwrap().call(get().await);
    drop(worker);
    let outcome: Result<Response<Incoming>, BoxError> = soon(call).await;
    let error = outcome.unwrap_err();
    assert!(error.is::<Closed>(), "{error}");
    assert_eq!(events.attempts(), 1);
    assert_eq!(events.stop(), StopReason::Fatal);
}
