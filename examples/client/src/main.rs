//! Retries for the clients of hyper-util and reqwest.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tower::{BoxError, Layer, ServiceBuilder, ServiceExt, util::BoxCloneService};
use tower_jitter_retry::{
    Budget, Budgets, BuildError, Http, NoObserver, Retry, RetryInfo, RetryLayer, StandardAnswer,
};

mod upstream;

type Hyper = BoxCloneService<Request<Full<Bytes>>, Response<Incoming>, BoxError>;
type Reqwest = Retry<reqwest::Client, Http, NoObserver, StandardAnswer>;

/// hyper-util's client, with time limits and a budget for each host.
///
/// Clones share the connections and the budgets. Build it once, and clone it for each request.
fn hyper_client() -> Result<Hyper, BuildError> {
    let retry = RetryLayer::builder()
        .http()
        // A failing host exhausts only its own budget.
        .budget_by(Budgets::new(Budget::default()), |get| get.authority())
        // A stalled attempt leaves time for the next one.
        .attempt_timeout(Duration::from_millis(500))
        .deadline(Duration::from_secs(3))
        .build()?;
    let client = ServiceBuilder::new()
        .layer(retry)
        // A timeout is a separate error, for which hyper-util's error type has no constructor.
        .map_err(BoxError::from)
        .service(Client::builder(TokioExecutor::new()).build_http());
    Ok(client.boxed_clone())
}

/// reqwest's client, with a time limit and one budget. Build it once, too.
fn reqwest_client() -> Result<Reqwest, BuildError> {
    let limit = Duration::from_millis(500);
    let retry = RetryLayer::builder()
        .http()
        .attempt_timeout(limit)
        .build()?;
    Ok(retry.layer(reqwest::Client::new()))
}

/// A GET through hyper-util's client.
async fn get(client: Hyper, uri: Uri) -> Result<StatusCode, BoxError> {
    let request = Request::get(uri).body(Full::default())?;
    let response = client.oneshot(request).await?;
    report("GET  ", &response);
    Ok(response.status())
}

/// A POST through reqwest's client, with a streaming body and a key that makes it safe to resend.
async fn post(client: Reqwest, url: &str) -> Result<StatusCode, BoxError> {
    let lines = ["line 1\n", "line 2\n", "line 3\n"].map(Ok::<_, Infallible>);
    let lines = futures_util::stream::iter(lines);
    let request = Request::post(url)
        .header("idempotency-key", "\"8e03978e-40d5-43dd\"")
        .body(reqwest::Body::wrap_stream(lines))?;
    let response = Response::from(client.oneshot(request.try_into()?).await?);
    report("POST ", &response);
    Ok(response.status())
}

fn report<B>(what: &str, response: &Response<B>) {
    let status = response.status();
    match response.extensions().get::<RetryInfo>() {
        Some(info) => println!(
            "{what}{status}: {} attempts, {:?} of waiting, {:?}",
            info.attempts, info.slept, info.stop,
        ),
        None => println!("{what}{status}: one attempt"),
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(axum::serve(listener, upstream::unreliable()).into_future());

    let (hyper, reqwest) = (hyper_client()?, reqwest_client()?);
    get(hyper.clone(), format!("{url}/busy").parse()?).await?;
    get(hyper.clone(), format!("{url}/stalls").parse()?).await?;
    get(hyper, format!("{url}/broken").parse()?).await?;
    post(reqwest, &format!("{url}/upload")).await?;
    Ok(())
}

#[cfg(test)]
mod tests;
