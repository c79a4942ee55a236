/// One sending of a request.
///
/// A layer that sends an extra attempt of an HTTP request puts this into that request's
/// extensions, so that the services below can tell it from the first. A first attempt carries
/// nothing.
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

/// Why an attempt was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttemptKind {
    /// The first sending.
    Primary,
    /// Sent after an earlier attempt had failed.
    Retry,
    /// Sent while an earlier attempt was still in flight.
    Hedge,
}

impl AttemptKind {
    /// The label in metrics and log lines: `primary`, `retry` or `hedge`.
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
    pub const PRIMARY: Self = Self {
        number: 1,
        kind: AttemptKind::Primary,
    };

    /// The attempt `number` (the first is 1), sent because an earlier one failed.
    #[must_use]
    pub const fn retry(number: u32) -> Self {
        Self {
            number,
            kind: AttemptKind::Retry,
        }
    }

    /// The attempt `number` (the first is 1), sent while an earlier one was in flight.
    #[must_use]
    pub const fn hedge(number: u32) -> Self {
        Self {
            number,
            kind: AttemptKind::Hedge,
        }
    }

    /// Which attempt this is, as the layer that sent it counts; the first is 1.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// Why it was sent.
    #[must_use]
    pub const fn kind(&self) -> AttemptKind {
        self.kind
    }
}
