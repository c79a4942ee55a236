use std::time::Duration;

use crate::backend::BackendError;

/// A store that a [`CasBackend`](super::CasBackend) keeps its values in: two functions.
///
/// An implementation writes them as `async fn`. Their futures have to be `Send`. The example of
/// [`CasBackend`](super::CasBackend) is a store in a `HashMap`; the repository has one in PostgreSQL.
///
/// # Contract
///
/// - `swap` is atomic: of several swaps that expect the same version of a key, at most one succeeds.
/// - `load` sees the last successful swap. A replica that lags behind, or a cache, must not answer it.
/// - Every successful swap gives the key another version. A version is never used again for a key, even after the value has
///   expired or was deleted.
/// - A value that has expired is absent.
///
/// Keys have at most 220 characters, all of them printable ASCII without spaces. Values are any bytes, at most 96 KiB.
///
/// The conformance kit (feature `conformance`) checks all of this through the backend.
pub trait CompareAndSwap: Send + Sync + 'static {
    /// Distinguishes a value of a key from all former and later values of the key.
    type Version: Send;

    /// Returns the value of a key and its version, or `None` if the key is absent or has expired.
    ///
    /// # Errors
    ///
    /// The store did not answer, or its answer cannot be read.
    #[expect(
        clippy::type_complexity,
        reason = "an alias would hide what an implementation returns"
    )]
    fn load(
        &self,
        key: &[u8],
    ) -> impl Future<Output = Result<Option<(Vec<u8>, Self::Version)>, BackendError>> + Send;

    /// Writes a value if the key still has the `expected` version, or is still absent if that is `None`.
    ///
    /// Returns whether the value was written. The value has to be kept for `ttl` at least; a store whose clock is coarser
    /// rounds up.
    ///
    /// # Errors
    ///
    /// The store did not answer. It is then unknown whether the value was written: the backend does not retry the swap,
    /// and its charges count as made.
    fn swap(
        &self,
        key: &[u8],
        expected: Option<Self::Version>,
        value: &[u8],
        ttl: Duration,
    ) -> impl Future<Output = Result<bool, BackendError>> + Send;
}
