//! The fate of attempts that lost a race.

#[cfg(feature = "drain")]
mod drain;

use std::future::Future;
use std::pin::Pin;

#[cfg(feature = "drain")]
pub use self::drain::Drain;

/// The type that holds an attempt with the future `F` while it is in flight.
///
/// The trait has no bound on `F`, so that a call's future is `Send` with any lifetimes in the error type.
pub trait Holds<F> {
    /// An attempt in flight.
    type Attempt;
}

/// Holds attempts in flight, and disposes of losers.
pub trait Losers<F: Future>: Holds<F, Attempt: Future<Output = F::Output>> {
    /// Takes the future of a new attempt.
    fn hold(&self, future: F) -> Self::Attempt;

    /// Disposes of an attempt because another attempt won. The attempt is dropped right after.
    fn lose(&self, attempt: Pin<&mut Self::Attempt>);

    /// Disposes of the failure of an attempt while others are in flight or after another won.
    fn discard(&self, failure: F::Output);
}

/// Drops losers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cancel;

impl<F> Holds<F> for Cancel {
    type Attempt = F;
}

impl<F: Future> Losers<F> for Cancel {
    fn hold(&self, future: F) -> F {
        future
    }

    fn lose(&self, _: Pin<&mut F>) {}

    fn discard(&self, _: F::Output) {}
}
