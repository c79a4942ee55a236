//! An axum server on a socket, from bind to drain.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tower::BoxError;

/// A running server; stops when dropped.
#[derive(Debug)]
pub struct Server {
    addr: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<()>>,
}

impl Server {
    /// Binds `addr` (port 0: any free port) and serves `app` on it.
    ///
    /// # Errors
    ///
    /// The address is not available.
    pub async fn start(addr: SocketAddr, app: Router) -> Result<Self, BoxError> {
        let listener = TcpListener::bind(addr)
            .await
            .map_err(|error| format!("cannot listen on {addr}: {error}"))?;
        let addr = listener.local_addr()?;
        // Responses are small, and Nagle's algorithm would delay them.
        let listener = listener.tap_io(|socket| {
            let _ = socket.set_nodelay(true);
        });
        let (stop, stopped) = oneshot::channel();
        let serving = axum::serve(
            listener,
            app.into_make_service_with_connect_info::<SocketAddr>(),
        )
        .with_graceful_shutdown(async {
            let _ = stopped.await;
        });
        let task = tokio::spawn(serving.into_future());
        Ok(Self { addr, stop, task })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Stops accepting connections, and lets the requests in flight finish for at most `limit`. Returns whether they
    /// did.
    pub(crate) async fn drain(self, limit: Duration) -> bool {
        let _ = self.stop.send(());
        tokio::time::timeout(limit, self.task).await.is_ok()
    }
}
