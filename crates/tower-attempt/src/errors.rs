//! Finds the errors inside an error: its sources and its wrapped errors.

use std::any::{Any, TypeId};
use std::error::Error;
use std::io;
use std::iter::successors;
use std::sync::{PoisonError, RwLock};

use crate::{Attempt, Hint, Rejected, Verdict};

/// Maximum length of a chain of sources or wrappers, because a chain may contain a cycle.
const MAX_SOURCES: usize = 32;

/// The registered types, each with the function that finds the wrapped error. Threads that register a type concurrently
/// may each add it.
static WRAPPERS: RwLock<Vec<(TypeId, InnerError)>> = RwLock::new(Vec::new());

/// A function that returns the error inside an error of one registered type.
type InnerError = fn(&dyn Any) -> Option<&dyn Any>;

/// An error type that wraps errors of other types.
///
/// The layers recognise errors of known types, such as [`Rejected`] and `std::io::Error`. They also look into a
/// `Box<dyn Error + Send>` or `Box<dyn Error + Send + Sync>`, and search the sources of a known or boxed error. They
/// look into an unboxed error of any other type only if that type is [registered](Self::register).
///
/// ```
/// use std::any::Any;
/// use tower_attempt::{Rejected, WrapsError};
///
/// enum LimitError<E> {
///     Rejected(Rejected),
///     Inner(E),
/// }
///
/// impl<E: 'static> WrapsError for LimitError<E> {
///     fn wrapped(&self) -> &dyn Any {
///         match self {
///             Self::Rejected(rejected) => rejected,
///             Self::Inner(error) => error,
///         }
///     }
/// }
///
/// let error = LimitError::<String>::Rejected(Rejected::new(None));
/// assert_eq!(Rejected::find(&error), None);
/// LimitError::<String>::register();
/// assert!(Rejected::find(&error).is_some());
/// ```
pub trait WrapsError: 'static {
    /// Returns the wrapped error. The layers inspect it as they inspect an error that a service returns.
    fn wrapped(&self) -> &dyn Any;

    /// Registers this type for the whole process, so that the layers look into unboxed errors of this type.
    ///
    /// Call this function before a service returns such an error.
    ///
    /// # Cost
    ///
    /// A read lock, and a write lock if the type is not registered yet.
    fn register()
    where
        Self: Sized,
    {
        if view(TypeId::of::<Self>()).is_none() {
            let view: InnerError = |error| error.downcast_ref::<Self>().map(Self::wrapped);
            let mut wrappers = WRAPPERS.write().unwrap_or_else(PoisonError::into_inner);
            wrappers.push((TypeId::of::<Self>(), view));
        }
    }
}

fn view(of: TypeId) -> Option<InnerError> {
    let wrappers = WRAPPERS.read().unwrap_or_else(PoisonError::into_inner);
    let found = wrappers.iter().find(|(wrapper, _)| *wrapper == of);
    found.map(|(_, view)| *view)
}

/// Iterates over an error and its sources. Replaces an error of a registered type by its wrapped error first. If the
/// error is then unboxed and of an unknown type, the iterator is empty.
pub(crate) fn chain<E: 'static>(error: &E) -> impl Iterator<Item = &(dyn Error + 'static)> {
    successors(known(error), |error| source(*error)).take(MAX_SOURCES)
}

/// Unwraps an error of a registered type. Then returns the error if it is of a known type, or the error in a `Box<dyn
/// Error + Send>` or `Box<dyn Error + Send + Sync>`.
fn known(mut error: &dyn Any) -> Option<&(dyn Error + 'static)> {
    for _ in 0..MAX_SOURCES {
        let Some(view) = view(error.type_id()) else {
            break;
        };
        error = view(error)?;
    }
    if let Some(error) = error.downcast_ref::<Box<dyn Error + Send + Sync>>() {
        return Some(&**error);
    }
    if let Some(error) = error.downcast_ref::<Box<dyn Error + Send>>() {
        return Some(&**error);
    }
    macro_rules! try_each {
        ($($known:ty),*) => {
            $(if let Some(error) = error.downcast_ref::<$known>() {
                return Some(error);
            })*
        };
    }
    try_each!(io::Error, Rejected);
    #[cfg(feature = "hyper-util-01")]
    if let Some(error) = crate::http::fault::hyper::known(error) {
        return Some(error);
    }
    #[cfg(feature = "reqwest-013")]
    try_each!(reqwest::Error);
    #[cfg(feature = "tonic-014")]
    try_each!(tonic::transport::Error, tonic::Status);
    None
}

/// Returns the source of an error. If an `io::Error` wraps an error, returns that error, which [`Error::source`] skips.
fn source<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    let wrapped = error.downcast_ref().and_then(io::Error::get_ref);
    wrapped.map_or_else(|| error.source(), |wrapped| Some(wrapped))
}

impl Rejected {
    /// Returns the first rejection among an error and its sources.
    ///
    /// Recognises this type. Recognises other rejections by their texts: those of tower's `LoadShed`, of a `Buffer`
    /// whose worker has ended, and of tower-resilience 0.14's rate limiter, circuit breaker, bulkhead and outlier
    /// detection. An error of another type with such a text counts as a rejection, too.
    ///
    /// Returns `None` for an unboxed error whose type is neither one that the layers [recognise](crate::WrapsError),
    /// such as `std::io::Error`, nor [registered](crate::WrapsError::register).
    pub fn find<E: 'static>(error: &E) -> Option<Self> {
        chain(error).find_map(Self::of_one)
    }

    /// Replaces a rule's retry verdict if the outcome is a rejection and the verdict does not have [`Hint::Never`].
    /// Otherwise returns the verdict unchanged.
    ///
    /// If the rejection or the rule names a wait, the longer of these waits is the minimum delay of the retry. If
    /// neither names a wait, the new verdict is fatal. For a hedge, it is transient instead, so that the other attempts
    /// continue.
    #[cold]
    pub(crate) fn amend<Res, E: 'static>(
        verdict: Verdict,
        attempt: &Attempt,
        outcome: &Result<Res, E>,
    ) -> Verdict {
        let wait = match verdict.hint() {
            Some(Hint::Never) => return verdict,
            Some(Hint::AtLeast(wait) | Hint::Exactly(wait)) => Some(wait),
            None => None,
        };
        let rejected = outcome.as_ref().err().and_then(Self::find);
        rejected.map_or(verdict, |rejected| {
            Self::new(rejected.retry_after().max(wait)).verdict(attempt)
        })
    }
}
