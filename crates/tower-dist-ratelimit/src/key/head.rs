use http::{Extensions, HeaderMap, Method, Request, Uri};

/// A borrowed view of a request without its body. Key extractors take this view, and so do many closures, for example
/// those for costs, quotas and exemptions.
///
/// The view copies nothing. It does not name the body's type, so closures over it usually need no type annotation.
#[derive(Clone, Copy, Debug)]
pub struct RequestParts<'a> {
    method: &'a Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
}

impl<'a> RequestParts<'a> {
    /// Returns the view of a request, for example in a test of an extractor.
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

    /// The URI, with the changes of the layers above.
    #[must_use]
    pub fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// The headers.
    #[must_use]
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// The extensions, such as a user that a layer above has authenticated.
    #[must_use]
    pub fn extensions(&self) -> &'a Extensions {
        self.extensions
    }
}
