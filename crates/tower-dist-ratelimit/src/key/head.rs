use http::{Extensions, HeaderMap, Method, Request, Uri};

/// A request without its body: what keys and costs are taken from.
///
/// It borrows, so looking costs nothing, and it does not name the body's type, so closures over it need no annotation.
#[derive(Clone, Copy, Debug)]
pub struct RequestParts<'a> {
    method: &'a Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
}

impl<'a> RequestParts<'a> {
    /// The head of a request, for testing an extractor.
    #[must_use]
    pub fn new<B>(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> &'a Method {
        self.method
    }

    /// The URI, as the layers above have left it.
    #[must_use]
    pub fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// The headers.
    #[must_use]
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// The extensions, such as what a layer above found out about the user.
    #[must_use]
    pub fn extensions(&self) -> &'a Extensions {
        self.extensions
    }
}
