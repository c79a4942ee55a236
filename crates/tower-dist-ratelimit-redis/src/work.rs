use super::call::Call;

/// A call, and how it goes to a server.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) call: Call,
    /// The slot of its keys, or 0 if the server is not one of a Cluster.
    pub(super) slot: u16,
    pub(super) how: How,
}

/// Whether a call goes out with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// With others to the same script of keys in the same slot.
    Together,
    /// Alone: keys of a slot that moves are not all in one place.
    Alone,
    /// Alone, to a server that does not have the slot yet.
    Asking,
}
