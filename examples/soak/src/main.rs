//! Three fleets of gateways under load and faults: see `scripts/soak`. It exits with an error if a check fails.

mod checks;
mod faults;
mod gateway;
mod load;
mod upstream;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::PoisonError;
use std::time::Duration;

use clap::Parser;
use comfy_table::Table;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval};
use tower::BoxError;

use self::checks::{Check, Exception, Limit, SLOT};
use self::faults::{Backends, Events};
use self::gateway::{Gateway, Log, Meter, Sample};
use self::load::{Kind, Results, Run};
use self::upstream::Upstream;

/// Runs gateways over Redis and Memcached under load while faults come and go, and checks the result.
#[derive(Debug, Parser)]
struct Options {
    /// Minutes of the run; at least two rounds of faults are played.
    #[arg(default_value = "10")]
    minutes: u32,
    /// The gateway's program; by default the one beside this program.
    #[arg(long, value_name = "FILE")]
    gateway: Option<PathBuf>,
    /// The library that lets the clocks of gateways jump.
    #[arg(long, value_name = "FILE")]
    libfaketime: PathBuf,
}

/// Requests per second and burst of each client.
const RATE: u64 = 50;
const BURST: u64 = 50;
/// Timeout of a decision.
const DECISION: Duration = Duration::from_millis(250);
/// Timeout of a request from its decision to the beginning of its response.
const DEADLINE: Duration = Duration::from_secs(5);
const LEASE: Duration = Duration::from_millis(500);
/// New hostile keys per minute, over all gateways.
const HOSTILE_KEYS: u64 = 100_000;
/// Gateways that share a backend.
const FLEET: usize = 2;
const SAMPLE: Duration = Duration::from_millis(250);
/// An outage has ended if no request failed for this time: longer than the pause between two probes.
const RECOVERED: Duration = Duration::from_millis(2_500);
/// Time after an outage in which requests must fit into the shares, too, and a margin.
const RETURN: Duration = Duration::from_secs(6);

