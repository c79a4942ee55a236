//! The load generator: requests on schedule over real sockets.

use std::net::SocketAddr;
use std::time::Duration;

use axum::http::{Request, StatusCode, Uri};
use bytes::Bytes;
use hdrhistogram::Histogram;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use indicatif::ProgressBar;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout};
use tower::BoxError;

type LoadClient = Client<HttpConnector, Empty<Bytes>>;

/// Bounds the run if the gateway does not answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Half of the requests come from one client. This number of other clients shares the rest.
const MODEST_CLIENTS: u64 = 20;

/// The amount of load.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) requests: u64,
    pub(crate) per_second: u32,
    pub(crate) callers: Callers,
}

/// The clients that send the requests, as the gateways identify them.
#[derive(Clone, Debug)]
pub(crate) enum Callers {
    /// One greedy client and many modest ones.
    Many,
    /// All requests come from the client with this name.
    One(String),
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Answers {
    /// Microseconds from the time a request was due to the end of its response, without rejected requests.
    pub(crate) latency: Histogram<u64>,
    pub(crate) succeeded: u64,
    pub(crate) rejected: u64,
    /// The number of admitted requests, for each gateway.
    pub(crate) admitted: Vec<u64>,
    /// The time from the first due request to the end of the last response.
    pub(crate) took: Duration,
}

impl Load {
    /// Sends every request when it is due, even if earlier ones are unanswered. A load that waits for slow responses
    /// would measure fewer of them. The gateways take turns.
    pub(crate) async fn run(
        &self,
        gateways: &[SocketAddr],
        progress: &ProgressBar,
    ) -> Result<Answers, BoxError> {
        let client = client();
        let uris: Vec<Uri> = gateways
            .iter()
            .map(|gateway| format!("http://{gateway}/").parse())
            .collect::<Result<_, _>>()?;
        let started = Instant::now();
        let mut schedule = interval(Duration::from_secs(1) / self.per_second);
        let mut tasks = JoinSet::new();
        // Each round starts with another gateway. Otherwise the same gateway could always receive the first request
        // after a refill.
        let rounds = (0..uris.len()).cycle();
        let turns = rounds.flat_map(|first| (0..uris.len()).cycle().skip(first).take(uris.len()));
        for (number, gateway) in (0..self.requests).zip(turns) {
            let due = schedule.tick().await;
            let (client, uri) = (client.clone(), uris[gateway].clone());
            let (name, progress) = (self.callers.name(number), progress.clone());
            tasks.spawn(async move {
                let answer = timeout(PATIENCE, get(&client, uri, &name)).await;
                progress.inc(1);
                let status = answer.ok().and_then(Result::ok);
                (gateway, due.elapsed(), status)
            });
        }
        let mut answers = Answers {
            latency: Histogram::new(3)?,
            succeeded: 0,
            rejected: 0,
            admitted: vec![0; gateways.len()],
            took: Duration::ZERO,
        };
        while let Some(done) = tasks.join_next().await {
            let (gateway, latency, status) = done?;
            if status == Some(StatusCode::TOO_MANY_REQUESTS) {
                answers.rejected += 1;
                continue;
            }
            answers.admitted[gateway] += 1;
            answers
                .latency
                .record(u64::try_from(latency.as_micros())?)?;
            answers.succeeded += u64::from(status.is_some_and(|status| status.is_success()));
        }
        answers.took = started.elapsed();
        Ok(answers)
    }
}

pub(crate) fn client() -> LoadClient {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    Client::builder(TokioExecutor::new()).build(connector)
}

impl Callers {
    /// The name of the client that sends this request.
    pub(crate) fn name(&self, number: u64) -> String {
        match self {
            Self::One(name) => name.clone(),
            Self::Many if number.is_multiple_of(2) => "greedy".into(),
            Self::Many => format!("modest-{}", number / 2 % MODEST_CLIENTS),
        }
    }
}

/// Reads the answer to its end.
pub(crate) async fn get(
    client: &LoadClient,
    uri: Uri,
    api_key: &str,
) -> Result<StatusCode, BoxError> {
    let request = Request::get(uri)
        .header("x-api-key", api_key)
        .body(Empty::new())?;
    let response = client.request(request).await?;
    let status = response.status();
    response.into_body().collect().await?;
    Ok(status)
}
