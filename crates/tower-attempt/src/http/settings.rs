use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, StatusCode};

use super::{OutcomeView, RequestHead};
use crate::{Budgets, BuildError, Verdict};

/// A user's rule that selects requests.
type Predicate = Arc<dyn Fn(RequestHead<'_>) -> bool + Send + Sync>;
/// A user's rule that names the key of a request's class or budget.
type KeyFn = Arc<dyn for<'a> Fn(RequestHead<'a>) -> Option<&'a str> + Send + Sync>;
/// A user's rule that classifies outcomes.
type ClassifyRule<C> = Arc<dyn Fn(OutcomeView<'_, C>) -> Verdict + Send + Sync>;
/// A user's rule that chooses the delay before a retry.
type BackoffRule<C> = Arc<dyn Fn(u32, OutcomeView<'_, C>) -> Option<Duration> + Send + Sync>;

/// The user's settings of [`Http`](crate::Http) or [`Grpc`](crate::Grpc).
#[derive(Clone, Default)]
pub struct ProtocolSettings<C> {
    /// The maximum number of bytes to record of a request's streaming body, so that the request can be resent. `None`
    /// means 64 KiB. See `replay_limit` of a layer's builder.
    pub replay_limit: Option<usize>,
    /// The rule that can replace the verdict of the standard rules of [`Http`](crate::Http) or [`Grpc`](crate::Grpc).
    /// The rule receives that verdict.
    pub classify: Option<ClassifyRule<C>>,
    /// The rule that chooses the delay before a retry. Its first argument counts retries from 1; see
    /// `RetryLayerBuilder::backoff_by`.
    pub backoff: Option<BackoffRule<C>>,
    /// Declares further requests idempotent, in addition to the requests that the protocol calls idempotent.
    pub idempotent_if: Option<Predicate>,
    /// Restricts the requests that may be hedged.
    pub hedge_if: Option<Predicate>,
    /// Usually allows hedges of further requests, in addition to the requests that the protocol hedges. The selected
    /// requests also count as idempotent.
    pub hedge_unsafe_if: Option<Predicate>,
    /// Names the class of a request. A hedge layer learns the latencies of each class separately.
    pub key: Option<KeyFn>,
    /// The budgets of extra attempts, and the rule that names the key of a request's budget.
    pub budgets: Option<(Budgets, KeyFn)>,
    /// HTTP statuses to retry for idempotent requests, in addition to the statuses that [`Http`](crate::Http) retries
    /// by default.
    pub retry_statuses: Vec<StatusCode>,
    /// Whether a 429 is retried only if the request is idempotent.
    pub retry_429_for_idempotent_only: bool,
    /// Whether the user has declared that the client below follows no redirects.
    pub no_redirects: bool,
    /// Generates the `Idempotency-Key` of an HTTP request whose key is missing or empty and whose method is not
    /// idempotent. A CONNECT request gets no key. Only a layer in [`Mode::On`](crate::Mode::On) generates keys.
    pub generate_key: Option<Arc<dyn Fn() -> HeaderValue + Send + Sync>>,
    idempotent_methods: Option<Vec<String>>,
}

impl<C> ProtocolSettings<C> {
    /// Sets the full names of the gRPC methods that are idempotent. The leading slash is optional.
    pub fn idempotent_methods<T: Into<String>>(&mut self, names: impl IntoIterator<Item = T>) {
        let with_slash = |name: T| match name.into() {
            path if path.starts_with('/') => path,
            name => format!("/{name}"),
        };
        self.idempotent_methods = Some(names.into_iter().map(with_slash).collect());
    }

    pub(super) fn is_idempotent(&self, head: RequestHead<'_>) -> bool {
        let listed = |paths: &Vec<String>| paths.iter().any(|path| path == head.path());
        self.idempotent_methods.as_ref().is_some_and(listed)
            || self.idempotent_if.as_ref().is_some_and(|rule| rule(head))
    }

    /// Whether a setting declares requests idempotent.
    #[cfg(feature = "grpc")]
    pub(crate) fn declares_idempotent(&self) -> bool {
        self.idempotent_methods.is_some() || self.idempotent_if.is_some()
    }

    pub(crate) fn validate(&self) -> Result<(), BuildError> {
        let is_no_error = |status: &&StatusCode| status.as_u16() < 400;
        if let Some(status) = self.retry_statuses.iter().find(is_no_error) {
            let bound = "statuses of 400 or above";
            return Err(BuildError::new("retry_statuses", status.as_u16(), bound));
        }
        match &self.idempotent_methods {
            Some(names) if names.is_empty() => {
                let bound = "the full name of at least one method";
                Err(BuildError::new("idempotent_methods", names, bound))
            }
            _ => Ok(()),
        }
    }
}

impl<C> fmt::Debug for ProtocolSettings<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtocolSettings")
            .field("replay_limit", &self.replay_limit)
            .field("retry_statuses", &self.retry_statuses)
            .field("idempotent_methods", &self.idempotent_methods)
            .finish_non_exhaustive()
    }
}
