//! Serves until a signal arrives.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::middleware::from_fn_with_state;
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tower::BoxError;
use tower_dist_ratelimit::RateLimitLayer;
use tower_jitter_retry::MetricsObserver;

use crate::admin::{self, Board, Lane, Switches};
use crate::backend::{BackendUrl, Connected};
use crate::log;
use crate::options::{Admin, LayerName, ServeOptions, StackOptions};
use crate::server::Server;
use crate::stack::{self, Watch, gateway};
use crate::upstream::Flaky;
use crate::{shutdown, traffic};

/// Longer than any request with the default options.
const DRAIN: Duration = Duration::from_secs(10);

/// Maximum time for the return of leases, and for the refunds in progress. A backend nearby needs a few ms.
const SETTLE: Duration = Duration::from_secs(1);

const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Serves until Ctrl-C or SIGTERM, then lets the requests in flight finish.
pub(crate) async fn run(serve: ServeOptions, stack: &StackOptions) -> Result<(), BoxError> {
    // Before the first line is printed, because its reader may send a signal immediately.
    let stop = shutdown::signal()?;
    // Kept here because a server stops when it is dropped.
    let (mut built_in, mut faults) = (None, None);
    let shows = match serve.upstream {
        Some(_) => "",
        None => " (the built-in upstream shows what arrives there, and as which request)",
    };
    let upstream = match serve.upstream {
        Some(authority) => authority,
        None => {
            let flaky = Flaky::new(serve.profile, stack.seed);
            faults = Some(flaky.faults());
            let server = Server::start(ANY_PORT, flaky.app()).await?;
            built_in.insert(server).addr().to_string().parse()?
        }
    };
    let (backend_url, own_redis) = stack.backend.start().await?;
    let backend = match backend_url.connect().await {
        // A missing backend must not keep the service from starting.
        Err(error) if error.is_down() => {
            log(&format!("{error}; until then this gateway decides locally"));
            backend_url.connect_lazy()?
        }
        backend => backend?,
    };
    let board = Arc::<Board>::default();
    let watch = match serve.admin {
        Admin::At(_) => Watch::Page(&board),
        Admin::Off => Watch::Log,
    };
    // The counts in a server of the gateway's own end with the gateway.
    let counts_outlive = own_redis.is_none();
    let mut gateway = gateway(
        stack,
        &serve.layers,
        backend.backend(),
        upstream.clone(),
        watch,
    )?;
    if serve.bare {
        gateway.app = stack::bare(stack, upstream.clone())?;
    }
    let record = |lane: &Arc<Lane>| from_fn_with_state(Arc::clone(lane), admin::record);
    let (app, page) = match serve.admin {
        Admin::Off => (gateway.app, None),
        Admin::At(addr) => {
            let switches = Switches {
                backend: backend_url.name(),
                stack: stack.clone(),
                bare: serve.bare,
                limit: gateway.limit,
                retry: gateway.retry,
                hedge: gateway.hedge,
                faults,
                redis: own_redis.map(Mutex::new),
            };
            (
                gateway.app.layer(record(&board.layers)),
                Some((addr, switches)),
            )
        }
    };
    let server = Server::start(serve.listen, app).await?;
    // Kept here because a server stops when it is dropped.
    let page = match page {
        None => None,
        Some((addr, switches)) => match serve_page(addr, &board, switches).await {
            Ok(page) => Some(page),
            // The page must not keep the gateway from starting.
            Err(error) => {
                log(&format!(
                    "no live page: {error}; --admin chooses another address, or off"
                ));
                None
            }
        },
    };
    if let Some(per_second) = serve.traffic {
        let mut lanes = vec![(stack::bare(stack, upstream.clone())?, &board.bare)];
        if !serve.bare {
            let mut layers = serve.layers.clone();
            layers.retain(|layer| *layer != LayerName::Hedge);
            let upstream = upstream.clone();
            let lane = stack::gateway(stack, &layers, backend.backend(), upstream, Watch::Nobody)?;
            gateway.limits.extend(lane.limits);
            lanes.push((lane.app, &board.unhedged));
        }
        let (mut addrs, mut servers) = (vec![server.addr()], Vec::new());
        for (app, lane) in lanes {
            let server = Server::start(ANY_PORT, app.layer(record(lane))).await?;
            addrs.push(server.addr());
            servers.push(server);
        }
        tokio::spawn(async move {
            let _servers = servers;
            traffic::send(per_second, &addrs).await
        });
    }
    let url = format!("http://{}", server.addr());
    let StackOptions { limit, burst, .. } = stack;
    let counted = match &backend_url {
        BackendUrl::Memory => String::new(),
        url => format!(", limits counted in {url}"),
    };
    let live = page
        .as_ref()
        .map(|page| format!("live page and metrics: http://{}\n", page.addr()));
    let live = live.unwrap_or_default();
    let is_limited = !serve.bare && serve.layers.contains(&LayerName::Limit);
    let many = match is_limited {
        false => String::new(),
        true => format!(
            "Many from one client, which may send {burst} at once and {limit} a second; the rest get 429:\n    \
                 curl -Z -o /dev/null -w '%{{http_code}}\\n' '{url}/[1-300]' 2>/dev/null | sort | uniq -c\n"
        ),
    };
    writeln!(
        std::io::stdout(),
        "listening on {url}, forwarding to http://{upstream}{counted}\n\
         {live}\n\
         One request{shows}:\n    \
             curl -i {url}/hello\n\
         {many}\n\
         Ctrl-C stops, once the requests in flight have their answers."
    )?;
    stop.await;
    let again = shutdown::signal()?;
    log("stopping; a second signal stops immediately");
    let drain = async {
        if !server.drain(DRAIN).await {
            let limit = DRAIN.as_secs();
            log(&format!(
                "gave up on requests still in flight after {limit} s"
            ));
        }
        if counts_outlive {
            settle(&gateway.limits, &backend).await;
        }
    };
    tokio::select! {
        () = drain => {}
        () = again => log("stopped with requests in flight"),
    }
    Ok(())
}

/// Returns leased tokens to the backend, and waits for the refunds in progress. Otherwise both end with the runtime.
async fn settle(limits: &[RateLimitLayer], backend: &Connected) {
    let returned = async {
        for limit in limits {
            if let Err(error) = limit.return_leases().await {
                log(&format!("unused leased tokens are lost: {error}"));
            }
        }
    };
    if timeout(SETTLE, returned).await.is_err() {
        let limit = SETTLE.as_secs();
        log(&format!(
            "unused leased tokens are lost: no answer from the backend within {limit} s"
        ));
    }
    if let Err(error) = backend.finish_corrections(SETTLE).await {
        log(&format!("refunds in progress are lost: {error}"));
    }
}

/// Installs the recorder of the metrics, and serves the page.
async fn serve_page(
    addr: SocketAddr,
    board: &Arc<Board>,
    switches: Switches,
) -> Result<Server, BoxError> {
    let recorder = PrometheusBuilder::new().set_buckets(&MetricsObserver::BUCKETS)?;
    let metrics = recorder.install_recorder()?;
    admin::start(addr, Arc::clone(board), switches, metrics).await
}
