use http::{Extensions, HeaderMap, Method, Request, Response, StatusCode};

use crate::{Attempt, Deadline};

/// What the rules read of a request: implemented for every framework's type.
pub trait HttpRequest {
    /// The method.
    fn method(&self) -> &Method;
    /// The header fields.
    fn headers(&self) -> &HeaderMap;
    /// Which attempt of another layer this request is; `None` for a first one.
    fn attempt(&self) -> Option<Attempt>;
    /// When its caller stops waiting; `None` if it does not say.
    fn deadline(&self) -> Option<Deadline>;
}

/// What the rules read of a response, and where they leave word: implemented for every framework's type.
pub trait HttpResponse {
    /// The status.
    fn status(&self) -> StatusCode;
    /// The header fields.
    fn headers(&self) -> &HeaderMap;
    /// The extensions.
    fn extensions_mut(&mut self) -> &mut Extensions;
}

impl<B> HttpRequest for Request<B> {
    fn method(&self) -> &Method {
        self.method()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }

    fn attempt(&self) -> Option<Attempt> {
        self.extensions().get().copied()
    }

    fn deadline(&self) -> Option<Deadline> {
        self.extensions().get().copied()
    }
}

impl<B> HttpResponse for Response<B> {
    fn status(&self) -> StatusCode {
        self.status()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }

    fn extensions_mut(&mut self) -> &mut Extensions {
        self.extensions_mut()
    }
}

#[cfg(feature = "reqwest-013")]
impl HttpRequest for reqwest::Request {
    fn method(&self) -> &Method {
        self.method()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }

    /// Never known: reqwest keeps its requests' extensions to itself.
    fn attempt(&self) -> Option<Attempt> {
        None
    }

    /// Never known, for the same reason.
    fn deadline(&self) -> Option<Deadline> {
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

    fn extensions_mut(&mut self) -> &mut Extensions {
        self.extensions_mut()
    }
}
