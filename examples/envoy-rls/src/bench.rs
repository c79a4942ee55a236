//! Measures the service over real gRPC connections.

use std::time::Duration;

use clap::Args;
use http::uri::PathAndQuery;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, client};
use tonic_prost::ProstCodec;
use tower::BoxError;

use crate::config;
use crate::proto::{Descriptor, Entry, RateLimitRequest, RateLimitResponse, SHOULD_RATE_LIMIT};
use crate::service::Limiters;

#[derive(Clone, Debug, Args)]
pub(crate) struct BenchOptions {
    /// Seconds per row.
    #[arg(long, value_name = "N", default_value = "3")]
    seconds: u64,
    /// Concurrent calls.
    #[arg(long, value_name = "N", default_value = "128")]
    concurrency: u64,
    /// Connections that the calls share.
    #[arg(long, value_name = "N", default_value = "2")]
    connections: usize,
}

const CONFIG: &str = "
domain: bench
descriptors:
  - key: user
    rate_limit: { unit: day, requests_per_unit: 4000000000 }
";

impl BenchOptions {
    pub(crate) async fn run(self, limiters: Limiters) -> Result<(), BoxError> {
        let file = config::parse(CONFIG)?;
        let domains = [(file.domain, file.descriptors)].into();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let endpoint = Endpoint::from_shared(format!("http://{}", listener.local_addr()?))?;
        tokio::spawn(crate::serve(
            domains,
            limiters,
            listener,
            std::future::pending(),
        ));
        println!(
            "{:<36} {:>9} {:>12} {:>12}",
            "descriptors", "calls/s", "decisions/s", "mean latency"
        );
        for (what, users, descriptors) in [
            ("1, the same in all calls", 1, 1),
            ("1, 10,000 different ones", 10_000, 1),
            ("10 in a call, 10,000 different ones", 10_000, 10),
        ] {
            let calls = self.row(&endpoint, users, descriptors).await?;
            let per_second = calls / self.seconds;
            let latency =
                Duration::from_secs(self.seconds * self.concurrency) / u32::try_from(calls)?;
            println!(
                "{what:<36} {per_second:>9} {:>12} {latency:>12.0?}",
                per_second * descriptors
            );
        }
        Ok(())
    }

    /// Returns the number of answered calls.
    async fn row(
        &self,
        endpoint: &Endpoint,
        users: u64,
        descriptors: u64,
    ) -> Result<u64, BoxError> {
        let end = Instant::now() + Duration::from_secs(self.seconds);
        let mut channels = vec![];
        for _ in 0..self.connections {
            channels.push(endpoint.connect().await?);
        }
        let mut tasks = JoinSet::new();
        for (task, channel) in (0..self.concurrency).zip(channels.into_iter().cycle()) {
            tasks.spawn(async move {
                let (mut calls, mut user) = (0, task);
                while Instant::now() < end {
                    let users = (0..descriptors).map(|n| (user + n) % users);
                    let descriptors = users
                        .map(|user| descriptor(&[("user", &user.to_string())]))
                        .collect();
                    let request = RateLimitRequest {
                        domain: "bench".into(),
                        descriptors,
                        hits_addend: 1,
                    };
                    should_rate_limit(&channel, request).await?;
                    (calls, user) = (calls + 1, user + 97);
                }
                Ok::<u64, Status>(calls)
            });
        }
        let mut calls = 0;
        while let Some(task) = tasks.join_next().await {
            calls += task??;
        }
        Ok(calls)
    }
}

pub(crate) fn descriptor(entries: &[(&str, &str)]) -> Descriptor {
    let entry = |&(key, value): &(&str, &str)| Entry {
        key: key.into(),
        value: value.into(),
    };
    Descriptor {
        entries: entries.iter().map(entry).collect(),
        ..Descriptor::default()
    }
}

/// Calls the service.
pub(crate) async fn should_rate_limit(
    channel: &Channel,
    request: RateLimitRequest,
) -> Result<RateLimitResponse, Status> {
    let mut client = client::Grpc::new(channel.clone());
    let unavailable = |error: tonic::transport::Error| Status::unavailable(error.to_string());
    client.ready().await.map_err(unavailable)?;
    let path = PathAndQuery::from_static(SHOULD_RATE_LIMIT);
    let codec = ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
    Ok(client
        .unary(tonic::Request::new(request), path, codec)
        .await?
        .into_inner())
}
