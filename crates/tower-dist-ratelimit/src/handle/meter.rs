use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http_body::{Body, Frame, SizeHint};
use pin_project::pin_project;

use super::RateLimitHandle;

/// A counter of the tokens that a request uses, from [`RateLimitHandle::meter`]. Dropping the counter calls
/// [`settle`](RateLimitHandle::settle) with the count.
///
/// Move the meter into the source of the response, such as the closure of a stream. Then the meter is dropped with the
/// stream: after the stream's end, or when the client disconnects half-way. [`body`](Self::body) wraps an existing
/// body.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use axum::{Extension, Router, body::Body, routing::get};
/// use futures_util::{StreamExt, stream};
/// use http::Request;
/// use http_body_util::BodyExt;
/// use tower::ServiceExt;
/// use tower_dist_ratelimit::{Policy, Quota, RateLimitHandle, RateLimitLayer, backend::Memory};
///
/// let layer = RateLimitLayer::builder(Memory::default())
///     .limit(Policy::new("words", Quota::per_hour(1_000)).cost(100))
///     .handle()
///     .build()?;
/// let talk = async |Extension(handle): Extension<RateLimitHandle>| {
///     let mut meter = handle.meter();
///     Body::from_stream(stream::iter(["so ", "it ", "goes"]).map(move |word| {
///         meter.add(1);
///         Ok::<_, std::convert::Infallible>(word)
///     }))
/// };
/// let app: Router = Router::new().route("/", get(talk)).layer(layer);
///
/// let get = || Request::new(Body::empty());
/// let response = app.clone().oneshot(get()).await?;
/// assert_eq!(response.headers()["ratelimit"], r#""words";r=900;t=360"#, "100 are reserved");
/// response.into_body().collect().await?;
/// // The stream sent three words.
/// let response = app.oneshot(get()).await?;
/// assert!(response.headers()["ratelimit"].to_str()?.starts_with(r#""words";r=897"#));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping it settles the request"]
pub struct Meter {
    pub(super) handle: RateLimitHandle,
    /// The count of used tokens.
    pub(super) used: u64,
}

impl Meter {
    /// Adds `tokens` to the count.
    pub fn add(&mut self, tokens: u64) {
        self.used = self.used.saturating_add(tokens);
    }

    /// Wraps a body. `cost` returns the tokens that a piece of data uses. When the body ends, fails, or is dropped
    /// half-way, the meter settles the request. Tokens that were [added](Self::add) before also count.
    ///
    /// Data, errors and trailers pass through unchanged. `axum::body::Body::new` or `tonic::body::Body::new` converts
    /// the result to the framework's body. Request bodies can be wrapped in the same way.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use axum::{Extension, Router, body::{Body, Bytes}, routing::get};
    /// use http::Request;
    /// use http_body_util::BodyExt;
    /// use tower::ServiceExt;
    /// use tower_dist_ratelimit::{Policy, Quota, RateLimitHandle, RateLimitLayer, backend::Memory};
    ///
    /// // A megabyte per hour. Each download reserves a tenth of it.
    /// let layer = RateLimitLayer::builder(Memory::default())
    ///     .limit(Policy::new("bytes", Quota::per_hour(1_000_000)).cost(100_000))
    ///     .handle()
    ///     .build()?;
    /// let download = async |Extension(handle): Extension<RateLimitHandle>| {
    ///     let file = Body::from(vec![0; 70_000]);
    ///     Body::new(handle.meter().body(file, |data: &Bytes| data.len() as u64))
    /// };
    /// let app: Router = Router::new().route("/", get(download)).layer(layer);
    ///
    /// let get = || Request::new(Body::empty());
    /// app.clone().oneshot(get()).await?.into_body().collect().await?;
    /// // The first download used 70,000 bytes, and the second one reserves 100,000. About 830,000 remain.
    /// let response = app.oneshot(get()).await?;
    /// assert!(response.headers()["ratelimit"].to_str()?.starts_with(r#""bytes";r=83"#));
    /// # Ok(())
    /// # }
    /// ```
    pub fn body<B, F>(self, body: B, cost: F) -> MeteredBody<B, F>
    where
        B: Body,
        F: FnMut(&B::Data) -> u64,
    {
        MeteredBody {
            body,
            cost,
            meter: Some(self),
        }
    }

    /// Returns the count of used tokens.
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

/// A body that counts the cost of its data, from [`Meter::body`]. When it ends, fails, or is dropped half-way, it calls
/// [`settle`](RateLimitHandle::settle) with the count.
///
/// Data, errors and trailers of the inner body pass through unchanged.
#[pin_project]
pub struct MeteredBody<B, F> {
    #[pin]
    body: B,
    cost: F,
    /// `None` after the body has ended or failed.
    meter: Option<Meter>,
}

impl<B: Body, F: FnMut(&B::Data) -> u64> Body for MeteredBody<B, F> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let frame = ready!(this.body.poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let (Some(data), Some(meter)) = (frame.data_ref(), &mut *this.meter) {
                    meter.add((this.cost)(data));
                }
            }
            // Drops the meter, so that the request settles now, even if the caller keeps the body.
            Some(Err(_)) | None => *this.meter = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B: fmt::Debug, F> fmt::Debug for MeteredBody<B, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MeteredBody")
            .field("body", &self.body)
            .field("meter", &self.meter)
            .finish_non_exhaustive()
    }
}
