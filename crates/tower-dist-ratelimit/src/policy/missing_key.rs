/// What happens to a request in which a policy finds no key.
///
/// # Default
///
/// [`Error`](Self::Error) for keys that every request has if the server is set up for them, such as
/// [`peer_addr`](crate::key::peer_addr()); [`Shared`](Self::Shared) for all other keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingKey {
    /// All requests without the key share one bucket, so that a client gains nothing by leaving the key out. With the
    /// `tracing` feature the first such request logs a warning, because it can mean a mistake in the server's setup.
    Shared,
    /// The policy does not apply to such a request.
    Skip,
    /// Such a request is answered 400 (gRPC: `INVALID_ARGUMENT`) and charged nothing.
    Reject,
    /// Such a request is answered 500 (gRPC: `INTERNAL`) and charged nothing. The response says what the server lacks, and so
    /// does one error in the log with the `tracing` feature.
    Error,
}
