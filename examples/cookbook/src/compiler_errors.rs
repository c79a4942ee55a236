//! It does not compile: how to see the real error.
//!
//! A method call on a stack, such as `service.oneshot(request)`, reports only that "the method exists, but its trait
//! bounds were not satisfied". The reason is missing. Ask the compiler for the bound directly, with the type of your
//! requests:
//!
//! ```compile_fail,E0277
//! use bytes::Bytes;
//! use example_cookbook::compiler_errors::is_service;
//! use http::{Request, Response};
//! use hyper::body::Incoming;
//! use tower::{Layer, service_fn};
//! use tower_hedge_latency::HedgeLayer;
//!
//! let client = service_fn(async |_: Request<Incoming>| Ok::<_, std::io::Error>(Response::new(Bytes::new())));
//! let service = HedgeLayer::http().layer(client);
//! // error[E0277]: the body `hyper::body::Incoming` can't be resent
//! // note: wrap any other body, such as a server's `Incoming`, in a `ReplayBody`: put
//! //       `map_request(|request| request.map(ReplayBody::new))` above the layer
//! is_service::<Request<Incoming>, _>(&service);
//! ```
//!
//! In a stack of several layers, call `is_service` after each layer, from the client outwards. The first failure names
//! the layer.
//!
//! | the error says | remedy |
//! |---|---|
//! | `the body … can't be resent` | wrap it in a `ReplayBody`, as the note says |
//! | `the error type … has no outcome for a timeout` | `.map_err(BoxError::from)` below the layer, or `.on_timeout(..)` |
//! | `…: From<bytes::Bytes>` is not satisfied for the response's body | `.rejection(..)` on the rate limit, with a response of that body |
//! | `Generic: Outcomes<Request<…>, …>` is not satisfied | `.http()` or `.grpc()` on the builder |
//! | `…: Clone` is not satisfied for the client | `BoxCloneService` instead of `BoxService`, or tower's `Buffer` |

use tower::Service;

/// Compiles if `service` accepts requests of type `Request`. Otherwise the compiler reports the missing bound.
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
