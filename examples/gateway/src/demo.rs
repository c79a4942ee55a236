//! The demo: the same load through the stack with and without its layers.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tower::BoxError;

use crate::load::Load;
use crate::options::{DemoOptions, StackOptions};
use crate::profile::Profile;
use crate::report::{Row, table};
use crate::server::Server;
use crate::stack::{Layers, gateway};
use crate::upstream::Flaky;

const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const DRAIN: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug)]
struct Scenario {
    name: &'static str,
    profile: Profile,
    layers: Layers,
}

/// Every combination of the outbound layers on both profiles, then everything.
fn scenarios() -> Vec<Scenario> {
    let outbound = [
        ("bare", false, false),
        ("retry", true, false),
        ("hedge", false, true),
        ("retry-hedge", true, true),
    ];
    let mut scenarios = Vec::new();
    for profile in [Profile::Default, Profile::Tail] {
        for (name, retry, hedge) in outbound {
            let layers = Layers {
                limit: false,
                retry,
                hedge,
            };
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
        layers: Layers::ALL,
    });
    scenarios
}

/// Runs every scenario and prints the results to stdout.
pub(crate) async fn run(demo: &DemoOptions, stack: &StackOptions) -> Result<(), BoxError> {
    let scenarios = scenarios();
    let load = Load {
        requests: demo.requests,
        per_second: demo.load,
    };
    // Hidden where stderr is not a terminal.
    let progress = ProgressBar::new(load.requests * scenarios.len() as u64);
    let style = "{bar:30} {pos}/{len} requests, {eta} left: {msg}";
    progress.set_style(ProgressStyle::with_template(style)?);
    let mut rows = Vec::new();
    for scenario in scenarios {
        progress.set_message(scenario.name);
        rows.push(measure(scenario, load, stack, &progress).await?);
    }
    progress.finish_and_clear();
    let mut stdout = std::io::stdout().lock();
    if demo.json {
        serde_json::to_writer_pretty(&mut stdout, &rows)?;
        writeln!(stdout)?;
    } else {
        writeln!(stdout, "{}", table(&rows))?;
    }
    Ok(())
}

/// One scenario on servers of its own, so that nothing carries over to the next.
async fn measure(
    scenario: Scenario,
    load: Load,
    stack: &StackOptions,
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
    let gateway = Server::start(ANY_PORT, gateway(stack, layers, authority)?).await?;
    let answers = load.run(gateway.addr(), progress).await?;
    gateway.drain(DRAIN).await;
    upstream.drain(DRAIN).await;
    let served = flaky.served();
    Ok(Row::new(name, profile, load.requests, served, &answers))
}
