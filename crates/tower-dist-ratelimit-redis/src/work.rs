use redis::Cmd;

use super::call::Call;

/// What is sent to a server.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// With others to this script of keys in this slot, which is zero unless the server is one of a Cluster.
    Decide { call: Call, slot: u16, how: How },
    /// As it is.
    Command { command: Cmd, how: How },
}

/// In what company a call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Together,
    /// Alone: keys of a slot that moves are not all in one place.
    Alone,
    /// Alone, to a server that does not have the slot yet.
    Asking,
}

impl Work {
    pub(super) fn how(mut self, to: How) -> Self {
        match &mut self {
            Self::Decide { how, .. } | Self::Command { how, .. } => *how = to,
        }
        self
    }
}
