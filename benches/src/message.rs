//! The request for layers over HTTP.

use http::{HeaderName, HeaderValue, Request, Uri, header};

const HEADERS: [(HeaderName, &str); 4] = [
    (header::HOST, "catalog.internal"),
    (header::USER_AGENT, "storefront/2.4.1"),
    (header::ACCEPT, "application/json"),
    (header::ACCEPT_ENCODING, "gzip, br"),
];

/// A request as a server passes it on: its texts share the memory of the read buffer.
pub(crate) fn request<B>(body: B) -> Request<B> {
    let mut request = Request::new(body);
    *request.uri_mut() = Uri::from_static("http://catalog.internal/v1/items?page=2&per_page=50");
    let headers = request.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    request
}
