//! Services and backends for tests.

mod stores;
mod told;

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use tower::{Service, ServiceExt};
use tower_dist_ratelimit::Quota;

pub(crate) use self::{
    stores::{Broken, Mood, Noting, Remote, Scripted},
    told::Told,
};

/// Responds immediately, counts its calls, and panics if called without readiness. Clones are not ready.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    calls: Arc<AtomicUsize>,
    clones: Arc<AtomicUsize>,
    ready: bool,
}

impl Probe {
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Relaxed)
    }

    pub(crate) fn clones(&self) -> usize {
        self.clones.load(Relaxed)
    }

    /// An instance that shares the same counts.
    pub(crate) fn twin(&self) -> Self {
        Self {
            calls: Arc::clone(&self.calls),
            clones: Arc::clone(&self.clones),
            ready: false,
        }
    }
}

impl Clone for Probe {
    fn clone(&self) -> Self {
        self.clones.fetch_add(1, Relaxed);
        self.twin()
    }
}

impl Service<Request<()>> for Probe {
    type Response = Response<Bytes>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Bytes>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(
            std::mem::take(&mut self.ready),
            "called without being ready"
        );
        self.calls.fetch_add(1, Relaxed);
        ready(Ok(Response::new(Bytes::new())))
    }
}

/// One token per second, with this burst.
pub(crate) fn slow(burst: u64) -> Quota {
    Quota::per_second(1).burst(burst)
}

pub(crate) fn get() -> Request<()> {
    Request::new(())
}

/// A request with this key, for policies by `header("key")`.
pub(crate) fn from(key: &str) -> Request<()> {
    Request::builder().header("key", key).body(()).unwrap()
}

/// Waits for readiness and calls the service.
pub(crate) async fn send<S, B>(service: &mut S, request: Request<()>) -> Response<B>
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    let Ok(response) = service.ready().await.unwrap().call(request).await;
    response
}

/// The value of a field that occurs once in the response.
pub(crate) fn field<'a, B>(response: &'a Response<B>, name: &str) -> Option<&'a str> {
    let mut values = response.headers().get_all(name).iter();
    let value = values.next().map(|value| value.to_str().unwrap());
    assert!(values.next().is_none(), "{name} comes twice");
    value
}
