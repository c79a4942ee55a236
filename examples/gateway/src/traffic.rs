//! Traffic for the live page: the same requests through the gateway and around its layers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::Uri;
use tokio::sync::Semaphore;
use tokio::time::interval;
use tower::BoxError;

use crate::load::{Callers, client, get};
use crate::upstream::REPORT;

/// Maximum number of requests in flight, on both ways together.
const IN_FLIGHT: usize = 1_000;

/// One request in ten asks for the slower path of the built-in upstream.
const REPORT_EVERY: u64 = 10;

/// Sends `per_second` requests on each way, until the task is dropped.
pub(crate) async fn send(
    per_second: u32,
    gateway: SocketAddr,
    bare: SocketAddr,
) -> Result<(), BoxError> {
    let client = client();
    let uris = |server| -> Result<[Uri; 2], BoxError> {
        let uri = |path| format!("http://{server}{path}").parse();
        Ok([uri("/")?, uri(REPORT)?])
    };
    let (gateway, bare) = (uris(gateway)?, uris(bare)?);
    let mut schedule = interval(Duration::from_secs(1) / per_second);
    let in_flight = Arc::new(Semaphore::new(IN_FLIGHT));
    for number in 0.. {
        schedule.tick().await;
        let path = usize::from(number % REPORT_EVERY == 1);
        for uri in [&gateway[path], &bare[path]] {
            // A machine that is too slow for the rate sends fewer requests.
            let Ok(permit) = Arc::clone(&in_flight).try_acquire_owned() else {
                continue;
            };
            let (client, uri) = (client.clone(), uri.clone());
            tokio::spawn(async move {
                // The servers count the outcome.
                let _ = get(&client, uri, &Callers::Many.name(number)).await;
                drop(permit);
            });
        }
    }
    Ok(())
}
