use super::call::Call;

/// A call, and the way it goes to a server.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) call: Call,
    /// The slot of its keys, or 0 outside of a Cluster.
    pub(super) slot: u16,
    pub(super) how: Batching,
}

/// Whether a call goes out with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Batching {
    /// With others to the same script and with keys in the same slot.
    Together,
    /// Alone, because the keys of a moving slot are not all on one server.
    Alone,
    /// Alone, to a server that does not have the slot yet.
    Asking,
}
