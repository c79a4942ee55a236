use http::{HeaderName, header::AUTHORIZATION};

use super::{IntoKey, KeyExtractor, KeySink, RequestParts};
use crate::BuildError;

/// One key per value of the header with this name. A request without the header has no key.
///
/// If the header occurs more than once, its first value counts. The client writes the value, so use a header that has
/// been verified before the limit, such as an API key. Otherwise a client gets a fresh bucket for every value it
/// invents.
///
/// # Errors
///
/// Building the limit fails if `name` is not a valid header name.
///
/// ```
/// use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer, backend::Memory, key};
///
/// let per_key = |name| Policy::new("per-key", Quota::per_second(10)).by(key::header(name));
/// assert!(RateLimitLayer::builder(Memory::default()).limit(per_key("X-Api-Key")).build().is_ok());
/// let error = RateLimitLayer::builder(Memory::default()).limit(per_key("api key")).build().unwrap_err();
/// assert_eq!((error.field(), error.value()), ("header", "\"api key\""));
/// ```
pub fn header(name: &str) -> impl KeyExtractor + use<> {
    Header(HeaderName::from_bytes(name.as_bytes()).map_err(|_| name.to_owned()))
}

/// The header's name, or the given text if that is not a valid name.
struct Header(Result<HeaderName, String>);

impl KeyExtractor for Header {
    fn extract(&self, head: RequestParts<'_>, sink: &mut KeySink) -> Option<()> {
        head.headers()
            .get(self.0.as_ref().ok()?)?
            .as_bytes()
            .write(sink)
    }

    fn check(&self) -> Result<(), BuildError> {
        self.0.as_ref().map(|_| ()).map_err(|text| {
            BuildError::new("header", format_args!("{text:?}"), "the name of a header")
        })
    }
}

/// One key per bearer token (RFC 6750, section 2.1). A request without a bearer token has no key.
///
/// The backend receives only the first 128 bits of the token's BLAKE3 hash, never the token. The hash is the same on
/// every machine.
///
/// The token is not validated here. Place the limit inside the authentication layer; otherwise a client gets a fresh
/// bucket for every token it invents.
///
/// # Cost
///
/// One hash, about 100 ns for a short token.
///
/// ```
/// use tower_dist_ratelimit::{Policy, Quota, key};
///
/// let policy = Policy::new("per-token", Quota::per_hour(1_000)).by(key::bearer());
/// assert_eq!(policy.name(), "per-token");
/// ```
pub fn bearer() -> impl KeyExtractor {
    |head: RequestParts<'_>, sink: &mut KeySink| {
        let credentials = head.headers().get(AUTHORIZATION)?.as_bytes();
        let space = credentials.iter().position(|&byte| byte == b' ')?;
        let (scheme, token) = credentials.split_at(space);
        let token = token.trim_ascii();
        if !scheme.eq_ignore_ascii_case(b"bearer") || token.is_empty() {
            return None;
        }
        blake3::hash(token).as_bytes()[..16].write(sink)
    }
}

/// The key that the closure takes from the request's extension of type `T`. A request without the extension has no key.
///
/// ```
/// use tower_dist_ratelimit::{Policy, Quota, key};
///
/// /// A layer above inserts the user that it has authenticated.
/// #[derive(Clone)]
/// struct User { id: u64 }
///
/// let policy = Policy::new("per-user", Quota::per_second(5)).by(key::extension(|user: &User| user.id));
/// assert_eq!(policy.name(), "per-user");
/// ```
pub fn extension<T, F, K>(key: F) -> impl KeyExtractor
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> K + Send + Sync + 'static,
    K: IntoKey + 'static,
{
    move |head: RequestParts<'_>, sink: &mut KeySink| key(head.extensions().get::<T>()?).write(sink)
}

/// One key per method. Every request has a method.
///
/// Combine it with another key: `(key::matched_path(), key::method())` is a key of two parts. A client can get a fresh
/// bucket for every method it invents.
pub fn method() -> impl KeyExtractor {
    |head: RequestParts<'_>, sink: &mut KeySink| head.method().as_str().write(sink)
}

/// One key per route of axum 0.8, such as `/users/{id}`. A request without a matched route has no key.
///
/// Unlike URI paths, routes are bounded in number. The layer must be inside the router: add it with `Router::layer` or
/// `Router::route_layer`. Around the router, no request has a matched route, so by default all requests share one count.
///
/// ```
/// use tower_dist_ratelimit::{Policy, Quota, key};
///
/// let by = (key::matched_path(), key::method());
/// let policy = Policy::new("per-endpoint", Quota::per_second(50)).by(by);
/// assert_eq!(policy.name(), "per-endpoint");
/// ```
#[cfg(feature = "axum-08")]
pub fn matched_path() -> impl KeyExtractor {
    |head: RequestParts<'_>, sink: &mut KeySink| {
        let path = head.extensions().get::<axum::extract::MatchedPath>()?;
        path.as_str().write(sink)
    }
}
