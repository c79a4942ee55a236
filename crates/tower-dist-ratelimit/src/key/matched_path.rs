use axum::extract;

use super::{KeyExtractor, KeySink, RequestParts};

/// The route that a request took, from [`matched_path`].
#[derive(Clone, Copy, Debug)]
pub struct MatchedPath;

/// One key per route of axum 0.8, such as `/users/{id}`; a request that no route took has no key.
///
/// Unlike the path of the URI, there are as many as the router has routes. Needs a layer inside of the router:
/// `Router::layer` or `route_layer`.
///
/// ```
/// use tower_dist_ratelimit::{Policy, Quota, key};
///
/// Policy::new("per-endpoint", Quota::per_second(50)).by((key::matched_path(), key::method()));
/// ```
#[must_use]
pub fn matched_path() -> MatchedPath {
    MatchedPath
}

impl KeyExtractor for MatchedPath {
    fn extract(&self, head: RequestParts<'_>, sink: &mut KeySink) -> Option<()> {
        let path = head.extensions().get::<extract::MatchedPath>()?;
        sink.part(path.as_str().as_bytes());
        Some(())
    }
}
