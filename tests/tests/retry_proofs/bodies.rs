//! The request's own body fails while it is sent.

use http::Method;
use tests::Events;
use tests::clients::{BROKEN, Client, Payload, echo, mentions};
use tokio::net::TcpListener;
use tower_jitter_retry::StopReason;

use crate::{builder, each};

async fn url() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    echo(listener);
    url
}

/// A repeat would read the same.
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
        // Over HTTP/2 hyper keeps it to itself, and says only who reset the stream.
        if Client::HTTP_1.contains(&client) {
            assert!(mentions(&error, BROKEN), "{client:?}, {error:?}");
        }
    }
}
