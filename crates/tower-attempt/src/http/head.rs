use http::{HeaderMap, Method};

use super::HttpRequest;

/// A borrowed view of a request's head.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    method: &'a Method,
    path: &'a str,
    authority: Option<&'a str>,
    headers: &'a HeaderMap,
}

impl<'a> RequestHead<'a> {
    pub(super) fn of<Req: HttpRequest>(request: &'a Req) -> Self {
        Self {
            method: request.method(),
            path: request.path(),
            authority: request.authority(),
            headers: request.headers(),
        }
    }

    /// The method. It is `POST` in every gRPC call.
    #[must_use]
    pub fn method(&self) -> &'a Method {
        self.method
    }

    /// The path, without the query. In gRPC this is the full name of the method, such as
    /// `/helloworld.Greeter/SayHello`.
    #[must_use]
    pub fn path(&self) -> &'a str {
        self.path
    }

    /// The host, with the port if the URI has one.
    ///
    /// `None` if the URI has no authority. The requests that a server receives over HTTP/1 have none:
    /// there the `Host` field names the host.
    #[must_use]
    pub fn authority(&self) -> Option<&'a str> {
        self.authority
    }

    /// The header fields.
    #[must_use]
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }
}
