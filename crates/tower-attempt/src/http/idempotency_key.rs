use std::convert::identity;

use http::{HeaderMap, HeaderValue, Method};

use super::{HttpRequest, trimmed};
use crate::classify::forward_classify;
use crate::{Budget, Classify};

/// The request header that makes any method safe to repeat
/// (draft-ietf-httpapi-idempotency-key-header).
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// An empty key is none.
pub(super) fn has_key(fields: &HeaderMap) -> bool {
    let key = fields.get(IDEMPOTENCY_KEY);
    key.is_some_and(|key| !trimmed(key).is_empty())
}

/// A classification of HTTP that gives an `Idempotency-Key` to requests that need one to be repeated:
/// those of a method that is not idempotent, unless they have one. All attempts have the same.
#[derive(Clone, Copy, Debug)]
pub struct GenerateKey<C, G> {
    classify: C,
    generate: G,
}

impl<C, G: Fn() -> HeaderValue> GenerateKey<C, G> {
    /// Judges like `classify`, and takes keys from `generate`.
    pub const fn new(classify: C, generate: G) -> Self {
        Self { classify, generate }
    }
}

impl<C, G, Req, Res, E> Classify<Req, Res, E> for GenerateKey<C, G>
where
    C: Classify<Req, Res, E>,
    G: Fn() -> HeaderValue,
    Req: HttpRequest,
{
    type Context = C::Context;

    fn prepare(&self, request: &mut Req) {
        self.classify.prepare(request);
        let method = request.method();
        if !method.is_idempotent() && method != Method::CONNECT && !has_key(request.headers()) {
            // Full to the brim of 32,768 fields: then without, as it is not safe to repeat either.
            let _ = request
                .headers_mut()
                .try_insert(IDEMPOTENCY_KEY, (self.generate)());
        }
    }

    fn context(&self, request: &Req) -> Self::Context {
        self.classify.context(request)
    }

    fn budget<'a>(&'a self, context: &'a Self::Context) -> Option<&'a Budget> {
        self.classify.budget(context)
    }

    fn backoff(&self, retry: u32, outcome: &Result<Res, E>) -> Option<std::time::Duration> {
        self.classify.backoff(retry, outcome)
    }

    forward_classify!(identity, identity);
}
