#[cfg(feature = "http")]
mod body;
#[cfg(feature = "http")]
mod by_body;
#[cfg(feature = "http")]
mod error;
#[cfg(feature = "http")]
mod frame;
#[cfg(feature = "http")]
mod polling;
#[cfg(feature = "http")]
mod reader;
#[cfg(feature = "http")]
mod readers;
#[cfg(feature = "http")]
mod record;
#[cfg(feature = "http")]
mod recording;
#[cfg(feature = "http")]
mod replay_body;
#[cfg(feature = "http")]
mod tape;
#[cfg(feature = "http")]
mod unread;
#[cfg(feature = "http")]
mod wakers;

#[cfg(feature = "http")]
pub use self::body::ReplayableBody;
#[cfg(feature = "http")]
pub use self::by_body::ByBody;
#[cfg(feature = "http")]
pub use self::error::{Interrupted, ReplayError};
#[cfg(feature = "http")]
use self::recording::Recording;
#[cfg(feature = "http")]
pub use self::replay_body::ReplayBody;
use crate::Attempt;

/// Makes further copies of a request.
pub trait Replays<Req> {
    /// What further copies are made from.
    type Saved;

    /// Prepares a request for its first attempt. `None`: it can't be repeated.
    fn first(&self, request: &mut Req) -> Option<Self::Saved>;

    /// A copy for `attempt`, while more may follow. `None`: the request can't be repeated any more.
    fn again(&self, saved: &Self::Saved, attempt: Attempt) -> Option<Req>;

    /// The copy for the last attempt.
    fn last(&self, saved: Self::Saved, attempt: Attempt) -> Option<Req>;
}

/// Repeats requests that are `Clone`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByClone;

impl<Req: Clone> Replays<Req> for ByClone {
    type Saved = Req;

    fn first(&self, request: &mut Req) -> Option<Req> {
        Some(request.clone())
    }

    fn again(&self, saved: &Req, _: Attempt) -> Option<Req> {
        Some(saved.clone())
    }

    fn last(&self, saved: Req, _: Attempt) -> Option<Req> {
        Some(saved)
    }
}
