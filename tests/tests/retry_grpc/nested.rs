//! One retry layer above another.

use tests::{Events, Http2Server, Reply as Frame};
use tonic::Code;
use tower::Layer;
use tower_jitter_retry::StopReason;

use crate::builder;
use crate::words::{Client, ECHO, Reply, Words, channel};

#[tokio::test]
async fn two_layers_make_three_attempts() {
    let (words, unavailable) = Words::start(|_| Reply::Early(Code::Unavailable, None)).await;
    let dropping = Http2Server::start(|_| Frame::Close).await;
    for channel in [unavailable, channel(dropping.url())] {
        let (above, below) = (Events::default(), Events::default());
        let layer = |events| builder(events).idempotent_methods([ECHO]).build().unwrap();
        let outer = layer(&above).layer(layer(&below).layer(channel));
        let status = Client::new(outer).echo("hello").await.unwrap_err();
        assert_ne!(status.code(), Code::Ok);
        assert_eq!(above.stop(), StopReason::Nested);
    }
    assert_eq!(words.calls(), 3);
    assert_eq!(dropping.requests(), 3);
}
