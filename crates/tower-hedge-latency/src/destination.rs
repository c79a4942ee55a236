//! The destinations of hedges.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tower_attempt::Attempt;

#[cfg(feature = "http")]
mod used;

#[cfg(feature = "http")]
pub use self::used::UsedEndpoints;

/// Chooses the service that receives a hedge.
pub trait HedgeDestination<S, Req> {
    /// Prepares the first attempt of a call that may be hedged. The copies for hedges are made from this request.
    fn begin(&self, _request: &mut Req) {}

    /// Returns the service for a hedge. `own` is a clone of the service that received the first attempt.
    fn service(&self, _attempt: Attempt, _request: &mut Req, own: S) -> S {
        own
    }
}

/// Sends hedges to a clone of the service below.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anywhere;

impl<S, Req> HedgeDestination<S, Req> for Anywhere {}

/// Sends the hedges of each call to the services of a list in turn, starting with the first service of the list. A
/// skipped hedge uses up its turn.
///
/// A lock around each service allows services that are not `Sync`, such as boxed ones. Only a hedge takes the lock.
#[derive(Clone)]
pub struct Alternates<S>(Arc<[Mutex<S>]>);

impl<S> Alternates<S> {
    pub(crate) fn new(services: impl IntoIterator<Item = S>) -> Self {
        Self(services.into_iter().map(Mutex::new).collect())
    }
}

impl<S> fmt::Debug for Alternates<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} alternates", self.0.len())
    }
}

impl<S: Clone, Req> HedgeDestination<S, Req> for Alternates<S> {
    /// The first hedge is attempt number 2, and goes to the first service of the list.
    fn service(&self, attempt: Attempt, _: &mut Req, own: S) -> S {
        let hedge = usize::try_from(attempt.number().saturating_sub(2)).unwrap_or(0);
        let place = hedge.checked_rem(self.0.len());
        let service = place.and_then(|place| self.0.get(place));
        service.map_or(own, |service| {
            let service = service.lock().unwrap_or_else(PoisonError::into_inner);
            service.clone()
        })
    }
}

/// Leaves the destination of hedges to a balancer below, which reads [`UsedEndpoints`] in the request's extensions.
#[cfg(feature = "http")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Spread;

#[cfg(feature = "http")]
impl<S, B> HedgeDestination<S, http::Request<B>> for Spread {
    fn begin(&self, request: &mut http::Request<B>) {
        UsedEndpoints::of(request);
    }
}

/// Sends hedges to the service that a closure chooses.
#[cfg(feature = "http")]
#[derive(Clone, Copy, Debug)]
pub struct Chosen<F>(pub(crate) F);

#[cfg(feature = "http")]
impl<F, S, B> HedgeDestination<S, http::Request<B>> for Chosen<F>
where
    F: Fn(Attempt, &UsedEndpoints) -> S,
{
    fn begin(&self, request: &mut http::Request<B>) {
        UsedEndpoints::of(request);
    }

    fn service(&self, attempt: Attempt, request: &mut http::Request<B>, _: S) -> S {
        (self.0)(attempt, &UsedEndpoints::of(request))
    }
}
