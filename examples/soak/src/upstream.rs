//! The upstream: it executes each POST once per arrival, records its id, and has faults.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tower::BoxError;

/// The header with the id of a request.
pub(crate) const ID: &str = "x-id";
/// The header of every response of the upstream.
pub(crate) const MARK: &str = "x-upstream";

/// A fault of the upstream, for a quarter of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Fault {
    None,
    /// 503 without execution.
    Unavailable,
    /// The connection closes, before or after the execution.
    Resets,
    /// No response, before or after the execution.
    Stalls,
}

/// A running upstream. Clones share the state.
#[derive(Clone, Debug)]
pub(crate) struct Upstream {
    pub(crate) addr: SocketAddr,
    state: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    fault: AtomicU8,
    /// The number of executions of each request.
    executed: Mutex<HashMap<u64, u32>>,
    /// The first arrival of each request that its client still waits for.
    arrived: Mutex<HashMap<u64, Instant>>,
}

impl Upstream {
    pub(crate) async fn start() -> Result<Self, BoxError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let addr = listener.local_addr()?;
        let state = Arc::<Shared>::default();
        let app = Router::new()
            .route("/control", get(|| async {}))
            .fallback(serve)
            .with_state(Arc::clone(&state));
        tokio::spawn(axum::serve(listener, app).into_future());
        Ok(Self { addr, state })
    }

    pub(crate) fn set(&self, fault: Fault) {
        self.state.fault.store(fault as u8, Relaxed);
    }

    /// The number of executions of each request, by id.
    pub(crate) fn executed(&self) -> HashMap<u64, u32> {
        let executed = self.state.executed.lock();
        executed.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes the time of the first arrival of a request.
    pub(crate) fn take_arrival(&self, id: u64) -> Option<Instant> {
        self.state.arrived().remove(&id)
    }
}

impl Shared {
    fn arrived(&self) -> MutexGuard<'_, HashMap<u64, Instant>> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn execute(&self, id: u64) {
        let mut executed = self.executed.lock().unwrap_or_else(PoisonError::into_inner);
        *executed.entry(id).or_default() += 1;
    }
}

fn id(headers: &HeaderMap) -> Option<u64> {
    headers.get(ID)?.to_str().ok()?.parse().ok()
}

async fn serve(State(state): State<Arc<Shared>>, head: Parts) -> Response {
    let Some(id) = id(&head.headers) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    state.arrived().entry(id).or_insert_with(Instant::now);
    let fault = match rand::random_bool(0.25) {
        true => state.fault.load(Relaxed),
        false => 0,
    };
    if fault == Fault::Unavailable as u8 {
        return (StatusCode::SERVICE_UNAVAILABLE, [(MARK, "1")]).into_response();
    }
    if fault == 0 || rand::random() {
        state.execute(id);
    }
    if fault == Fault::Resets as u8 {
        // Ends the connection's task, without the message of a panic.
        std::panic::resume_unwind(Box::new("reset"));
    }
    if fault == Fault::Stalls as u8 {
        // The server drops this future when the client closes the connection.
        std::future::pending::<()>().await;
    }
    [(MARK, "1")].into_response()
}
