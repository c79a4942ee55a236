//! How retries stay safe: the budget, proof that a request was not processed, rejections, and nested layers.
//!
//! # Why a budget is on by default
//!
#![doc = include_str!("../docs/budget.svg")]
//!
//! The repository's `figures` draws this graph with the layers of these crates. A server stops for ten seconds. Its
//! clients send three attempts per call, and each attempt has a timeout of 1 s.
//!
//! Without a budget the server never recovers. It works through a full queue, and every request in it is older than its
//! timeout, so its caller has stopped waiting for it. This is the metastable failure of Bronson, Aghayev, Charapko and
//! Zhu (*Metastable Failures in Distributed Systems*, HotOS 2021). With the default budget, failing calls cause ten
//! retries per second in the long run, and the server recovers almost as it does without retries.
//!
//! [`Budget`](crate::Budget) explains how tokens are deposited and spent. Layers that share a backend share one budget:
//! the outermost layer takes it with [`budget`](crate::RetryLayerBuilder::budget), the layers below with
//! [`shared_budget`](crate::RetryLayerBuilder::shared_budget).
//!
//! # Proof that the server did not process a request
//!
//! A request without proof may have had an effect, so only idempotent requests are sent again after such a failure.
//! With proof, every request is safe to resend. Proof is a connection that was never made, a pooled connection that the
//! server had closed, and HTTP/2's REFUSED_STREAM and a GOAWAY without an error. By default, a 429 and a gRPC pushback
//! count like proof.
//!
//! The layer finds proof in the errors of `std::io`, and with the client features in the errors of hyper, hyper-util,
//! h2, reqwest and tonic. These errors may be boxed, or the source of a boxed error. Errors of other types prove
//! nothing.
//!
//! A service below that sends requests of its own, such as a redirecting client, can report the error of another
//! request. Place the layer below that service. reqwest follows redirects by default, so its errors are no proof unless
//! the layer is built [`without_redirects`](crate::RetryLayerBuilder::without_redirects).
//!
//! # Rejections of other layers
//!
//! A layer in this process can reject a request before it is sent, for example a rate limit. This layer recognises such
//! a rejection in two ways:
//!
//! - by type: a [`Rejected`](crate::Rejected), alone or in boxed errors and their sources, and the errors of
//!   `tower-dist-ratelimit`;
//! - by text: the rejections of tower and tower-resilience, in boxed errors only. Put `.map_err(BoxError::from)` below
//!   the retry layer.
//!
//! # Retry layers above each other
//!
//! Retry layers above each other do not multiply their attempts. Layers in one task count each other's retries.
//! Requests of extra attempts and failed responses carry a mark in their extensions. Where a layer sees neither count
//! nor mark, the backend receives more requests. The table shows how many requests one call causes with two layers of
//! three attempts:
//!
//! | the failed attempts are | responses | errors | timeouts of the layer above |
//! |---|---|---|---|
//! | HTTP and gRPC | 3 | 3 | 3 |
//! | HTTP and gRPC, the layer below in another task, such as tower's `Buffer` | 3 | 4 | up to 5 |
//! | `reqwest::Request`, and requests without extensions, in one task | 3 | 3 | up to 5 |
//! | the same, the layer below in another task | up to 9 | 9 | up to 9 |
//! | the layer below in another process | 9 | 9 | up to 9 |
//!
//! A proxy that copies extensions to other messages copies the marks. A service that replaces the extensions removes
//! them.
