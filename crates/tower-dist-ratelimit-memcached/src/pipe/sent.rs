use tokio::time::Instant;

use crate::{cell::CellKey, job::Counting};

/// A command that was sent, and what its answer is for. A server answers in the order in which it was asked.
pub(super) struct Sent {
    pub(super) opaque: u64,
    pub(super) at: Instant,
    pub(super) then: Then,
}

/// What an answer is for.
pub(crate) enum Then {
    /// The count of an older window, for the question that follows.
    Part,
    /// The present window's count, of a question that adds nothing to it.
    Look(Box<Counting>),
    /// What the counter says once it is charged.
    Charged(Box<Counting>),
    /// What it says, when others are asked for behind it.
    Added,
    /// The next window's count, behind those.
    Beside(Box<Counting>),
    /// What it says once that was taken back.
    TakenBack(Box<Counting>),
    /// What it is now, as somebody else was quicker.
    Reread(Box<Counting>),
    /// What it is that no number can be added to.
    Inspected(Box<Counting>),
    /// It is gone, so that it can be counted again.
    Healed(Box<Counting>),
    /// The counts that a refund comes out of.
    Refund(Box<Counting>),
    /// The last of what was to be done.
    Settled(Box<Counting>),
    Nothing,
    /// An item, to decide by.
    Read(CellKey),
    /// Whether it was still the same, and is written.
    Wrote(CellKey),
}
