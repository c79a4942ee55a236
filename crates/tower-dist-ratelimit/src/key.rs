//! Keys of HTTP requests. A policy keeps one count per key.
//!
//! | key | function |
//! |---|---|
//! | a header, such as an API key | [`header`] |
//! | a bearer token, hashed before it reaches the backend | [`bearer`] |
//! | a value that a layer above put into the request, such as the user | [`extension`] |
//! | the address of the connection | [`peer_addr`] |
//! | the client's address behind trusted proxies | [`client_ip()`] |
//! | the route | `matched_path` (feature `axum-08`) |
//! | the method | [`method`] |
//! | one key, or another one if it is missing | [`KeyExtractor::or`] |
//! | two to four keys together | a tuple of them |
//!
//! Pass the key to [`Policy::by`](crate::Policy::by). For a closure there are [`by_fn`](crate::Policy::by_fn) and
//! [`by_str`](crate::Policy::by_str). Implement [`KeyExtractor`] for everything else.

pub(crate) mod client_ip;
mod extractor;
mod head;
mod into_key;
mod peer_addr;
mod sink;
mod sources;

pub use client_ip::client_ip;
pub use extractor::KeyExtractor;
pub use head::RequestParts;
pub use into_key::IntoKey;
pub use peer_addr::peer_addr;
pub(crate) use sink::KeyBytes;
pub use sink::KeySink;
#[cfg(feature = "axum-08")]
pub use sources::matched_path;
pub use sources::{bearer, extension, header, method};
