use http::{HeaderMap, Method};

/// A borrowed view of a request's head.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    pub(super) method: &'a Method,
    pub(super) path: &'a str,
    pub(super) authority: Option<&'a str>,
    pub(super) headers: &'a HeaderMap,
}

impl<'a> RequestHead<'a> {
    /// Returns the method. It is `POST` in every gRPC call.
    #[must_use]
    pub fn method(&self) -> &'a Method {
        self.method
    }

    /// Returns the path, without the query. In gRPC it is the full name of the method, such as
    /// `/helloworld.Greeter/SayHello`.
    #[must_use]
    pub fn path(&self) -> &'a str {
        self.path
    }

    /// Returns the authority of the URI: the host, with the user information and the port if the URI has them.
    ///
    /// Returns `None` if the URI has no authority. This is usual for requests that a server receives over HTTP/1, whose
    /// `Host` field names the host instead.
    #[must_use]
    pub fn authority(&self) -> Option<&'a str> {
        self.authority
    }

    /// Returns the header fields.
    #[must_use]
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }
}
