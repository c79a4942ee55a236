//! The command line.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use axum::http::Uri;
use axum::http::uri::{Authority, Scheme};
use clap::{Args, Parser, Subcommand, ValueEnum, value_parser};

use crate::backend::Choice;
use crate::profile::Profile;

/// A gateway with a rate limit for its clients, and retries and hedged requests towards its upstream.
///
/// Without a subcommand it serves until Ctrl-C or SIGTERM, and then lets the requests in flight finish.
#[derive(Debug, Parser)]
#[command(
    version,
    propagate_version = true,
    args_conflicts_with_subcommands = true,
    allow_negative_numbers = true
)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) serve: ServeOptions,
    #[command(flatten)]
    pub(crate) stack: StackOptions,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Drives load through the gateway, with and without its layers, and prints a table of the results.
    Demo(DemoOptions),
}

#[derive(Debug, Args)]
pub(crate) struct ServeOptions {
    /// Address to listen on; port 0 takes any free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:3000")]
    pub(crate) listen: SocketAddr,
    /// Forward to this server, e.g. http://127.0.0.1:8080, instead of the built-in flaky one.
    #[arg(long, value_name = "URL", value_parser = http_authority, conflicts_with = "profile")]
    pub(crate) upstream: Option<Authority>,
    /// Address of the live page and of /metrics; `off` for none.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:3001")]
    pub(crate) admin: Admin,
    /// Requests per second that the gateway sends through itself, through the same layers without hedges, and to the
    /// upstream without layers. The page compares the three.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=10_000))]
    pub(crate) traffic: Option<u32>,
    /// Forward without the rate limit, retries and hedged requests, for comparison.
    #[arg(long)]
    pub(crate) bare: bool,
    /// Layers that are on, in any order. The others are off.
    #[arg(
        long,
        value_enum,
        value_name = "LAYER,..",
        value_delimiter = ',',
        default_value = "limit,retry,hedge",
        conflicts_with = "bare"
    )]
    pub(crate) layers: Vec<LayerName>,
    /// Behaviour of the built-in upstream.
    #[arg(long, value_enum, default_value = "default")]
    pub(crate) profile: Profile,
}

/// A value of `--layers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LayerName {
    Limit,
    Retry,
    Hedge,
}

/// The value of `--admin`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Admin {
    Off,
    At(SocketAddr),
}

impl FromStr for Admin {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "off" {
            return Ok(Self::Off);
        }
        text.parse()
            .map(Self::At)
            .map_err(|_| "expected an address such as 127.0.0.1:3001, or off")
    }
}

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct DemoOptions {
    /// Print one JSON array instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Requests per scenario.
    #[arg(long, value_name = "N", default_value = "5000", value_parser = value_parser!(u64).range(1..=1_000_000))]
    pub(crate) requests: u64,
    /// Requests per second, sent on schedule whether or not earlier ones have been answered.
    #[arg(long, value_name = "N", default_value = "1000", value_parser = value_parser!(u32).range(1..=100_000))]
    pub(crate) load: u32,
    /// Only this scenario.
    #[arg(long, value_name = "SCENARIO", value_parser = SCENARIOS)]
    pub(crate) only: Option<String>,
}

/// The demo's scenarios.
const SCENARIOS: [&str; 6] = [
    "bare",
    "retry",
    "hedge",
    "retry-hedge",
    "rate-limit",
    "fleet",
];

