//! All three layers around tonic: a rate limit for a server's callers, and retries and hedged requests for a client.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::Status;
use tonic::transport::{Channel, Endpoint, Server};
use tower::{BoxError, ServiceBuilder};
use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer, backend::Memory, key::peer_addr};
use tower_hedge_latency::{Hedge, HedgeLayer};
use tower_jitter_retry::{Grpc, Retry, RetryInfo, RetryLayer};

use self::greeter::{GREET, Greeter, GreeterClient, GreeterServer};

mod greeter;

type Outbound = Retry<Hedge<Channel, Grpc>, Grpc>;

/// Serves `greeter`, with a limit of a hundred calls per second and a burst of ten for each client.
async fn serve(greeter: impl Greeter, listener: TcpListener) -> Result<(), BoxError> {
    let limit = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("per-client", Quota::per_second(100).burst(10)).by(peer_addr()))
        // A rejection is RESOURCE_EXHAUSTED with the time until the next attempt.
        .grpc()
        .build()?;
    Server::builder()
        // Rejects before a message is read.
        .layer(limit)
        .add_service(GreeterServer::new(greeter))
        .serve_with_incoming(TcpListenerStream::new(listener))
        .await?;
    Ok(())
}

/// A client of the greeter at `addr`.
async fn client(addr: SocketAddr) -> Result<GreeterClient<Outbound>, BoxError> {
    let retry = RetryLayer::builder()
        .grpc()
        // gRPC itself does not declare methods idempotent.
        .idempotent_methods([GREET])
        .build()?;
    let hedge = HedgeLayer::builder()
        .grpc()
        .idempotent_methods([GREET])
        .fixed(Duration::from_millis(50))
        // Retries and hedges share one budget. The retry layer deposits into it.
        .shared_budget(retry.handle().budget())
        .build()?;
    let channel = Endpoint::from_shared(format!("http://{addr}"))?
        .connect()
        .await?;
    let outbound = ServiceBuilder::new()
        // Retries UNAVAILABLE, and rejected calls after the server's wait.
        .layer(retry)
        // Hedges calls that have no response after 50 ms.
        .layer(hedge)
        .service(channel);
    Ok(GreeterClient::new(outbound))
}

/// A greeter that is unavailable for every sixth call, and otherwise takes a second for every ninth.
struct Unreliable(AtomicU32);

impl Greeter for Unreliable {
    async fn greet(&self, name: String) -> Result<String, Status> {
        let call = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        if call.is_multiple_of(6) {
            return Err(Status::unavailable("not now"));
        }
        if call.is_multiple_of(9) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Ok(format!("hello, {name}"))
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    tokio::spawn(async move {
        if let Err(error) = serve(Unreliable(AtomicU32::new(0)), listener).await {
            eprintln!("the server has ended: {error}");
        }
    });

    let mut client = client(addr).await?;
    for call in 1..=20 {
        let start = Instant::now();
        let greeting = client.greet("ada").await?;
        // The response to a call that succeeds with its first attempt has no report.
        let retries = match greeting.extensions().get::<RetryInfo>() {
            Some(info) => info.attempts.saturating_sub(1),
            None => 0,
        };
        let (text, millis) = (&greeting.get_ref().text, start.elapsed().as_millis());
        println!("{call:2}: {text} after {millis} ms, retries: {retries}");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
