use std::time::Duration;

use crate::{Attempt, Deadline};

/// What an attempt's outcome means for a repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// An answer to pass on. A retry layer's budget grows with it.
    Success,
    /// A failure that a repeat would not mend, or that is not safe to repeat.
    Fatal,
    /// A failure that may pass.
    Retry {
        /// What kind of failure.
        reason: RetryReason,
        /// The server's wish: no repeat before this much time has passed.
        hint: Option<Duration>,
    },
}

/// What kind of failure a retry answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetryReason {
    /// A fault that is expected to pass.
    Transient,
    /// The server asks for less load; the backoff starts from a longer base.
    Throttled,
    /// The answer did not come in time.
    Timeout,
}

impl Verdict {
    /// A fault that is expected to pass, without a hint.
    #[must_use]
    pub const fn transient() -> Self {
        Self::retry(RetryReason::Transient)
    }

    /// A demand for less load, without a hint.
    #[must_use]
    pub const fn throttled() -> Self {
        Self::retry(RetryReason::Throttled)
    }

    /// An answer that did not come in time.
    #[must_use]
    pub const fn timeout() -> Self {
        Self::retry(RetryReason::Timeout)
    }

    const fn retry(reason: RetryReason) -> Self {
        Self::Retry { reason, hint: None }
    }

    /// Adds the server's hint to a retry; on any other verdict it changes nothing.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_attempt::Verdict;
    ///
    /// let verdict = Verdict::throttled().after(Duration::from_secs(2));
    /// assert!(verdict.is_retry());
    /// assert_eq!(Verdict::Fatal.after(Duration::from_secs(2)), Verdict::Fatal);
    /// ```
    #[must_use]
    pub const fn after(self, hint: Duration) -> Self {
        match self {
            Self::Retry { reason, .. } => Self::Retry {
                reason,
                hint: Some(hint),
            },
            other => other,
        }
    }

    /// Whether a repeat is wanted.
    #[must_use]
    pub const fn is_retry(&self) -> bool {
        matches!(self, Self::Retry { .. })
    }
}

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

    /// Takes the context, before the request is sent.
    fn context(&self, request: &Req) -> Self::Context;

    /// Whether any outcome at all could make a repeat of this request right. When not, no copy
    /// of it is kept.
    fn may_repeat(&self, _context: &Self::Context) -> bool {
        true
    }

    /// Whether two attempts of this request may be in flight at once.
    fn may_hedge(&self, context: &Self::Context) -> bool {
        self.may_repeat(context)
    }

    /// When the caller stops waiting, if the request says so.
    ///
    /// # Default
    ///
    /// `None`: what the layer is set to.
    fn deadline(&self, _context: &Self::Context) -> Option<Deadline> {
        None
    }

    /// Judges an outcome.
    fn classify(
        &self,
        context: &Self::Context,
        attempt: &Attempt,
        outcome: &Result<Res, E>,
    ) -> Verdict;

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

/// A classification together with a closure that computes the delays.
#[derive(Clone, Copy, Debug)]
pub struct CustomBackoff<C, F> {
    classify: C,
    backoff: F,
}

impl<C, F> CustomBackoff<C, F> {
    /// Judges like `classify`, and takes delays from `backoff`.
    pub const fn new(classify: C, backoff: F) -> Self {
        Self { classify, backoff }
    }
}

impl<C, F, Req, Res, E> Classify<Req, Res, E> for CustomBackoff<C, F>
where
    C: Classify<Req, Res, E>,
    F: Fn(u32, &Result<Res, E>) -> Duration,
{
    type Context = C::Context;

    fn context(&self, request: &Req) -> Self::Context {
        self.classify.context(request)
    }

    fn may_repeat(&self, context: &Self::Context) -> bool {
        self.classify.may_repeat(context)
    }

    fn may_hedge(&self, context: &Self::Context) -> bool {
        self.classify.may_hedge(context)
    }

    fn classify(
        &self,
        context: &Self::Context,
        attempt: &Attempt,
        outcome: &Result<Res, E>,
    ) -> Verdict {
        self.classify.classify(context, attempt, outcome)
    }

    fn deadline(&self, context: &Self::Context) -> Option<Deadline> {
        self.classify.deadline(context)
    }

    fn attach<T: Clone + Send + Sync + 'static>(&self, outcome: &mut Result<Res, E>, info: T) {
        self.classify.attach(outcome, info);
    }

    fn backoff(&self, retry: u32, outcome: &Result<Res, E>) -> Option<Duration> {
        Some((self.backoff)(retry, outcome))
    }
}
