//! An HTTP/2 server reports the requests that it did not process.

use axum::body::Body;
use http::{Method, Request, StatusCode};
use tests::clients::{Client, call, hyper};
use tests::{Code, Events, Http2Server, Reply};
use tower_jitter_retry::StopReason;

use crate::{DELAYED, IMMEDIATE, broke, builder, each, send};

/// Fails the first request in this way.
async fn server(first: Reply) -> Http2Server {
    Http2Server::start(move |n| if n == 1 { first } else { Reply::Ok }).await
}

#[tokio::test]
async fn a_request_that_the_server_did_not_process_is_resent_immediately_without_a_token() {
    for proof in [
        Reply::Reset(Code::RefusedStream),
        Reply::GoAwayBefore(Code::NoError),
    ] {
        for client in each(&Client::HTTP_2) {
            let server = server(proof).await;
            let events = Events::default();
            let layer = builder(&events).budget(broke()).build().unwrap();
            let answer = send(client, &layer, Method::POST, &server.url()).await;
            let answer = answer.unwrap_or_else(|error| panic!("{client:?}, {proof:?}: {error:?}"));
            assert_eq!(answer.status, StatusCode::OK, "{client:?}, {proof:?}");
            assert_eq!(events.delays(), [IMMEDIATE], "{client:?}, {proof:?}");
            assert_eq!(server.requests(), 2, "{client:?}, {proof:?}");
            assert_eq!(server.complete(), [b"hello"], "{client:?}, {proof:?}");
        }
    }
}

#[tokio::test]
async fn a_server_that_keeps_refusing_streams_is_not_asked_forever() {
    for client in each(&Client::HTTP_2) {
        let server = Http2Server::start(|_| Reply::Reset(Code::RefusedStream)).await;
        let events = Events::default();
        let layer = builder(&events).build().unwrap();
        let answer = send(client, &layer, Method::POST, &server.url()).await;
        answer.expect_err("it refuses");
        assert_eq!(events.delays(), [IMMEDIATE, DELAYED], "{client:?}");
        assert_eq!(server.requests(), 3, "{client:?}");
    }
}

/// The server may have processed the request.
#[tokio::test]
async fn without_proof_only_idempotent_requests_are_retried() {
    for fault in [
        Reply::Reset(Code::Cancel),
        Reply::Reset(Code::InternalError),
        Reply::Reset(Code::NoError),
        Reply::GoAwayBefore(Code::EnhanceYourCalm),
        Reply::GoAwayBefore(Code::ProtocolError),
        Reply::GoAwayAfter,
        Reply::Close,
        Reply::Abort,
    ] {
        for client in each(&Client::HTTP_2) {
            let post = server(fault).await;
            let events = Events::default();
            let layer = builder(&events).build().unwrap();
            let answer = send(client, &layer, Method::POST, &post.url()).await;
            assert!(answer.is_err(), "{client:?}, {fault:?}: {answer:?}");
            assert_eq!(events.stop(), StopReason::Fatal, "{client:?}, {fault:?}");
            assert_eq!(post.requests(), 1, "{client:?}, {fault:?}");

            let get = server(fault).await;
            let events = Events::default();
            let layer = builder(&events).build().unwrap();
            let answer = send(client, &layer, Method::GET, &get.url()).await;
            assert!(answer.is_ok(), "{client:?}, {fault:?}: {answer:?}");
            assert_eq!(events.delays(), [DELAYED], "{client:?}, {fault:?}");
            assert_eq!(get.requests(), 2, "{client:?}, {fault:?}");
        }
    }
}

/// hyper reports a user's error for a request that waits for a free stream when the server begins to shut down. This
/// error also follows requests that were sent, so it proves nothing.
#[tokio::test]
async fn a_request_that_waits_for_a_stream_of_a_closing_connection_is_retried_if_it_is_idempotent()
{
    for (method, is_retried) in [(Method::GET, true), (Method::POST, false)] {
        let server = Http2Server::start(|n| if n == 2 { Reply::Drain } else { Reply::Ok }).await;
        let client = hyper(true);
        let events = Events::default();
        let layer = builder(&events).build().unwrap();
        let send = async |method: &Method| {
            let request = Request::builder().method(method).uri(server.url());
            let request = request.body(Body::empty()).unwrap();
            call(&layer, false, client.clone(), request).await
        };
        send(&Method::GET).await.unwrap();
        let (held, waiting) = tokio::join!(send(&Method::GET), send(&method));
        assert_eq!(held.unwrap().status(), StatusCode::OK, "{method}");
        match is_retried {
            true => assert_eq!(waiting.unwrap().status(), StatusCode::OK, "{method}"),
            false => assert!(waiting.is_err(), "{method}"),
        }
        let delays: &[_] = if is_retried { &[DELAYED] } else { &[] };
        assert_eq!(events.delays(), delays, "{method}");
        let retries = usize::from(is_retried);
        assert_eq!(server.requests(), 2 + retries, "{method}");
        assert_eq!(server.connections(), 1 + retries, "{method}");
    }
}
