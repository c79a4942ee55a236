//! No server listens.

use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use http::{Method, Request, StatusCode, Uri};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioIo};
use reqwest::dns::{Name, Resolve, Resolving};
use tests::Events;
use tests::clients::{Client, call, echo};
use tokio::net::{TcpSocket, TcpStream};
use tonic::transport::Endpoint;
use tower_jitter_retry::StopReason;

use crate::{DELAYED, broke, builder, each, send};

/// A bound port that does not listen, so that connections are refused.
fn closed() -> (TcpSocket, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let url = format!("http://{}/", socket.local_addr().unwrap());
    (socket, url)
}

/// The port begins to listen between the first attempt and the second.
fn opening(socket: TcpSocket) -> Events {
    let socket = Mutex::new(Some(socket));
    Events::with_hook(move || {
        if let Some(socket) = socket.lock().unwrap().take() {
            echo(socket.listen(16).unwrap());
        }
    })
}

#[tokio::test]
async fn a_refused_connection_is_retried_for_every_method_after_a_backoff() {
    for client in each(&Client::ALL) {
        let (socket, url) = closed();
        let events = opening(socket);
        let layer = builder(&events).build().unwrap();
        let answer = send(client, &layer, Method::POST, &url).await;
        let answer = answer.unwrap_or_else(|error| panic!("{client:?}: {error}"));
        assert_eq!(answer.status, StatusCode::OK, "{client:?}");
        assert_eq!(answer.body.unwrap(), "hello", "{client:?}");
        assert_eq!(events.delays(), [DELAYED], "{client:?}");
        let info = answer.info.unwrap();
        assert_eq!((info.attempts, info.slept), (2, DELAYED.0));
    }
}

#[tokio::test]
async fn every_retry_of_a_refused_connection_backs_off_and_takes_a_token() {
    for client in each(&Client::ALL) {
        let (_socket, url) = closed();
        let events = Events::default();
        let layer = builder(&events).build().unwrap();
        let answer = send(client, &layer, Method::POST, &url).await;
        answer.expect_err("nobody listens");
        assert_eq!(events.attempts(), 3, "{client:?}");
        assert_eq!(events.delays(), [DELAYED, DELAYED], "{client:?}");
        assert_eq!(events.stop(), StopReason::AttemptsExhausted, "{client:?}");

        let events = Events::default();
        let layer = builder(&events).budget(broke()).build().unwrap();
        let answer = send(client, &layer, Method::POST, &url).await;
        answer.expect_err("nobody listens");
        assert_eq!(events.delays(), [], "{client:?}");
        assert_eq!(events.stop(), StopReason::BudgetExhausted, "{client:?}");
    }
}

/// The client's own connect error counts, without an error of the operating system.
#[tokio::test]
async fn a_connection_that_fails_in_any_other_way_is_retried_after_a_backoff_too() {
    let connector = tower::service_fn(|_: Uri| ready(Err::<TokioIo<TcpStream>, _>(no_route())));
    for boxed in [false, true] {
        let events = Events::default();
        let layer = builder(&events).build().unwrap();
        let client = legacy::Client::builder(TokioExecutor::new()).build(connector);
        let request = Request::post("http://127.0.0.1/").body(Body::empty());
        let outcome = call(&layer, boxed, client, request.unwrap()).await;
        outcome.map(drop).expect_err("there is no way");
        assert_eq!(events.delays(), [DELAYED, DELAYED], "hyper-util, {boxed}");

        let events = Events::default();
        let layer = builder(&events).build().unwrap();
        let channel =
            Endpoint::from_static("http://127.0.0.1").connect_with_connector_lazy(connector);
        let request = Request::post("/").body(tonic::body::Body::empty());
        let outcome = call(&layer, boxed, channel, request.unwrap()).await;
        outcome.map(drop).expect_err("there is no way");
        assert_eq!(events.delays(), [DELAYED, DELAYED], "tonic, {boxed}");

        let events = Events::default();
        let layer = builder(&events).build().unwrap();
        let client = reqwest::Client::builder().no_proxy();
        let client = client.redirect(reqwest::redirect::Policy::none());
        let client = client.dns_resolver(Arc::new(Nowhere)).build().unwrap();
        let request = client.post("http://nowhere.test/").build().unwrap();
        let outcome = call(&layer, boxed, client, request).await;
        outcome.map(drop).expect_err("there is no way");
        assert_eq!(events.delays(), [DELAYED, DELAYED], "reqwest, {boxed}");
    }
}

fn no_route() -> io::Error {
    io::Error::other("no route to the host")
}

struct Nowhere;

impl Resolve for Nowhere {
    fn resolve(&self, _: Name) -> Resolving {
        Box::pin(ready(Err(no_route().into())))
    }
}