/// The settings of the layers.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Layers")]
pub(crate) struct StackOptions {
    /// Requests per second that each client may send.
    #[arg(long, global = true, value_name = "N", default_value = "50", value_parser = value_parser!(u64).range(1..))]
    pub(crate) limit: u64,
    /// Burst: requests that a client may send concurrently after a pause.
    #[arg(long, global = true, value_name = "N", default_value = "100", value_parser = value_parser!(u64).range(1..))]
    pub(crate) burst: u64,
    /// Backend that counts the limits: memory (this process), redis (a server that the gateway starts for itself), or a
    /// backend that several gateways share: redis://host:port, redis-cluster://host:port,..,
    /// redis-sentinel://host:port,../name or memcached://host:port,...
    #[arg(long, global = true, value_name = "BACKEND", default_value = "memory")]
    pub(crate) backend: Choice,
    /// Lease tokens of busy clients for this time in milliseconds, from 10 to 60000, and decide on leased
    /// tokens without a round trip. In any period the fleet admits at most the limit of that period
    /// and the lease.
    #[arg(long, global = true, value_name = "MS", value_parser = lease_time)]
    pub(crate) lease: Option<Duration>,
    /// Number of gateways that share the backend. While the backend is down, each admits 1/N of the limits.
    #[arg(long, global = true, value_name = "N", default_value = "1", value_parser = value_parser!(u32).range(1..))]
    pub(crate) fleet: u32,
    /// Timeout of a decision by the backend, in milliseconds.
    #[arg(long, global = true, value_name = "MS", default_value = "50", value_parser = backend_timeout)]
    pub(crate) backend_timeout: Duration,
    /// Maximum attempts per request, the first included.
    #[arg(long, global = true, value_name = "N", default_value = "3", value_parser = value_parser!(u32).range(1..))]
    pub(crate) attempts: u32,
    /// Latency quantile after which a hedge is sent.
    #[arg(long, global = true, value_name = "SHARE", default_value = "0.95")]
    pub(crate) hedge_percentile: f64,
    /// Fixed delays of hedges in milliseconds, instead of a learned delay.
    #[arg(
        long,
        global = true,
        value_name = "MS,..",
        value_delimiter = ',',
        value_parser = milliseconds
    )]
    pub(crate) hedge_at: Vec<Duration>,
    /// Learn a delay of hedges for each first segment of the path, up to 256, instead of one for all requests.
    #[arg(long, global = true, conflicts_with = "hedge_at")]
    pub(crate) hedge_per_path: bool,
    /// Retries and hedges per successful request in the long run.
    #[arg(long, global = true, value_name = "RATIO", default_value = "0.2")]
    pub(crate) budget: f64,
    /// Timeout of each attempt until its response begins, in milliseconds.
    #[arg(long, global = true, value_name = "MS", default_value = "500", value_parser = milliseconds)]
    pub(crate) attempt_timeout: Duration,
    /// Timeout of each request with its retries and waits, in milliseconds. If the upstream demands a
    /// longer wait, the client receives its response.
    #[arg(long, global = true, value_name = "MS", default_value = "5000", value_parser = milliseconds)]
    pub(crate) deadline: Duration,
    /// Seed of the built-in upstream.
    #[arg(long, global = true, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    milliseconds_of(text, 1..=3_600_000)
}

/// Parses a lease. The error names the option and its range.
fn lease_time(text: &str) -> Result<Duration, String> {
    milliseconds_of(text, 10..=60_000)
}

fn backend_timeout(text: &str) -> Result<Duration, String> {
    milliseconds_of(text, 1..=60_000)
}

fn milliseconds_of(text: &str, bounds: RangeInclusive<u64>) -> Result<Duration, String> {
    match text.parse() {
        Ok(ms) if bounds.contains(&ms) => Ok(Duration::from_millis(ms)),
        _ => {
            let (least, most) = bounds.into_inner();
            Err(format!("expected milliseconds, from {least} to {most}"))
        }
    }
}

/// The authority of an `http://` URL without a path.
fn http_authority(text: &str) -> Result<Authority, String> {
    const EXPECTED: &str = "expected http://host or http://host:port";
    let uri: Uri = text.parse().map_err(|_| EXPECTED)?;
    if uri.scheme() == Some(&Scheme::HTTPS) {
        return Err("https is not supported, only http:// upstreams are".into());
    }
    match uri.authority() {
        Some(authority)
            if uri.scheme() == Some(&Scheme::HTTP)
                && uri.path_and_query().is_none_or(|path| path == "/")
                && !authority.host().is_empty()
                && (authority.port_u16().is_some() || authority.as_str() == authority.host())
                && !authority.as_str().contains('@') =>
        {
            Ok(authority.clone())
        }
        _ => Err(EXPECTED.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_an_http_host_and_nothing_else() {
        for good in [
            "http://a",
            "http://a:1",
            "http://127.0.0.1:8080/",
            "http://[::1]:80",
        ] {
            assert!(http_authority(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "a",
            "a:1",
            "/a",
            "ftp://a",
            "http://",
            "http://:1",
            "http://a:",
            "http://a:99999",
            "http://a/b",
            "http://a?b",
            "http://u@a",
            "http://a b",
        ] {
            assert!(http_authority(bad).is_err(), "{bad}");
        }
        let https = http_authority("https://a").unwrap_err();
        assert!(https.contains("only http://"), "{https}");
    }

    #[test]
    fn milliseconds_are_bounded() {
        assert_eq!(milliseconds("21"), Ok(Duration::from_millis(21)));
        for bad in ["0", "-1", "3600001", "1.5", "1s", ""] {
            assert!(milliseconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn without_options_the_gateway_and_its_page_listen_on_loopback() {
        let serve = Options::parse_from(["gateway"]).serve;
        assert_eq!(serve.listen.to_string(), "127.0.0.1:3000");
        assert!(
            matches!(serve.admin, Admin::At(addr) if addr.to_string() == "127.0.0.1:3001"),
            "{:?}",
            serve.admin
        );
    }

    #[test]
    fn the_packaging_shows_valid_options() {
        let unit = include_str!("../../../packaging/gateway.service");
        let image = include_str!("../../../packaging/Dockerfile");
        for (text, before) in [(unit, "OPTIONS="), (image, "3000:3000 gateway ")] {
            let options = text.lines().find_map(|line| line.split_once(before));
            let (_, options) = options.unwrap();
            let words = ["gateway"].into_iter().chain(options.split_whitespace());
            Options::try_parse_from(words).unwrap();
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        Options::command().debug_assert();
    }
}
