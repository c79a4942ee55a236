use super::call::ScriptCall;

/// A call, its slot, and whether it can share a batch.
#[derive(Clone, Debug)]
pub(super) struct QueuedCall {
    pub(super) call: ScriptCall,
    /// The slot of the call's keys, or 0 outside of a Cluster.
    pub(super) slot: u16,
    pub(super) batching: Batching,
}

/// Whether a call is sent together with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Batching {
    /// Together with calls to the same script whose keys are in the same slot.
    Together,
    /// Alone, after `MOVED` or `TRYAGAIN`.
    Alone,
    /// Alone and after `ASKING`, to the node to which the slot is moving.
    Asking,
}
