//! The key that a rate limit sends to its backend.

use std::convert::Infallible;
use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use tower::{Layer, Service, service_fn};
use tower_dist_ratelimit::backend::{
    Answer, Backend, BackendError, BoxFuture, Charge, PolicyId,
};
use tower_dist_ratelimit::key::KeyExtractor;
use tower_dist_ratelimit::{BuildError, Decision, Policy, Quota, RateLimitLayer};

/// A rate limit with this key extractor.
pub struct Extractor {
    layer: RateLimitLayer,
    last: Arc<Mutex<Option<Vec<u8>>>>,
}

impl Extractor {
    pub fn by(key: impl KeyExtractor) -> Self {
        let last = Arc::default();
        let recorder = Recorder(Arc::clone(&last));
        let policy = Policy::new("p", Quota::per_second(1)).by(key);
        let layer = RateLimitLayer::builder(recorder).limit(policy).build();
        Self {
            layer: layer.unwrap(),
            last,
        }
    }

    /// The key of a request as bytes; empty if the key is missing.
    pub fn key(&self, request: Request<()>) -> Vec<u8> {
        let inner = |_| ready(Ok::<_, Infallible>(Response::new(Bytes::new())));
        drop(self.layer.layer(service_fn(inner)).call(request));
        self.last.lock().unwrap().take().unwrap()
    }
}

/// A backend that allows every request and keeps the last key.
struct Recorder(Arc<Mutex<Option<Vec<u8>>>>);

impl Backend for Recorder {
    fn max_policies(&self) -> usize {
        1
    }

    fn register(&self, _: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        Ok(vec![PolicyId::new(0)])
    }

    fn acquire(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> Answer {
        *self.0.lock().unwrap() = Some(charges[0].key.to_vec());
        out[0] = Decision::allow(1, 1, 0, Duration::ZERO);
        Answer::Done(true)
    }

    fn settle(&self, _: &[Charge<'_>], _: i64) -> Answer {
        Answer::Done(true)
    }

    fn reset(&self, _: PolicyId, _: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        Box::pin(ready(Ok(())))
    }
}
