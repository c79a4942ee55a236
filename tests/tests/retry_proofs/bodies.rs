//! The request's own body fails while it is sent.

use http::Method;
use tests::Events;
use tests::clients::{BROKEN, Client, Payload, echo, mentions};
use tokio::net::TcpListener;
use tower_jitter_retry::{Mode, StopReason};

use crate::{builder, each};

async fn url() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    echo(listener);
    url
}

/// A retry would read the same body. The layer returns the client's error unchanged.
#[tokio::test]
async fn a_body_that_breaks_is_not_sent_again() {
    for (client, boxed) in each(&Client::ALL) {
        let url = url().await;
        let events = Events::default();
        let layer = builder(&events).build().unwrap();
        let payload = Payload::Broken("hel");
        let answer = client.send(&layer, boxed, Method::PUT, &url, payload).await;
        let error = answer.expect_err("no answer to half a request");
        assert_eq!(events.attempts(), 1, "{client:?}, {error:?}");
        assert_eq!(events.stop(), StopReason::Fatal, "{client:?}, {error:?}");
        // Over HTTP/2 hyper reports only that the stream was reset, without the body's error.
        if Client::HTTP_1.contains(&client) {
            assert!(mentions(&error, BROKEN), "{client:?}, {error:?}");
        }
        // reqwest's body type wraps the error of a recorded body in another error.
        if client != (Client::Reqwest { http2: false }) {
            let off = builder(&Events::default()).mode(Mode::Off);
            let off = off.build().unwrap();
            let answer = client.send(&off, boxed, Method::PUT, &url, payload).await;
            let alone = answer.expect_err("no answer to half a request");
            assert_eq!(format!("{error:?}"), format!("{alone:?}"), "{client:?}");
        }
    }
}
