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
    /// Perhaps together with other calls to the same script. In a Cluster, their keys are in the same slot.
    Together,
    /// Alone, after the answer `MOVED` or `TRYAGAIN`.
    Alone,
    /// Alone, after the command `ASKING`, to the node to which the slot is moving.
    Asking,
}
