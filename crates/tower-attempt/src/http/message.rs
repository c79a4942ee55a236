use http::uri::Authority;
use http::{Extensions, HeaderMap, Method, Request, Response, StatusCode, Uri};

use super::RequestHead;

/// The parts of a request that the protocols read or change. Implemented for `http::Request`, and with the feature
/// `reqwest-013` for `reqwest::Request`.
pub trait HttpRequest {
    /// Returns the method.
    fn method(&self) -> &Method;
    /// Returns the header fields.
    fn headers(&self) -> &HeaderMap;
    /// Returns the header fields, to be changed.
    fn headers_mut(&mut self) -> &mut HeaderMap;
    /// Returns a view of the head.
    fn head(&self) -> RequestHead<'_>;
    /// Returns a copy of the URI.
    fn uri(&self) -> Uri;
    /// Returns the hash of the URL of a `reqwest::Request`. If the response's URL has another hash, reqwest's client
    /// has usually followed a redirect. Returns `None` for other types.
    fn url_hash(&self) -> Option<UrlHash> {
        None
    }
    /// Returns the extensions; `None` if the type keeps them private.
    fn extensions(&self) -> Option<&Extensions>;
    /// Returns the extensions, to be changed; `None` if the type keeps them private.
    fn extensions_mut(&mut self) -> Option<&mut Extensions>;
}

/// The hash of the URL of a request or a response.
///
/// If the hashes of a request and of its response differ, the client has usually followed a redirect. The response then
/// proves nothing about the original request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UrlHash(u64);

#[cfg(feature = "reqwest-013")]
impl UrlHash {
    pub(super) fn new(url: &reqwest::Url) -> Self {
        use std::hash::{DefaultHasher, Hash, Hasher};
        // A URL's fragment is not sent, and the response's URL may lack the fragment.
        let sent = url.as_str().split('#').next();
        let mut hasher = DefaultHasher::new();
        sent.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// The parts of a response that the protocols read or change. Implemented for `http::Response`, and with the feature
/// `reqwest-013` for `reqwest::Response`.
pub trait HttpResponse {
    /// Returns the status.
    fn status(&self) -> StatusCode;
    /// Returns the header fields.
    fn headers(&self) -> &HeaderMap;
    /// Returns the hash of the URL from which a `reqwest::Response` came. If it differs from the hash of the request's
    /// URL, reqwest's client has usually followed a redirect. Returns `None` for other types.
    fn url_hash(&self) -> Option<UrlHash> {
        None
    }
    /// Returns the extensions.
    fn extensions(&self) -> &Extensions;
    /// Returns the extensions, to be changed.
    fn extensions_mut(&mut self) -> &mut Extensions;
}

/// Implements each accessor by a call of the type's own accessor with the same name.
macro_rules! forward {
    ($($name:ident -> $value:ty $(, $name_mut:ident)?;)*) => {
        $(
            fn $name(&self) -> &$value {
                self.$name()
            }

            $(fn $name_mut(&mut self) -> &mut $value {
                self.$name_mut()
            })?
        )*
    };
}

impl<B> HttpRequest for Request<B> {
    forward! { method -> Method; headers -> HeaderMap, headers_mut; }

    fn head(&self) -> RequestHead<'_> {
        RequestHead {
            method: self.method(),
            path: self.uri().path(),
            authority: self.uri().authority().map(Authority::as_str),
            headers: self.headers(),
        }
    }

    fn uri(&self) -> Uri {
        self.uri().clone()
    }

    fn extensions(&self) -> Option<&Extensions> {
        Some(self.extensions())
    }

    fn extensions_mut(&mut self) -> Option<&mut Extensions> {
        Some(self.extensions_mut())
    }
}

impl<B> HttpResponse for Response<B> {
    forward! { headers -> HeaderMap; extensions -> Extensions, extensions_mut; }

    fn status(&self) -> StatusCode {
        self.status()
    }
}

#[cfg(feature = "reqwest-013")]
impl HttpRequest for reqwest::Request {
    forward! { method -> Method; headers -> HeaderMap, headers_mut; }

    fn head(&self) -> RequestHead<'_> {
        let url = self.url();
        RequestHead {
            method: self.method(),
            path: url.path(),
            authority: url.has_authority().then(|| url.authority()),
            headers: self.headers(),
        }
    }

    /// Returns `/` for a URL that is not a valid URI. reqwest rejects such a request.
    fn uri(&self) -> Uri {
        Uri::try_from(self.url().as_str()).unwrap_or_default()
    }

    fn url_hash(&self) -> Option<UrlHash> {
        Some(UrlHash::new(self.url()))
    }

    fn extensions(&self) -> Option<&Extensions> {
        None
    }

    fn extensions_mut(&mut self) -> Option<&mut Extensions> {
        None
    }
}

#[cfg(feature = "reqwest-013")]
impl HttpResponse for reqwest::Response {
    forward! { headers -> HeaderMap; extensions -> Extensions, extensions_mut; }

    fn status(&self) -> StatusCode {
        self.status()
    }

    fn url_hash(&self) -> Option<UrlHash> {
        Some(UrlHash::new(self.url()))
    }
}
