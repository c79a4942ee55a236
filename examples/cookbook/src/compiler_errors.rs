//! It does not compile: how to see the real error.
//!
//! A long stack reports a missing bound far from its cause, as `the method 'ready' exists, but its trait bounds were not
//! satisfied`. Name the cause in three steps:
//!
//! 1. Put [`check_service`](tower::ServiceBuilder::check_service) or
//!    [`check_clone`](tower::ServiceBuilder::check_clone) between two layers, from the inside out. The first one that fails stands
//!    above the layer with the problem.
//! 2. Call the layer with a type that you know: [`is_service`] below, at the same place.
//! 3. Read the note `required for … to implement Service<…>`: its last line names the bound.
//!
//! The usual causes:
//!
//! | message | cause | remedy |
//! |---|---|---|
//! | `Incoming: Clone` or a bound on the request's body | a retry or hedge layer without a protocol | `.http()` before `.build()` |
//! | `the trait bound 'E: ErrorProof' is not satisfied` | the client's errors are not known | the feature of that client: `hyper-util-01`, `reqwest-013`, `tonic-014` |
//! | `Service<…>: Clone` | the client below is not `Clone` | tower's `Buffer`, or a client that is `Clone` |
//! | `From<Bytes>` on the response's body | the rate limit cannot make a body for its rejection | `.rejection(..)` with a response of that body |
//! | a mismatch of `Error` types | the retry layer has a timeout, and the client's error has no variant for it | `.map_err(BoxError::from)` below the layer |
//!
//! A retry layer without a protocol copies whole requests, and a streaming body cannot be copied:
//!
//! ```compile_fail,E0277
//! use bytes::Bytes;
//! use example_cookbook::compiler_errors::is_service;
//! use http::{Request, Response};
//! use hyper::body::Incoming;
//! use tower::{Layer, service_fn};
//! use tower_jitter_retry::RetryLayer;
//!
//! let client = service_fn(async |_: Request<Incoming>| Ok::<_, std::io::Error>(Response::new(Bytes::new())));
//! let layer = RetryLayer::builder().build().unwrap();
//! // error[E0277]: the trait bound `hyper::body::Incoming: Clone` is not satisfied
//! is_service::<Request<Incoming>, _>(&layer.layer(client));
//! ```

use tower::Service;

/// Compiles if `service` accepts requests of type `Request`, and reports the missing bound otherwise.
///
/// ```
/// use bytes::Bytes;
/// use example_cookbook::compiler_errors::is_service;
/// use http::{Request, Response};
/// use http_body_util::Full;
/// use tower::{Layer, service_fn};
/// use tower_jitter_retry::RetryLayer;
///
/// let client = service_fn(async |_: Request<_>| Ok::<_, std::io::Error>(Response::new(Full::<Bytes>::default())));
/// is_service::<Request<Full<Bytes>>, _>(&RetryLayer::http().layer(client));
/// ```
pub fn is_service<Request, S: Service<Request>>(_service: &S) {}
