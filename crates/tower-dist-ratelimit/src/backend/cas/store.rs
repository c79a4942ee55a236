use std::time::Duration;

use crate::backend::BackendError;

/// A store for the values of a [`CasBackend`](super::CasBackend).
///
/// Write `load` and `swap` as `async fn`. Their futures have to be `Send`. The example of
/// [`CasBackend`](super::CasBackend) is a store in a `HashMap`; the repository has one in PostgreSQL.
///
/// # Contract
///
/// - `swap` is atomic: of several swaps that expect the same version of a key, at most one succeeds. The same holds for
///   concurrent swaps that expect no value.
/// - `load` sees the last successful swap. So a replica that lags behind, or a cache, must not answer a load.
/// - Every successful swap gives the key a new version. A version is never used again for a key, even after the value
///   has expired or was deleted.
/// - A value that has expired is absent.
///
/// Keys have at most 220 characters, all of them printable ASCII without spaces. Values are any bytes, at most 96 KiB.
///
/// To test a store, run the conformance kit (feature `conformance`) against a `CasBackend` over the store.
pub trait CompareAndSwap: Send + Sync + 'static {
    /// The version of a value. It differs from the versions of all other values that the key ever has.
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

    /// Writes a value if the key still has the `expected` version. If `expected` is `None`, writes the value if the key
    /// is still absent.
    ///
    /// Returns whether the value was written. The store has to keep the value for at least `ttl`: round `ttl` up to the
    /// store's unit of time.
    ///
    /// # Errors
    ///
    /// The store did not answer, or its answer cannot be read. After a [`busy`](BackendError::busy) error, the backend
    /// repeats refunds and extra charges. So use that error only if the value was not written. After any other error,
    /// the backend repeats nothing, because the value may have been written.
    fn swap(
        &self,
        key: &[u8],
        expected: Option<Self::Version>,
        value: &[u8],
        ttl: Duration,
    ) -> impl Future<Output = Result<bool, BackendError>> + Send;
}
