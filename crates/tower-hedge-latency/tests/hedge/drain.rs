//! Losers that end in the background.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use tokio::time::sleep;
use tower::{Layer, ServiceExt, service_fn};
use tower_hedge_latency::Drain;

use crate::support::*;

/// The first attempt answers after 20 ms or after 200 ms. The hedge is due after 10 ms and takes 100 ms.
#[tokio::test(start_paused = true)]
async fn losers_end_in_the_background() {
    for first in [20, 200] {
        let (attempts, ended) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let end = Arc::clone(&ended);
        let inner = service_fn(move |_: Request<Empty<Bytes>>| {
            let hedge = attempts.fetch_add(1, Relaxed) > 0;
            let end = Arc::clone(&end);
            async move {
                sleep(ms(if hedge { 100 } else { first })).await;
                end.fetch_add(1, Relaxed);
                Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
            }
        });
        let layer = fixed(10).drain(Drain::default()).http().build().unwrap();
        let service = layer.layer(inner);
        service
            .clone()
            .oneshot(Request::new(Empty::new()))
            .await
            .unwrap();
        assert_eq!(ended.load(Relaxed), 1, "the winner waits for nobody");
        sleep(ms(200)).await;
        assert_eq!(ended.load(Relaxed), 2);
    }
}
