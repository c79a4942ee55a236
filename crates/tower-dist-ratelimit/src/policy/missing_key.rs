/// How a policy handles a request without a key.
///
/// # Default
///
/// [`Error`](Self::Error) for keys with a [hint](crate::key::KeyExtractor::hint) about the server's configuration, such
/// as [`peer_addr`](crate::key::peer_addr()). [`Shared`](Self::Shared) for all other keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingKey {
    /// All requests without the key share one count, so all clients that omit the key share one quota. With the
    /// `tracing` feature the first such request logs a warning, because it can mean a misconfigured server.
    Shared,
    /// The policy does not apply to the request. With the `tracing` feature, the first such request logs a warning if
    /// the key has a [hint](crate::key::KeyExtractor::hint).
    Skip,
    /// The policy rejects the request with [`Reason::MissingKey`](crate::Reason::MissingKey), and the request is not
    /// charged. By default, the status is 400 (gRPC: `INVALID_ARGUMENT`). With the `tracing` feature, the first such
    /// request logs a warning if the key has a [hint](crate::key::KeyExtractor::hint).
    Reject,
    /// The policy rejects the request with [`Reason::Misconfigured`](crate::Reason::Misconfigured), and the request is
    /// not charged. By default, the status is 500 (gRPC: `INTERNAL`), and the response has the key's
    /// [hint](crate::key::KeyExtractor::hint) if the key has one. With the `tracing` feature, the first such request
    /// logs an error.
    Error,
}
