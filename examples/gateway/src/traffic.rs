//! Traffic for the live page: the same requests through the gateway and around its layers.

use std::net::SocketAddr;
use std::time::Duration;

use axum::http::Uri;
use tokio::time::interval;
use tower::BoxError;

use crate::load::{Callers, LoadClient, client, get};

/// Sends `per_second` requests on each way, until the task is dropped.
pub(crate) async fn send(
    per_second: u32,
    gateway: SocketAddr,
    bare: SocketAddr,
) -> Result<(), BoxError> {
    let client = client();
    let gateway: Uri = format!("http://{gateway}/").parse()?;
    let bare: Uri = format!("http://{bare}/").parse()?;
    let mut schedule = interval(Duration::from_secs(1) / per_second);
    for number in 0.. {
        schedule.tick().await;
        let caller = Callers::Many.name(number);
        tokio::spawn(request(client.clone(), gateway.clone(), caller.clone()));
        tokio::spawn(request(client.clone(), bare.clone(), caller));
    }
    Ok(())
}

/// The servers count the outcome.
async fn request(client: LoadClient, uri: Uri, caller: String) {
    let _ = get(&client, uri, &caller).await;
}
