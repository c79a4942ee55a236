//! Disposes of the attempts that lost a race.

#[cfg(feature = "drain")]
mod drain;

use std::pin::Pin;

#[cfg(feature = "drain")]
pub use self::drain::Drain;

/// Disposes of losers, the attempts that another attempt has overtaken.
pub trait Losers<F: Future> {
    /// An attempt in flight.
    type Attempt: Future<Output = F::Output>;

    /// Takes the future of a new attempt.
    fn hold(&self, future: F) -> Self::Attempt;

    /// Disposes of an attempt because another attempt ended the race. If this method leaves the attempt in place, the
    /// call's future drops the attempt soon afterwards.
    fn dispose(&self, _attempt: Pin<&mut Option<Self::Attempt>>) {}

    /// Disposes of a failed attempt's outcome, which the caller will not receive.
    fn discard(&self, _failure: F::Output) {}
}

/// Drops losers, the attempts that another attempt has overtaken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cancel;

impl<F: Future> Losers<F> for Cancel {
    type Attempt = F;

    fn hold(&self, future: F) -> F {
        future
    }
}
