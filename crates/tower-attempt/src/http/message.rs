use http::{HeaderMap, Method, Request, Response, StatusCode};

/// What the rules read of a request: implemented for every framework's type.
pub trait HttpRequest {
    /// The method.
    fn method(&self) -> &Method;
    /// The header fields.
    fn headers(&self) -> &HeaderMap;
}

/// What the rules read of a response: implemented for every framework's type.
pub trait HttpResponse {
    /// The status.
    fn status(&self) -> StatusCode;
    /// The header fields.
    fn headers(&self) -> &HeaderMap;
}

macro_rules! request {
    ($(#[$cfg:meta])? $($generic:ident)?, $type:ty) => {
        $(#[$cfg])?
        impl$(<$generic>)? HttpRequest for $type {
            fn method(&self) -> &Method {
                self.method()
            }

            fn headers(&self) -> &HeaderMap {
                self.headers()
            }
        }
    };
}

macro_rules! response {
    ($(#[$cfg:meta])? $($generic:ident)?, $type:ty) => {
        $(#[$cfg])?
        impl$(<$generic>)? HttpResponse for $type {
            fn status(&self) -> StatusCode {
                self.status()
            }

            fn headers(&self) -> &HeaderMap {
                self.headers()
            }
        }
    };
}

request!(B, Request<B>);
response!(B, Response<B>);
request!(#[cfg(feature = "reqwest-013")] , reqwest::Request);
response!(#[cfg(feature = "reqwest-013")] , reqwest::Response);
