//! Who is asking.

use tower_dist_ratelimit::key::{KeyExtractor, KeySink, RequestHead, peer_addr};

/// Whose bucket a request draws on: its API key's, or without one its address's.
///
/// A key that nobody has verified lets a caller have as many buckets as it invents keys, so put
/// authentication in front of the limit, or go by the address alone.
#[derive(Debug)]
pub(crate) struct Caller;

impl KeyExtractor for Caller {
    fn extract(&self, head: RequestHead<'_>, sink: &mut KeySink) -> Option<()> {
        let Some(api_key) = head.headers().get("x-api-key") else {
            return peer_addr().extract(head, sink);
        };
        // A first part that no address has, so that a key cannot pose as one.
        sink.part(b"x-api-key");
        sink.part(api_key.as_bytes());
        Some(())
    }
}
