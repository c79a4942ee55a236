use http::uri::Authority;
use http::{Extensions, HeaderMap, Method, Request, Response, StatusCode, Uri};

/// What the rules read of a request: implemented for every framework's type.
pub trait HttpRequest {
    /// The method.
    fn method(&self) -> &Method;
    /// The header fields.
    fn headers(&self) -> &HeaderMap;
    /// The header fields, to be changed.
    fn headers_mut(&mut self) -> &mut HeaderMap;
    /// The path, without the query.
    fn path(&self) -> &str;
    /// The authority of the URI: the host, with the port if the URI has one.
    fn authority(&self) -> Option<&str>;
    /// A copy of the URI.
    fn uri(&self) -> Uri;
    /// Where the request goes, if its client follows redirects by itself; `None` if it does not.
    fn target(&self) -> Option<Target> {
        None
    }
    /// The extensions; `None` if the type keeps them to itself.
    fn extensions(&self) -> Option<&Extensions>;
    /// The extensions, to be changed.
    fn extensions_mut(&mut self) -> Option<&mut Extensions>;
}

/// Where a request goes or an answer came from: the hash of a URL, for clients that follow redirects by
/// themselves. What another server than the one that was asked says is no word on the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target(u64);

#[cfg(feature = "reqwest-013")]
impl Target {
    pub(super) fn new(url: &reqwest::Url) -> Self {
        use std::hash::{DefaultHasher, Hash, Hasher};
        // A fragment is not sent, and an answer's URL may be without it.
        let sent = url.as_str().split('#').next();
        let mut hasher = DefaultHasher::new();
        sent.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// What the rules read of a response, and where they leave word: implemented for every framework's type.
pub trait HttpResponse {
    /// The status.
    fn status(&self) -> StatusCode;
    /// The header fields.
    fn headers(&self) -> &HeaderMap;
    /// Where the answer came from, of a client that follows redirects by itself.
    fn target(&self) -> Option<Target> {
        None
    }
    /// The extensions.
    fn extensions(&self) -> &Extensions;
    /// The extensions, to be changed.
    fn extensions_mut(&mut self) -> &mut Extensions;
}

/// Implements the accessors that the type has by the same name.
macro_rules! forward {
    ($($name:ident -> $value:ty, $name_mut:ident;)*) => {
        $(
            fn $name(&self) -> &$value {
                self.$name()
            }

            fn $name_mut(&mut self) -> &mut $value {
                self.$name_mut()
            }
        )*
    };
}

impl<B> HttpRequest for Request<B> {
    fn method(&self) -> &Method {
        self.method()
    }

    forward! { headers -> HeaderMap, headers_mut; }

    fn path(&self) -> &str {
        self.uri().path()
    }

    fn authority(&self) -> Option<&str> {
        self.uri().authority().map(Authority::as_str)
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
    fn status(&self) -> StatusCode {
        self.status()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }

    forward! { extensions -> Extensions, extensions_mut; }
}

#[cfg(feature = "reqwest-013")]
impl HttpRequest for reqwest::Request {
    fn method(&self) -> &Method {
        self.method()
    }

    forward! { headers -> HeaderMap, headers_mut; }

    fn path(&self) -> &str {
        self.url().path()
    }

    fn authority(&self) -> Option<&str> {
        let url = self.url();
        url.has_authority().then(|| url.authority())
    }

    /// `/` for a URL that is no URI, which reqwest rejects.
    fn uri(&self) -> Uri {
        Uri::try_from(self.url().as_str()).unwrap_or_default()
    }

    fn target(&self) -> Option<Target> {
        Some(Target::new(self.url()))
    }

    /// reqwest keeps its requests' extensions to itself.
    fn extensions(&self) -> Option<&Extensions> {
        None
    }

    fn extensions_mut(&mut self) -> Option<&mut Extensions> {
        None
    }
}

#[cfg(feature = "reqwest-013")]
impl HttpResponse for reqwest::Response {
    fn status(&self) -> StatusCode {
        self.status()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }

    fn target(&self) -> Option<Target> {
        Some(Target::new(self.url()))
    }

    forward! { extensions -> Extensions, extensions_mut; }
}
