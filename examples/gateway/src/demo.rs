//! The demo: the same load through the stack with and without its layers.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tower::BoxError;
use tower_dist_ratelimit::backend::Backend;

use crate::fleet::{self, Report};
use crate::load::{Callers, Load};
use crate::log;
use crate::options::LayerName::{self, Hedge, Limit, Retry};
use crate::options::{DemoOptions, StackOptions};
use crate::profile::Profile;
use crate::report::{Row, text};
use crate::server::Server;
use crate::shutdown;
use crate::stack::{Watch, gateway};
use crate::upstream::Flaky;

const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const DRAIN: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
struct Scenario {
    name: &'static str,
    profile: Profile,
    layers: &'static [LayerName],
}

/// Every combination of the outbound layers on both profiles, then everything.
fn scenarios() -> Vec<Scenario> {
    let outbound: [(_, &[_]); 4] = [
        ("bare", &[]),
        ("retry", &[Retry]),
        ("hedge", &[Hedge]),
        ("retry-hedge", &[Retry, Hedge]),
    ];
    let mut scenarios = Vec::new();
    for profile in [Profile::Default, Profile::Tail] {
        for (name, layers) in outbound {
            scenarios.push(Scenario {
                name,
                profile,
                layers,
            });
        }
    }
    scenarios.push(Scenario {
        name: "rate-limit",
        profile: Profile::Default,
        layers: &[Limit, Retry, Hedge],
    });
    scenarios
}

/// Runs the scenarios and prints the results to stdout.
pub(crate) async fn run(demo: &DemoOptions, stack: &StackOptions) -> Result<(), BoxError> {
    // The demo stops every process that it started, also when it receives a signal.
    let stop = shutdown::signal()?;
    let report = tokio::select! {
        report = measure_all(demo, stack) => report?,
        () = stop => return Err("stopped before the end".into()),
    };
    let mut stdout = std::io::stdout().lock();
    if demo.json {
        serde_json::to_writer_pretty(&mut stdout, &report.rows)?;
        writeln!(stdout)?;
    } else {
        writeln!(stdout, "{}", text(&report.rows))?;
    }
    if let Some(why) = report.left_out {
        log(why);
    }
    Ok(())
}

async fn measure_all(demo: &DemoOptions, stack: &StackOptions) -> Result<Report, BoxError> {
    let is_wanted = |name: &str| demo.only.as_deref().is_none_or(|only| only == name);
    let scenarios: Vec<Scenario> = scenarios()
        .into_iter()
        .filter(|scenario| is_wanted(scenario.name))
        .collect();
    let with_fleet = is_wanted("fleet");
    let load = Load {
        requests: demo.requests,
        per_second: demo.load,
        callers: Callers::Many,
    };
    let (url, _own_redis) = stack.backend.start().await?;
    let backend = url.connect().await?.backend();
    let runs = scenarios.len() as u64 + if with_fleet { fleet::RUNS } else { 0 };
    // Hidden unless stderr is a terminal.
    let progress = ProgressBar::new(load.requests * runs);
    let style = "{bar:30} {pos}/{len} requests, {eta} left: {msg}";
    progress.set_style(ProgressStyle::with_template(style)?);
    let mut report = Report::default();
    for scenario in scenarios {
        progress.set_message(scenario.name);
        let row = measure(scenario, &load, stack, &backend, &progress).await?;
        report.rows.push(row);
    }
    if with_fleet {
        progress.set_message("fleet");
        let fleet = fleet::measure(&load, stack, &progress).await?;
        report.rows.extend(fleet.rows);
        report.left_out = fleet.left_out;
    }
    progress.finish_and_clear();
    Ok(report)
}

/// Runs one scenario on its own servers, so that no state carries over to the next.
async fn measure(
    scenario: Scenario,
    load: &Load,
    stack: &StackOptions,
    backend: &Arc<dyn Backend>,
    progress: &ProgressBar,
) -> Result<Row, BoxError> {
    let Scenario {
        name,
        profile,
        layers,
    } = scenario;
    let flaky = Flaky::new(profile, stack.seed);
    let upstream = Server::start(ANY_PORT, flaky.app()).await?;
    let authority = upstream.addr().to_string().parse()?;
    let gateway = gateway(stack, layers, Arc::clone(backend), authority, Watch::Log)?;
    let gateway = Server::start(ANY_PORT, gateway.app).await?;
    let answers = load.run(&[gateway.addr()], progress).await?;
    gateway.drain(DRAIN).await;
    upstream.drain(DRAIN).await;
    let served = flaky.served();
    Ok(Row::new(name, profile, load.requests, served, &answers))
}
