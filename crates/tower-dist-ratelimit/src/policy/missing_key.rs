/// How a policy handles a request without a key.
///
/// # Default
///
/// [`Error`](Self::Error) for keys that every request has if the server is configured for them, such as
/// [`peer_addr`](crate::key::peer_addr()); [`Shared`](Self::Shared) for all other keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingKey {
    /// All requests without the key share one count, so a client gains nothing by omitting the key. With the `tracing`
    /// feature the first such request logs a warning, because it can mean a misconfigured server.
    Shared,
    /// The policy does not apply to the request.
    Skip,
    /// The request is rejected with status 400 (gRPC: `INVALID_ARGUMENT`) and not charged.
    Reject,
    /// The request is rejected with status 500 (gRPC: `INTERNAL`) and not charged. The response explains how to configure the
    /// server, and so does one error in the log with the `tracing` feature.
    Error,
}
