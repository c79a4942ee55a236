use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::HttpBody;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use tokio::runtime::Builder;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_jitter_retry::{Backoff, Budget, RetryLayer};

use crate::measure::{Case, Figure, Subject};
use crate::message;
use crate::report::{BARE, OURS};

/// The length of a frame, as a server reads it from its socket.
const FRAME: usize = 16 * 1024;

const UPLOADS: [(&str, usize); 4] = [
    ("growth, upload of 1 KB", 1024),
    ("growth, upload of 64 KB", 64 * 1024),
    ("growth, upload of 1 MB", 1024 * 1024),
    ("growth, upload of 64 MB", 64 * 1024 * 1024),
];

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A body that is not in memory as a whole.
struct Frames {
    frame: Bytes,
    remaining: usize,
}

impl HttpBody for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        let length = self.remaining.min(FRAME);
        self.remaining -= length;
        Poll::Ready((length > 0).then(|| Ok(http_body::Frame::data(self.frame.slice(..length)))))
    }
}

/// A streamed upload. `ours` records it and sends it once, `replayed` fails once and sends it twice.
pub(super) fn cases() -> impl Iterator<Item = Case> {
    // A test has no time for the long ones.
    let most = if cfg!(test) { 64 * 1024 } else { usize::MAX };
    let uploads = UPLOADS
        .into_iter()
        .filter(move |&(_, length)| length <= most);
    uploads.map(|(name, length)| {
        let layer = RetryLayer::builder().http().backoff(Backoff::none());
        // Each frame counts for at least 64 bytes.
        let layer = layer
            .replay_limit(length.max(64))
            .budget(Budget::unlimited())
            .build()
            .expect("valid");
        let subjects = vec![
            subject(BARE, length, service_fn(read)),
            subject(OURS, length, layer.layer(service_fn(read))),
            subject("replayed", length, layer.layer(service_fn(fail_first()))),
        ];
        Case::new(name, Figure::Access, subjects)
    })
}

fn subject<S>(name: &'static str, length: usize, service: S) -> Subject
where
    S: Service<Request<Body>, Response = Response<()>, Error = Infallible> + Clone + 'static,
{
    let runtime = Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("no more than a timer");
    let frame = Bytes::from(vec![7; FRAME]);
    Subject::looping(name, move |calls| {
        runtime.block_on(async {
            for _ in 0..calls {
                let (frame, remaining) = (frame.clone(), length);
                let mut request = message::request(Frames { frame, remaining }.boxed_unsync());
                *request.method_mut() = Method::PUT;
                let Ok(response) = service.clone().oneshot(request).await;
                assert_eq!(response.status(), StatusCode::OK);
            }
        });
    })
}

async fn read(request: Request<Body>) -> Result<Response<()>, Infallible> {
    let mut body = request.into_body();
    while let Some(frame) = body.frame().await {
        let Ok(_) = std::hint::black_box(frame);
    }
    Ok(Response::new(()))
}

/// Reads every body to its end, and fails every other request.
fn fail_first() -> impl FnMut(Request<Body>) -> ReadFuture + Clone {
    let mut fails = false;
    move |request| {
        fails = !fails;
        let status = match fails {
            true => StatusCode::SERVICE_UNAVAILABLE,
            false => StatusCode::OK,
        };
        Box::pin(async move {
            let mut response = read(request).await?;
            *response.status_mut() = status;
            Ok(response)
        })
    }
}

type ReadFuture = Pin<Box<dyn Future<Output = Result<Response<()>, Infallible>> + Send>>;
