//! Serves until a signal arrives.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tower::BoxError;

use crate::backend::Store;
use crate::log;
use crate::options::{ServeOptions, StackOptions};
use crate::server::Server;
use crate::shutdown;
use crate::stack::{Layers, gateway};
use crate::upstream::Flaky;

/// Longer than any request with the default options.
const DRAIN: Duration = Duration::from_secs(10);

/// Serves until Ctrl-C or SIGTERM, then lets the requests in flight finish.
pub(crate) async fn run(serve: ServeOptions, stack: &StackOptions) -> Result<(), BoxError> {
    // Before the first line is printed, because its reader may send a signal immediately.
    let stop = shutdown::signal()?;
    // Kept here because a server stops when it is dropped.
    let mut built_in = None;
    let shows = match serve.upstream {
        Some(_) => "",
        None => " (the built-in upstream shows what arrives there, and as which request)",
    };
    let upstream = match serve.upstream {
        Some(authority) => authority,
        None => {
            let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let flaky = Flaky::new(serve.profile, stack.seed);
            let server = Server::start(any_port, flaky.app()).await?;
            built_in.insert(server).addr().to_string().parse()?
        }
    };
    let backend = match stack.backend.connect().await {
        // A missing store must not keep the service from starting.
        Err(error) if error.is_down() => {
            log(&format!("{error}; until then this gateway decides locally"));
            stack.backend.connect_lazy()?
        }
        backend => backend?,
    };
    let app = gateway(stack, Layers::ALL, backend, upstream.clone())?;
    let server = Server::start(serve.listen, app).await?;
    let url = format!("http://{}", server.addr());
    let StackOptions { limit, burst, .. } = stack;
    let counted = match &stack.backend {
        Store::Memory => String::new(),
        store => format!(", limits counted in {store}"),
    };
    writeln!(
        std::io::stdout(),
        "listening on {url}, forwarding to http://{upstream}{counted}\n\
         \n\
         One request{shows}:\n    \
             curl -i {url}/hello\n\
         Many from one client, which may send {burst} at once and {limit} a second; the rest get 429:\n    \
             curl -Z -o /dev/null -w '%{{http_code}}\\n' '{url}/[1-300]' 2>/dev/null | sort | uniq -c\n\
         \n\
         Ctrl-C stops, once the requests in flight have their answers."
    )?;
    stop.await;
    let again = shutdown::signal()?;
    log("stopping; a second signal stops at once");
    tokio::select! {
        drained = server.drain(DRAIN) => {
            if !drained {
                let limit = DRAIN.as_secs();
                log(&format!("gave up on requests still in flight after {limit} s"));
            }
        }
        () = again => log("stopped with requests in flight"),
    }
    Ok(())
}
