//! A gRPC client with retries and hedges, and a gRPC server with a rate limit.
//!
//! gRPC does not say which methods are idempotent, so you name them. A rejection is `RESOURCE_EXHAUSTED` with the time
//! to wait, and the client's retry layer waits that long.

use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Server};
use tonic_health::pb::health_client::HealthClient;
use tower::{BoxError, ServiceBuilder};
use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer, backend::Memory, key};
use tower_hedge_latency::{Grpc, Hedge, HedgeLayer};
use tower_jitter_retry::{Retry, RetryLayer};

/// A channel with both layers.
pub type Outbound = Retry<Hedge<Channel, Grpc>, Grpc>;

/// The full name of the method that the client retries and hedges.
pub const CHECK: &str = "/grpc.health.v1.Health/Check";

/// Serves the standard health service. Each client's address may make 10 calls a second.
pub async fn serve(listener: TcpListener) -> Result<(), BoxError> {
    let limit = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("client", Quota::per_second(10)).by(key::peer_addr()))
        .grpc()
        .build()?;
    let (_reporter, health) = tonic_health::server::health_reporter();
    Server::builder()
        .layer(limit)
        .add_service(health)
        .serve_with_incoming(TcpListenerStream::new(listener))
        .await?;
    Ok(())
}

/// A client that retries and hedges `Check`.
pub fn client(channel: Channel) -> Result<HealthClient<Outbound>, BoxError> {
    let retry = RetryLayer::builder()
        .grpc()
        .idempotent_methods([CHECK])
        .build()?;
    let hedge = HedgeLayer::builder()
        .grpc()
        .idempotent_methods([CHECK])
        .shared_budget(retry.handle().budget())
        .build()?;
    Ok(HealthClient::new(
        ServiceBuilder::new()
            .layer(retry)
            .layer(hedge)
            .service(channel),
    ))
}

#[cfg(test)]
mod tests {
    use tonic::transport::Endpoint;
    use tonic_health::pb::HealthCheckRequest;

    use super::*;

    #[tokio::test]
    async fn a_rejected_call_waits_for_its_turn_and_succeeds() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(serve(listener));
        let channel = Endpoint::from_shared(url).unwrap().connect().await.unwrap();

        let mut bare = HealthClient::new(channel.clone());
        let mut rejected = None;
        while rejected.is_none() {
            rejected = bare.check(HealthCheckRequest::default()).await.err();
        }
        assert_eq!(rejected.unwrap().code(), tonic::Code::ResourceExhausted);

        let mut client = client(channel).unwrap();
        client.check(HealthCheckRequest::default()).await.unwrap();
    }
}
