//! Traffic for the live page: the same requests through the gateway, without hedges, and around all layers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::Uri;
use tokio::sync::Semaphore;
use tokio::time::interval;
use tower::BoxError;

use crate::load::{Callers, client, get};
use crate::upstream::REPORT;

/// Maximum number of requests in flight, in all lanes together.
const IN_FLIGHT: usize = 1_000;

/// One request in ten asks for the slower path of the built-in upstream.
const REPORT_EVERY: u64 = 10;

/// Sends `per_second` requests to the server of each lane, until the task is dropped.
pub(crate) async fn send(per_second: u32, lanes: &[SocketAddr]) -> Result<(), BoxError> {
    let client = client();
    let uris = |server: &SocketAddr| -> Result<[Uri; 2], BoxError> {
        let uri = |path| format!("http://{server}{path}").parse();
        Ok([uri("/")?, uri(REPORT)?])
    };
    let lanes: Vec<[Uri; 2]> = lanes.iter().map(uris).collect::<Result<_, _>>()?;
    let mut schedule = interval(Duration::from_secs(1) / per_second);
    let in_flight = Arc::new(Semaphore::new(IN_FLIGHT));
    for number in 0.. {
        schedule.tick().await;
        let path = usize::from(number % REPORT_EVERY == 1);
        for (lane, uris) in lanes.iter().enumerate() {
            // A machine that is too slow for the rate sends fewer requests.
            let Ok(permit) = Arc::clone(&in_flight).try_acquire_owned() else {
                continue;
            };
            let (client, uri) = (client.clone(), uris[path].clone());
            // The lanes share a backend. Each has callers of its own, so that no lane spends the limit of another.
            let caller = format!("{}-in-lane-{lane}", Callers::Many.name(number));
            tokio::spawn(async move {
                // The servers count the outcome.
                let _ = get(&client, uri, &caller).await;
                drop(permit);
            });
        }
    }
    Ok(())
}
