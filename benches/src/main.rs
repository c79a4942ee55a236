//! Compares the crates with their alternatives, in one build and one run.

mod alloc;
mod axum;
mod callgrind;
mod gateway;
mod growth;
mod hedge;
mod job;
mod limit;
mod load;
mod measure;
mod memcached;
mod message;
mod redis;
mod report;
mod resident;
mod retry;
mod throughput;

use std::error::Error;
use std::io::{self, Write};

use clap::{Parser, ValueEnum};

use self::callgrind::Callgrind;
use self::job::Job;
use self::measure::{Case, Effort, Figure};
use self::report::Row;

/// Compares the crates with their alternatives.
#[derive(Debug, Parser)]
struct Args {
    /// Only this group of cases.
    #[arg(long)]
    only: Option<Group>,
    /// Print one array of flat objects instead of a table.
    #[arg(long)]
    json: bool,
    /// Used when this program starts itself: serve the paths that the load requests.
    #[arg(long, hide = true, value_name = "PORT")]
    serve: Option<u16>,
    /// Used with `serve`: serve the floor of the gateway, before this port.
    #[arg(long, hide = true, value_name = "PORT", requires = "serve")]
    upstream: Option<u16>,
    #[command(flatten)]
    job: Job,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Group {
    Retry,
    Hedge,
    Redis,
    Memcached,
    Limit,
    /// A complete server, if `taskset` is installed.
    Axum,
    /// The gateway of `examples`, if it is built, and `nginx` and `taskset` are installed.
    Gateway,
    /// How cost grows with the load.
    Growth,
}

impl Group {
    fn cases(self) -> Vec<Case> {
        match self {
            Self::Retry => retry::cases(),
            Self::Hedge => hedge::cases(),
            // These are not measured call by call; see their `rows`.
            Self::Redis | Self::Memcached => Vec::new(),
            Self::Limit => limit::cases(),
            // Not a loop in this process.
            Self::Axum | Self::Gateway => Vec::new(),
            // Sizes of one subject, instead of subjects.
            Self::Growth => Vec::new(),
        }
    }
}

fn cases(only: Option<Group>) -> Vec<Case> {
    let groups = only.map_or_else(|| Group::value_variants().to_vec(), |group| vec![group]);
    groups.into_iter().flat_map(Group::cases).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let mut cases = cases(args.only);
    if let Some(port) = args.serve {
        return match args.upstream {
            None => Ok(axum::serve(port)?),
            Some(upstream) => Ok(gateway::serve(port, upstream)?),
        };
    }
    if args.job.run(&mut cases) {
        return Ok(());
    }
    if cfg!(debug_assertions) {
        eprintln!("built without optimisation: use --release for figures that mean something");
    }
    let mut rows = measure(&mut cases, Effort::FULL);
    if !rows.is_empty() {
        count_instructions(&cases, &mut rows);
        weigh(&cases, &mut rows);
    }
    if args.only.is_none_or(|only| matches!(only, Group::Redis)) {
        match redis::rows() {
            Ok(throughput) => rows.extend(throughput),
            Err(error) => eprintln!("no rows of redis: {error}"),
        }
    }
    if matches!(args.only, None | Some(Group::Memcached)) {
        match memcached::rows() {
            Ok(throughput) => rows.extend(throughput),
            Err(error) => eprintln!("no rows of memcached: {error}"),
        }
    }
    if matches!(args.only, None | Some(Group::Axum)) {
        rows.extend(axum::rows());
    }
    if matches!(args.only, None | Some(Group::Gateway)) {
        match gateway::rows() {
            Ok(gateway) => rows.extend(gateway),
            Err(error) => eprintln!("no rows of a gateway: {error}"),
        }
    }
    if matches!(args.only, None | Some(Group::Growth)) {
        rows.extend(growth::rows(Effort::GROWTH));
    }
    let report = match args.json {
        true => report::json(&rows)?,
        false => report::table(&rows),
    };
    writeln!(io::stdout(), "{report}")?;
    Ok(())
}

fn measure(cases: &mut [Case], effort: Effort) -> Vec<Row> {
    let mut rows = Vec::new();
    for case in cases {
        let (name, subjects, rounds) = (case.name, case.subjects.len(), effort.rounds);
        eprintln!("{name}: {rounds} rounds of {subjects} subjects");
        rows.extend(case.measure(effort));
    }
    rows
}

/// The rows of the cases with this figure.
fn about<'a>(
    figures: Figure,
    cases: &'a [Case],
    rows: &'a mut [Row],
) -> impl Iterator<Item = &'a mut Row> {
    rows.iter_mut().filter(move |row| {
        let case = cases.iter().find(|case| case.name == row.case);
        case.is_some_and(|case| case.figure == figures)
    })
}

fn count_instructions(cases: &[Case], rows: &mut [Row]) {
    let callgrind = match Callgrind::find() {
        Ok(callgrind) => callgrind,
        Err(error) => return callgrind::missing(format_args!("valgrind: {error}")),
    };
    for row in about(Figure::Call, cases, rows) {
        let (case, subject) = (row.case, row.subject);
        eprintln!("{case}: counting instructions of {subject}");
        match callgrind.instructions(case, subject) {
            Ok(instructions) => row.instructions = Some(instructions),
            Err(error) => callgrind::missing(error),
        }
    }
}

/// The number of keys of a busy service, and the number of keys of an attacker.
const WEIGHED: [(Figure, u32); 2] = [(Figure::Key, 1_000_000), (Figure::Flood, 10_000_000)];

fn weigh(cases: &[Case], rows: &mut [Row]) {
    for (figure, keys) in WEIGHED {
        for row in about(figure, cases, rows) {
            let (case, subject) = (row.case, row.subject);
            eprintln!("{case}: filling {subject}");
            match resident::per_key(case, subject, keys) {
                Ok(taken) => {
                    row.bytes_per_key = Some(taken.bytes_per_key);
                    row.ns_min = (figure == Figure::Flood).then_some(taken.nanos_per_key);
                }
                Err(error) => eprintln!("no bytes per key: {error}"),
            }
        }
    }
}

#[cfg(test)]
mod tests;
