//! Servers and requests of the recipes' tests.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::response::Response;
use http::{Request, StatusCode, request};
use tokio::net::TcpListener;
use tower::ServiceExt;

/// Serves `app` on a free port and returns its URL without a trailing slash.
pub(crate) async fn serve(app: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(axum::serve(listener, app).into_future());
    url
}

/// Sends a request to `app` as if it came from `peer`.
pub(crate) async fn send(app: &Router, peer: [u8; 4], request: request::Builder) -> Response {
    let mut request: Request<Body> = request.body(Body::empty()).unwrap();
    let peer = SocketAddr::from((peer, 40_000));
    request.extensions_mut().insert(ConnectInfo(peer));
    app.clone().oneshot(request).await.unwrap()
}

/// Sends a request and returns the status of its response.
pub(crate) async fn status(app: &Router, peer: [u8; 4], request: request::Builder) -> StatusCode {
    send(app, peer, request).await.status()
}