/// A fleet of gateways with a backend.
struct Site {
    name: &'static str,
    ahead: Duration,
    gateways: Vec<Gateway>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let checks = match run(Options::parse()).await {
        Ok(checks) => checks,
        Err(error) => {
            eprintln!("soak: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut table = Table::new();
    table.set_header(["check", "measured", "bound", ""]);
    for check in &checks {
        let verdict = if check.passed { "passed" } else { "FAILED" };
        table.add_row([&check.name, &check.measured, &check.bound, verdict]);
    }
    let passed = checks.iter().all(|check| check.passed);
    let json = serde_json::json!({ "passed": passed, "checks": checks });
    let _ = writeln!(std::io::stdout(), "{table}\n{json}");
    match passed {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

async fn run(options: Options) -> Result<Vec<Check>, BoxError> {
    let binary = match options.gateway {
        Some(binary) => binary,
        None => std::env::current_exe()?.with_file_name("gateway"),
    };
    if !options.libfaketime.exists() {
        let library = options.libfaketime.display();
        return Err(format!("{library} is missing; it is in the package faketime").into());
    }
    let log = Log::default();
    let upstream = Upstream::start().await?;
    let mut backends = tokio::task::block_in_place(Backends::start)?;
    let clock = [
        ("LD_PRELOAD", options.libfaketime.display().to_string()),
        (
            "FAKETIME_TIMESTAMP_FILE",
            backends.clock_file().display().to_string(),
        ),
        ("FAKETIME_CACHE_DURATION", "1".into()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
    ];
    let lease = LEASE.as_millis().to_string();
    let plans = [
        (
            "Redis with leases",
            backends.redis.url(),
            &["--lease", &lease][..],
        ),
        ("Redis Sentinel", backends.sentinels.url(), &[]),
        ("Memcached", backends.memcached.url(), &[]),
    ];
    let mut sites = vec![];
    for (name, backend, args) in plans {
        let (rate, burst, fleet) = (RATE.to_string(), BURST.to_string(), FLEET.to_string());
        let (timeout, deadline) = (DECISION.as_millis(), DEADLINE.as_millis());
        let (timeout, deadline) = (timeout.to_string(), deadline.to_string());
        let upstream = format!("http://{}", upstream.addr);
        let common = [
            ["--backend", &backend],
            ["--upstream", &upstream],
            ["--limit", &rate],
            ["--burst", &burst],
            ["--fleet", &fleet],
            ["--backend-timeout", &timeout],
            ["--deadline", &deadline],
        ];
        let args = [common.as_flattened(), args].concat();
        let mut gateways = vec![];
        for _ in 0..FLEET {
            gateways.push(Gateway::start(&binary, &args, &clock, &log).await?);
        }
        let ahead = DECISION
            + if args.contains(&"--lease") {
                LEASE
            } else {
                Duration::ZERO
            };
        sites.push(Site {
            name,
            ahead,
            gateways,
        });
    }

    let whole = u64::from(options.minutes) * 60 / faults::round().as_secs();
    let rounds = u32::try_from(whole)?.max(2);
    let start = Instant::now();
    let run = Run {
        start,
        end: start + faults::round() * rounds + Duration::from_secs(2),
        decision_timeout: DECISION,
    };
    let mut loads = JoinSet::new();
    let mut samples = JoinSet::new();
    for (number, site) in sites.iter().enumerate() {
        let addrs: Vec<_> = site.gateways.iter().map(|gateway| gateway.addr).collect();
        let hostile = HOSTILE_KEYS as f64 / 60.0 / 3.0;
        let kinds = [
            (Kind::Hot, 3.0 * RATE as f64),
            (Kind::Posts, 20.0),
            (Kind::HostileKeys, hostile),
        ];
        for (place, (kind, per_second)) in (kinds.len() * number..).zip(kinds) {
            let (first_id, upstream) = ((place as u64) << 32, upstream.clone());
            let results = load::send(kind, per_second, addrs.clone(), first_id, upstream, run);
            loads.spawn(async move { Ok::<_, BoxError>((number, kind, results.await?)) });
        }
        for (gateway, process) in site.gateways.iter().enumerate() {
            let sampling = sample(process.meter.clone(), run);
            samples.spawn(async move { Ok::<_, BoxError>(((number, gateway), sampling.await?)) });
        }
    }
    let control = tokio::spawn(load::control(upstream.addr, run));
    let events = backends.play(rounds, &upstream, start).await?;

    let mut results = vec![];
    while let Some(load) = loads.join_next().await {
        results.push(load??);
    }
    let mut resources = BTreeMap::new();
    while let Some(sampled) = samples.join_next().await {
        let (gateway, samples) = sampled??;
        resources.insert(gateway, samples);
    }
    let control = control.await??;
    let names: Vec<_> = sites.iter().map(|site| (site.name, site.ahead)).collect();
    let mut failed = 0;
    for gateway in sites.into_iter().flat_map(|site| site.gateways) {
        failed += u64::from(!gateway.stop().await?);
    }
    let log = log.lock().unwrap_or_else(PoisonError::into_inner).clone();

    let mut checks = vec![
        checks::panics(&log),
        Check::at_most("gateways that failed", failed, 0, ""),
    ];
    checks.extend(of_requests(&results, &upstream, &control));
    for (number, (name, ahead)) in names.iter().enumerate() {
        let site = resources.range((number, 0)..(number + 1, 0));
        let fleet: Vec<&[(Duration, Sample)]> =
            site.map(|(_, samples)| samples.as_slice()).collect();
        let load = results
            .iter()
            .find(|(site, kind, _)| *site == number && *kind == Kind::Hot);
        let admitted = load.map_or(&[][..], |(.., results)| results.admitted.as_slice());
        // Redis decides by its own clock, and the gateways by theirs over Memcached.
        let has_jumps = *name == "Memcached";
        checks.extend(of_site(name, *ahead, admitted, &fleet, &events, has_jumps));
    }
    checks.push(Check::at_least(
        "failovers",
        events.failovers,
        u64::from(rounds),
    ));
    Ok(checks)
}

/// Samples the resources of a gateway until the run ends.
async fn sample(meter: Meter, run: Run) -> Result<Vec<(Duration, Sample)>, BoxError> {
    let client = load::client();
    let mut samples = vec![];
    let mut schedule = interval(SAMPLE);
    while schedule.tick().await < run.end {
        samples.push((run.start.elapsed(), meter.sample(&client).await?));
    }
    Ok(samples)
}

/// The checks over the requests of all sites.
fn of_requests(
    results: &[(usize, Kind, Results)],
    upstream: &Upstream,
    control: &[checks::Span],
) -> Vec<Check> {
    let all = || results.iter().map(|(.., results)| results);
    let of_kind = |kind| results.iter().filter(move |(_, other, _)| *other == kind);
    let count = |kind| of_kind(kind).map(|(.., results)| results.requests).sum();
    let posts: Vec<_> = all().flat_map(|results| results.posts.clone()).collect();
    let decisions: Vec<_> = all().flat_map(|r| r.slow_decisions.clone()).collect();
    let requests: Vec<_> = all().flat_map(|r| r.slow_requests.clone()).collect();
    let unanswered = all().map(|results| results.no_response).sum();
    let minutes = control.last().map_or(0, |last| last.at.as_secs() / 60);
    let mut checks = vec![
        // Fewer while a backend is frozen.
        Check::at_least(
            "requests with hostile keys",
            count(Kind::HostileKeys),
            HOSTILE_KEYS * minutes * 9 / 10,
        ),
        Check::at_least(
            "requests of the hot clients",
            count(Kind::Hot),
            RATE * 60 * minutes,
        ),
        Check::at_least("POSTs", posts.len() as u64, 1_000),
        Check::at_most("requests without a response", unanswered, 0, ""),
    ];
    checks.extend(checks::posts(&posts, &upstream.executed()));
    checks.push(checks::on_time(
        "slowest decision",
        &decisions,
        DECISION,
        control,
    ));
    let whole = DECISION + DEADLINE;
    checks.push(checks::on_time(
        "slowest admitted request",
        &requests,
        whole,
        control,
    ));
    checks
}

/// Reads one resource.
type Value = fn(&Sample) -> u64;

/// The checks of one site: its limit, its outages, and the resources of its gateways.
fn of_site(
    name: &str,
    ahead: Duration,
    admitted: &[u64],
    fleet: &[&[(Duration, Sample)]],
    events: &Events,
    has_jumps: bool,
) -> Vec<Check> {
    let slot = |time: Duration| (time.as_millis() / SLOT.as_millis()) as usize;
    let outages = outages(fleet);
    let mut exceptions: Vec<Exception> = outages
        .iter()
        .map(|(from, to)| Exception {
            from: slot(from.saturating_sub(Duration::from_secs(1))),
            to: slot(*to + RETURN),
            // One from the shares, and one after the return.
            bursts: 2,
        })
        .collect();
    if has_jumps {
        exceptions.extend(events.jumps.iter().map(|jump| Exception {
            from: slot(*jump),
            // The gateways see the jump within a second.
            to: slot(*jump + Duration::from_secs(2)),
            // A jump ahead looks like passed time.
            bursts: 1,
        }));
    }
    let limit = Limit {
        rate: RATE,
        burst: BURST,
        ahead,
    };
    let total = admitted.iter().sum();
    let half = RATE * admitted.len() as u64 / 20;
    let mut checks = vec![
        checks::admission(name, admitted, limit, &exceptions),
        Check::at_least(format!("admitted in all, {name}"), total, half),
        Check::at_least(
            format!("outages, {name}"),
            outages.len() as u64,
            events.calm.len() as u64,
        ),
    ];
    let (Some(first), Some(last)) = (events.calm.first(), events.calm.last()) else {
        return checks;
    };
    for (number, samples) in fleet.iter().enumerate() {
        let calm = |from: &Duration, value: Value| -> Vec<u64> {
            let window = *from..*from + faults::CALM / 2;
            let samples = samples.iter().filter(|(at, _)| window.contains(at));
            samples.map(|(_, sample)| value(sample)).collect()
        };
        // The margin of the memory has room for the 100,000 keys of a fallback.
        let resources: [(&str, Value, u64, &str); 3] = [
            ("memory", |sample| sample.memory_mib, 16, " MiB"),
            ("tasks", |sample| sample.tasks, 50, ""),
            ("file handles", |sample| sample.files, 50, ""),
        ];
        for (what, value, margin, unit) in resources {
            let what = format!("{what}, {name} {}", number + 1);
            let (first, last) = (calm(first, value), calm(last, value));
            checks.push(checks::growth(what, &first, &last, margin, unit));
        }
    }
    checks
}

/// The times in which a gateway decided requests without its backend.
fn outages(fleet: &[&[(Duration, Sample)]]) -> Vec<(Duration, Duration)> {
    let mut failures: Vec<Duration> = vec![];
    for samples in fleet {
        let pairs = samples.windows(2);
        let grown = pairs.filter(|pair| pair[1].1.undecided > pair[0].1.undecided);
        failures.extend(grown.map(|pair| pair[1].0));
    }
    failures.sort();
    let mut outages: Vec<(Duration, Duration)> = vec![];
    for at in failures {
        match outages.last_mut() {
            Some((_, to)) if at - *to < RECOVERED => *to = at,
            _ => outages.push((at, at)),
        }
    }
    outages
}
