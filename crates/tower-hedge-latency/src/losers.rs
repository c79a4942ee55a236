//! What becomes of attempts that are not needed any more.

#[cfg(feature = "drain")]
mod drain;

use std::future::Future;
use std::pin::Pin;

#[cfg(feature = "drain")]
pub use self::drain::Drain;

/// The type that holds an attempt with the future `F` while it is in flight.
///
/// Without a bound on `F`, so that a call's future is `Send` whatever the lifetimes in the error type.
pub trait Holds<F> {
    /// An attempt in flight.
    type Attempt;
}

/// Holds attempts while they are out, and disposes of the losers.
pub trait Losers<F: Future>: Holds<F, Attempt: Future<Output = F::Output>> {
    /// An attempt begins.
    fn hold(&self, future: F) -> Self::Attempt;

    /// Another attempt has won. This one is dropped right after.
    fn lose(&self, attempt: Pin<&mut Self::Attempt>);

    /// An attempt has failed, and others go on or have won.
    fn discard(&self, failure: F::Output);
}

/// Drops them.
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
