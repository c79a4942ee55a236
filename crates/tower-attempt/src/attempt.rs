/// One attempt to send a request.
///
/// An HTTP or gRPC layer that sends an extra attempt of an `http::Request` stores an `Attempt` in the request's
/// extensions. The layer stores none in the first attempt, so the services below recognise extra attempts.
///
/// ```
/// use tower_attempt::{Attempt, AttemptKind};
///
/// assert_eq!(Attempt::PRIMARY.number(), 1);
/// assert_eq!(Attempt::retry(3).kind(), AttemptKind::Retry);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    number: u32,
    kind: AttemptKind,
}

/// The reason for an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttemptKind {
    /// The first attempt.
    Primary,
    /// Sent by a retry layer, after an earlier attempt had failed.
    Retry,
    /// Sent by a hedge layer, usually while an earlier attempt was still in flight. If a retry layer resends a hedge,
    /// the [`Attempt`] in the request's extensions also has this kind.
    Hedge,
}

impl AttemptKind {
    /// Returns the label for metrics and log lines: `primary`, `retry` or `hedge`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Retry => "retry",
            Self::Hedge => "hedge",
        }
    }
}

impl Attempt {
    /// The first attempt.
    pub const PRIMARY: Self = Self::new(1, AttemptKind::Primary);

    const fn new(number: u32, kind: AttemptKind) -> Self {
        Self { number, kind }
    }

    /// A retry with this number, sent because an earlier attempt failed. The first attempt has the number 1.
    #[must_use]
    pub const fn retry(number: u32) -> Self {
        Self::new(number, AttemptKind::Retry)
    }

    /// A hedge with this number. The first attempt has the number 1.
    #[must_use]
    pub const fn hedge(number: u32) -> Self {
        Self::new(number, AttemptKind::Hedge)
    }

    /// Returns the number of the attempt, as counted by the layer that sent it. The first attempt has the number 1. If
    /// a hedge layer [skips](crate::SkipReason) a hedge, no other attempt of the call gets the number of that hedge.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// Returns the reason for the attempt.
    #[must_use]
    pub const fn kind(&self) -> AttemptKind {
        self.kind
    }
}
