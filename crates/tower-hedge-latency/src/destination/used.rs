use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The endpoints that received the attempts of one call, in the extensions of the attempts' requests.
///
/// All attempts of a call share one list. A balancer that picks an endpoint for an attempt avoids the endpoints on the
/// list, and adds its choice. With [`spread`](crate::HedgeLayerBuilder::spread) or
/// [`alternates_fn`](crate::HedgeLayerBuilder::alternates_fn), the layer adds a list to each request that it may hedge,
/// unless the request has one. It adds no list if the [mode](crate::Mode) or a [`HedgeOverride`](crate::HedgeOverride)
/// allows no hedges. It also adds no list if the trigger [`percentile`](crate::HedgeLayerBuilder::percentile) has
/// neither a learned nor an initial delay, or if the first hedge is not due before the call's deadline.
///
/// # Cost
///
/// A few allocations per call, and a lock for each access.
///
/// ```
/// use tower_hedge_latency::UsedEndpoints;
///
/// /// A balancer picks an endpoint for a request.
/// fn pick<B>(request: &http::Request<B>) -> &'static str {
///     let used = request.extensions().get::<UsedEndpoints>();
///     let is_fresh = |endpoint: &&str| used.is_none_or(|used| !used.contains(endpoint));
///     let endpoint = ["10.0.0.1:80", "10.0.0.2:80"].into_iter().find(is_fresh);
///     // All endpoints are used: the first one serves twice.
///     let endpoint = endpoint.unwrap_or("10.0.0.1:80");
///     if let Some(used) = used {
///         used.add(endpoint);
///     }
///     endpoint
/// }
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(UsedEndpoints::default());
/// assert_eq!(pick(&request), "10.0.0.1:80");
/// assert_eq!(pick(&request), "10.0.0.2:80");
/// ```
#[derive(Clone, Debug, Default)]
pub struct UsedEndpoints(Arc<Mutex<Vec<Box<str>>>>);

impl UsedEndpoints {
    /// Returns the request's list. If the request has no list, inserts an empty list first.
    pub(super) fn of<B>(request: &mut http::Request<B>) -> Self {
        let extensions = request.extensions_mut();
        extensions.get_or_insert_with(Self::default).clone()
    }

    /// Adds an endpoint to the list: an address, a name, or any other unique text.
    pub fn add(&self, endpoint: &str) {
        self.list().push(endpoint.into());
    }

    /// Whether the list contains the endpoint, with exactly this text.
    #[must_use]
    pub fn contains(&self, endpoint: &str) -> bool {
        self.list().iter().any(|used| **used == *endpoint)
    }

    /// Returns all endpoints, in the order in which they were added. An endpoint that was added twice appears twice.
    #[must_use]
    pub fn to_vec(&self) -> Vec<Box<str>> {
        self.list().clone()
    }

    fn list(&self) -> MutexGuard<'_, Vec<Box<str>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
