//! Keys of arbitrary bytes: two requests have equal keys if, and only if, the extracted parts are equal.
//!
//! Input: two requests, each with an API key and credentials, one a line. An empty line omits the field.
#![no_main]

#[path = "shared/extractor.rs"]
mod extractor;

use std::sync::LazyLock;

use http::{HeaderValue, Request};
use libfuzzer_sys::fuzz_target;
use tower_dist_ratelimit::key::{self, KeyExtractor};

use self::extractor::Extractor;

/// The source of a key: the number of the alternative, and the parts.
type Parts = Option<(u8, Vec<Vec<u8>>)>;

struct By {
    extractor: Extractor,
    parts: fn(&Client) -> Parts,
}

static BY: LazyLock<[By; 5]> = LazyLock::new(|| {
    let header = || key::header("x-api-key");
    [
        By {
            extractor: Extractor::by(header()),
            parts: |client| Some((0, vec![client.api_key()?])),
        },
        By {
            extractor: Extractor::by(key::bearer()),
            parts: |client| Some((0, vec![client.token()?])),
        },
        By {
            extractor: Extractor::by((header(), key::bearer())),
            parts: |client| Some((0, vec![client.api_key()?, client.token()?])),
        },
        By {
            extractor: Extractor::by(header().or(key::bearer())),
            parts: |client| match client.api_key() {
                Some(key) => Some((0, vec![key])),
                None => Some((1, vec![client.token()?])),
            },
        },
        By {
            extractor: Extractor::by((header(), key::header("authorization")).or(key::method())),
            parts: |client| match (client.api_key(), client.credentials()) {
                (Some(key), Some(credentials)) => Some((0, vec![key, credentials])),
                _ => Some((1, vec![b"GET".to_vec()])),
            },
        },
    ]
});

struct Client([Option<HeaderValue>; 2]);

impl Client {
    fn new<'a>(lines: &mut impl Iterator<Item = &'a [u8]>) -> Self {
        Self([(); 2].map(|()| {
            let line = lines.next().filter(|line| !line.is_empty())?;
            HeaderValue::from_bytes(line).ok()
        }))
    }

    fn request(&self) -> Request<()> {
        let mut request = Request::new(());
        let fields = request.headers_mut();
        for (name, value) in ["x-api-key", "authorization"].into_iter().zip(&self.0) {
            value.clone().map(|value| fields.insert(name, value));
        }
        request
    }

    fn api_key(&self) -> Option<Vec<u8>> {
        Some(self.0[0].as_ref()?.as_bytes().to_vec())
    }

    fn credentials(&self) -> Option<Vec<u8>> {
        Some(self.0[1].as_ref()?.as_bytes().to_vec())
    }

    fn token(&self) -> Option<Vec<u8>> {
        let credentials = self.credentials()?;
        let (scheme, token) = credentials.split_at_checked(7)?;
        let token = token.trim_ascii();
        (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty()).then(|| token.to_vec())
    }
}

fuzz_target!(|data: &[u8]| {
    let mut lines = data.split(|byte| *byte == b'\n');
    let (one, other) = (Client::new(&mut lines), Client::new(&mut lines));
    for By { extractor, parts } in &*BY {
        let keys = [&one, &other].map(|client| extractor.key(client.request()));
        let parts = [&one, &other].map(parts);
        for (key, parts) in keys.iter().zip(&parts) {
            assert_eq!(key.is_empty(), parts.is_none(), "{parts:?}");
        }
        assert_eq!(keys[0] == keys[1], parts[0] == parts[1], "{parts:?}");
    }
});
