use super::RateLimitHandle;

/// Counts what a request costs while it is being answered, and settles that when it is dropped; from
/// [`RateLimitHandle::meter`].
///
/// Move it into what makes the response, such as the closure of a stream: it is dropped when the stream ends, and also
/// when the client goes away half-way.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use axum::{Extension, Router, body::{Body, Bytes}, routing::get};
/// use futures_util::{StreamExt, stream};
/// use http::Request;
/// use http_body_util::BodyExt;
/// use tower::ServiceExt;
/// use tower_dist_ratelimit::{Policy, Quota, RateLimitHandle, RateLimitLayer, backend::Memory};
///
/// let layer = RateLimitLayer::builder(Memory::default())
///     .limit(Policy::new("kilobytes", Quota::per_hour(1_000)).cost(100))
///     .handle()
///     .build()?;
/// let download = async |Extension(handle): Extension<RateLimitHandle>| {
///     let mut meter = handle.meter();
///     Body::from_stream(stream::iter(0..3).map(move |_| {
///         meter.add(1);
///         Ok::<_, std::convert::Infallible>(Bytes::from(vec![0; 1024]))
///     }))
/// };
/// let app: Router = Router::new().route("/", get(download)).layer(layer);
///
/// let get = || Request::new(Body::empty());
/// let response = app.clone().oneshot(get()).await?;
/// assert_eq!(response.headers()["ratelimit"], r#""kilobytes";r=900;t=360"#, "100 are reserved");
/// response.into_body().collect().await?;
/// // Three were sent.
/// let response = app.oneshot(get()).await?;
/// assert!(response.headers()["ratelimit"].to_str()?.starts_with(r#""kilobytes";r=897"#));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping it settles the request"]
pub struct Meter {
    handle: RateLimitHandle,
    used: u64,
}

impl Meter {
    pub(super) fn new(handle: RateLimitHandle) -> Self {
        Self { handle, used: 0 }
    }

    /// Counts `tokens` more.
    pub fn add(&mut self, tokens: u64) {
        self.used = self.used.saturating_add(tokens);
    }

    /// What was counted, in tokens.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.handle.settle(self.used);
    }
}
