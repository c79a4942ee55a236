//! The live page on an address of its own: charts of the last two minutes, and switches for layers and faults.

mod board;
mod guard;
mod snapshot;
mod switches;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse};
use axum::routing::{get, post};
use axum::{Router, middleware};
use futures_util::{Stream, StreamExt as _};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tower::BoxError;

pub(crate) use self::board::{Board, Lane, record};
pub(crate) use self::switches::Switches;
use crate::log;
use crate::server::Server;

/// Time between two points of a chart.
const TICK: Duration = Duration::from_millis(500);

/// The page loads nothing from elsewhere, and its script talks only to the gateway.
const POLICY: &str = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'";

/// What the page's routes need.
#[derive(Clone)]
struct Admin {
    switches: Arc<Switches>,
    snapshots: watch::Receiver<Arc<str>>,
    metrics: PrometheusHandle,
}

/// Serves the page on `addr` until the server is dropped.
pub(crate) async fn start(
    addr: SocketAddr,
    board: Arc<Board>,
    switches: Switches,
    metrics: PrometheusHandle,
) -> Result<Server, BoxError> {
    if !addr.ip().is_loopback() {
        log(&format!(
            "warning: everyone who reaches {addr} can see the traffic and switch the layers off"
        ));
    }
    let switches = Arc::new(switches);
    let (sender, snapshots) = watch::channel(Arc::from("{}"));
    tokio::spawn(snapshot::publish(
        sender,
        board,
        Arc::clone(&switches),
        metrics.clone(),
    ));
    let admin = Admin {
        switches,
        snapshots,
        metrics,
    };
    let app = Router::new()
        .route("/", get(page))
        .route("/events", get(events))
        .route("/metrics", get(metrics_page))
        .route("/switch", post(switches::switch))
        .layer(middleware::from_fn(guard::local_host))
        .with_state(admin);
    Server::start(addr, app).await
}

async fn page() -> impl IntoResponse {
    let headers = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, Html(include_str!("admin/page.html")))
}

/// A snapshot now, and one after each tick.
async fn events(State(admin): State<Admin>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let snapshots = WatchStream::new(admin.snapshots);
    let events = snapshots.map(|snapshot| Ok(Event::default().data(&*snapshot)));
    Sse::new(events).keep_alive(KeepAlive::default())
}

async fn metrics_page(State(admin): State<Admin>) -> impl IntoResponse {
    let headers = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    // Leaked tasks show here.
    let tasks = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    let tasks = format!("# TYPE tokio_alive_tasks gauge\ntokio_alive_tasks {tasks}\n");
    (headers, admin.metrics.render() + &tasks)
}
