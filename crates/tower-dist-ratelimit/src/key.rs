//! Who is asking: what a policy's limit is counted by.
//!
//! | key | with |
//! |---|---|
//! | a header, such as an API key | [`header`] |
//! | a bearer token, which the store never sees | [`bearer`] |
//! | who is logged in, from a layer above | [`extension`] |
//! | the address that connects | [`peer_addr`] |
//! | the client's address behind proxies that you trust | [`client_ip()`] |
//! | the route, the method | `matched_path` (feature `axum-08`), [`method`] |
//! | one, or else another | [`KeyExtractor::or`] |
//! | two to four together | a tuple of them |
//!
//! All go to [`Policy::by`](crate::Policy::by); closures go to [`by_fn`](crate::Policy::by_fn) and
//! [`by_str`](crate::Policy::by_str); anything else implements [`KeyExtractor`].

mod bearer;
pub(crate) mod client_ip;
mod extension;
mod extractor;
mod head;
mod header;
mod into_key;
#[cfg(feature = "axum-08")]
mod matched_path;
mod method;
mod peer_addr;
mod sink;

pub use bearer::{Bearer, bearer};
pub use client_ip::{ClientIp, client_ip};
pub use extension::{Extension, extension};
pub(crate) use extractor::{FnKey, StrKey};
pub use extractor::{KeyExtractor, Or};
pub use head::RequestParts;
pub use header::{Header, header};
pub use into_key::IntoKey;
#[cfg(feature = "axum-08")]
pub use matched_path::{MatchedPath, matched_path};
pub use method::{Method, method};
pub use peer_addr::{PeerAddr, peer_addr};
pub use sink::KeySink;
