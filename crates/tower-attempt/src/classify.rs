mod budget_by;
mod custom_backoff;
mod forward;
mod verdict;

use std::time::Duration;

pub use self::budget_by::BudgetBy;
pub use self::custom_backoff::CustomBackoff;
#[cfg(feature = "http")]
pub(crate) use self::forward::forward_classify;
pub use self::verdict::{Hint, RetryReason, Verdict};
use crate::{Attempt, AttemptTimeout, Budget, Deadline};

/// Decides what an outcome means.
///
/// The request itself is gone once it is sent, so what matters of it is taken beforehand as a
/// [`Context`](Self::Context). A closure `Fn(&Result<Res, E>, &Attempt) -> Verdict` implements
/// this trait; write its argument's type out, since nothing else tells the compiler.
///
/// ```
/// use tower_attempt::{Attempt, Classify, Verdict};
///
/// let classify = |outcome: &Result<u32, &str>, _: &Attempt| match outcome {
///     Ok(_) => Verdict::Success,
///     Err(error) if *error == "busy" => Verdict::throttled(),
///     Err(_) => Verdict::Fatal,
/// };
/// let verdict = Classify::<(), _, _>::classify(&classify, &(), &Attempt::PRIMARY, &Err("busy"));
/// assert_eq!(verdict, Verdict::throttled());
/// ```
pub trait Classify<Req, Res, E> {
    /// What is remembered of a request while it is out.
    type Context;

    /// Changes the request before anything else is done with it.
    ///
    /// # Default
    ///
    /// It stays as it is.
    fn prepare(&self, _request: &mut Req) {}

    /// Takes the context, before the request is sent.
    fn context(&self, request: &Req) -> Self::Context;

    /// Whether any outcome at all could make a repeat of this request right. When not, no copy
    /// of it is kept.
    fn may_repeat(&self, _context: &Self::Context) -> bool {
        true
    }

    /// Whether two attempts of this request may be in flight at once. `request` is about to be sent.
    fn may_hedge(&self, context: &Self::Context, _request: &Req) -> bool {
        self.may_repeat(context)
    }

    /// When the caller stops waiting, if the request says so; wins over what the layer is set to.
    ///
    /// # Default
    ///
    /// `None`: what the layer is set to.
    fn deadline(&self, _context: &Self::Context) -> Option<Deadline> {
        None
    }

    /// When an answer is of no use any more, if the request says so: whatever else is set, it gets no
    /// later. gRPC's `grpc-timeout`.
    ///
    /// # Default
    ///
    /// `None`.
    fn expiry(&self, _context: &Self::Context) -> Option<Deadline> {
        None
    }

    /// How long one attempt may take, if the request says so.
    ///
    /// # Default
    ///
    /// `None`: what the layer is set to.
    fn attempt_timeout(&self, _context: &Self::Context) -> Option<AttemptTimeout> {
        None
    }

    /// The allowance that this request's extra attempts draw on, if it has one of its own.
    ///
    /// # Default
    ///
    /// `None`: the layer's.
    fn budget<'a>(&'a self, _context: &'a Self::Context) -> Option<&'a Budget> {
        None
    }

    /// Puts the last touches to an extra attempt, right before it goes out. `previous` counts the
    /// attempts before it that the server may have processed.
    ///
    /// # Default
    ///
    /// None.
    fn repeat(
        &self,
        _context: &mut Self::Context,
        _attempt: Attempt,
        _previous: u32,
        _request: &mut Req,
    ) {
    }

    /// Judges an outcome.
    fn classify(
        &self,
        context: &Self::Context,
        attempt: &Attempt,
        outcome: &Result<Res, E>,
    ) -> Verdict;

    /// Judges an attempt that the layer gave up waiting for, and the answer that its caller would get.
    ///
    /// # Default
    ///
    /// A timeout, to be repeated.
    fn timed_out(
        &self,
        _context: &Self::Context,
        _attempt: &Attempt,
        _answer: &Result<Res, E>,
    ) -> Verdict {
        Verdict::timeout()
    }

    /// Whether this request is an extra attempt of a retry layer above, whose attempts those of another
    /// layer would multiply.
    ///
    /// # Default
    ///
    /// `false`: it is not known.
    fn is_repeated_above(&self, _context: &Self::Context) -> bool {
        false
    }

    /// Whether a layer below has repeated this request in vain already. Asked of each failure before
    /// it is [repeated](Self::repeat).
    ///
    /// # Default
    ///
    /// `false`: it is not known.
    fn was_given_up(&self, _context: &mut Self::Context, _outcome: &Result<Res, E>) -> bool {
        false
    }

    /// Tells the layers above that this failure was repeated as often as is right.
    ///
    /// # Default
    ///
    /// There is no place to say it.
    fn give_up(&self, _context: &Self::Context, _outcome: &mut Result<Res, E>) {}

    /// Puts `info` where whoever gets the outcome can find it, if it has such a place: an HTTP
    /// response's extensions.
    ///
    /// # Default
    ///
    /// Nowhere.
    fn attach<T: Clone + Send + Sync + 'static>(&self, _outcome: &mut Result<Res, E>, _info: T) {}

    /// A delay to use in place of the layer's backoff, before the 0-based `retry`.
    ///
    /// # Default
    ///
    /// `None`: the layer's backoff.
    fn backoff(&self, _retry: u32, _outcome: &Result<Res, E>) -> Option<Duration> {
        None
    }
}

impl<F, Req, Res, E> Classify<Req, Res, E> for F
where
    F: Fn(&Result<Res, E>, &Attempt) -> Verdict,
{
    type Context = ();

    fn context(&self, _: &Req) {}

    fn classify(&self, (): &(), attempt: &Attempt, outcome: &Result<Res, E>) -> Verdict {
        self(outcome, attempt)
    }
}

/// Retries every `Err` as transient and never an `Ok`. For services that speak no protocol known
/// here.
#[derive(Clone, Copy, Debug, Default)]
pub struct EveryError;

impl<Req, Res, E> Classify<Req, Res, E> for EveryError {
    type Context = ();

    fn context(&self, _: &Req) {}

    fn classify(&self, (): &(), _: &Attempt, outcome: &Result<Res, E>) -> Verdict {
        match outcome {
            Ok(_) => Verdict::Success,
            Err(_) => Verdict::transient(),
        }
    }
}
