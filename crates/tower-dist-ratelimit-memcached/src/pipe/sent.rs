use tokio::{sync::oneshot, time::Instant};

use crate::{failure::Failure, job::Counting, reply::Meta};

/// A command that was sent, and what its answer is for. A server answers in the order in which it was asked.
pub(super) struct Sent {
    pub(super) opaque: u64,
    pub(super) at: Instant,
    pub(super) then: Then,
}

/// What an answer is for.
pub(crate) enum Then {
    /// The present window's count, of a question that adds nothing to it.
    Look(Box<Counting>),
    /// What the counter says once it is charged.
    Charged(Box<Counting>),
    /// What it says once that was taken back.
    TakenBack(Box<Counting>),
    /// What it is now, as somebody else was quicker.
    Reread(Box<Counting>),
    /// What it is that no number can be added to.
    Inspected(Box<Counting>),
    /// It is gone, so that it can be counted again.
    Healed(Box<Counting>),
    /// The last of what was to be done.
    Settled(Box<Counting>),
    /// The sender of the command receives it.
    Told(oneshot::Sender<Result<Meta, Failure>>),
}
