//! Who is asking: what a policy's limit is counted by.
//!
//! [`header`] and [`peer_addr`] are ready to use with [`Policy::by`](crate::Policy::by); closures go to
//! [`by_fn`](crate::Policy::by_fn) and [`by_str`](crate::Policy::by_str); anything else implements [`KeyExtractor`].

mod extractor;
mod head;
mod header;
mod into_key;
mod peer_addr;
mod sink;

pub use extractor::KeyExtractor;
pub(crate) use extractor::{FnKey, StrKey};
pub use head::RequestHead;
pub use header::{Header, header};
pub use into_key::IntoKey;
pub use peer_addr::{PeerAddr, peer_addr};
pub use sink::KeySink;
