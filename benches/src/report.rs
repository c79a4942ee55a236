//! Rows and their output.

use std::fmt;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

/// The measurements of one subject in one case; `None` where a figure has no meaning.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Row {
    pub(crate) case: &'static str,
    pub(crate) subject: &'static str,
    pub(crate) ns_min: Option<f64>,
    pub(crate) ns_median: Option<f64>,
    pub(crate) ns_max: Option<f64>,
    pub(crate) per_second: Option<f64>,
    pub(crate) allocs: Option<f64>,
    pub(crate) bytes: Option<f64>,
    pub(crate) instructions: Option<u64>,
    pub(crate) bytes_per_key: Option<f64>,
    pub(crate) server_cpu_us: Option<f64>,
    pub(crate) round_trips: Option<f64>,
    #[serde(skip)]
    pub(crate) goal: Option<Goal>,
    /// The nanoseconds per call of each round, in order. A round samples all subjects of its case.
    #[serde(skip)]
    pub(crate) rounds: Vec<f64>,
}

/// A goal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// Our share of the total.
    Share(f64),
    /// Our share of the total minus the bare service's.
    OverBare(f64),
    /// The server's processor time of our decision, in microseconds.
    ServerMicros(f64),
}

impl Row {
    pub(crate) fn new(case: &'static str, subject: &'static str) -> Self {
        Self {
            case,
            subject,
            ..Self::default()
        }
    }

    /// A row of samples: the nanoseconds per call of each round, in order.
    pub(crate) fn of_rounds(case: &'static str, subject: &'static str, rounds: Vec<f64>) -> Self {
        let fold = |pick: fn(f64, f64) -> f64| rounds.iter().copied().reduce(pick);
        Self {
            ns_min: fold(f64::min),
            ns_median: median(rounds.iter().copied()),
            ns_max: fold(f64::max),
            rounds,
            ..Self::new(case, subject)
        }
    }

    /// The median of the rounds' differences.
    fn over(&self, other: &Self) -> Option<f64> {
        median(self.with(other).map(|(own, other)| own - other))
    }

    /// The two times of each round.
    fn with(&self, other: &Self) -> impl Iterator<Item = (f64, f64)> {
        let own = self.rounds.iter().copied();
        own.zip(other.rounds.iter().copied())
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// The subject with goals.
pub(crate) const OURS: &str = "ours";
/// The service without a layer.
pub(crate) const BARE: &str = "bare";

/// Differences below this number of nanoseconds are noise.
const EQUAL: f64 = 10.0;

/// Formats rows as one array of flat objects.
///
/// # Errors
///
/// Rows cause none.
pub(crate) fn json(rows: &[Row]) -> serde_json::Result<String> {
    serde_json::to_string_pretty(rows)
}

/// Formats rows as a Markdown table with aligned columns.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "case",
        "subject",
        "ns min",
        "ns median",
        "ns max",
        "over bare",
        "per second",
        "allocs",
        "bytes",
        "instructions",
        "server µs",
        "round trips",
        "bytes per key",
        "ours ÷ this",
        "goal",
        "met",
    ]);
    for row in rows {
        let of = |subject| {
            let mut case = rows.iter().filter(|other| other.case == row.case);
            case.find(|other| other.subject == subject)
        };
        let ours = of(OURS);
        table.add_row([
            row.case.to_owned(),
            row.subject.to_owned(),
            figure(row.ns_min, 1),
            figure(row.ns_median, 1),
            figure(row.ns_max, 1),
            figure(over_bare(row, of(BARE)), 1),
            figure(row.per_second, 0),
            figure(row.allocs, 0),
            figure(row.bytes, 0),
            row.instructions.map(|n| n.to_string()).unwrap_or_default(),
            figure(row.server_cpu_us, 2),
            figure(row.round_trips, 3),
            figure(row.bytes_per_key, 1),
            figure(ours.and_then(|ours| share(ours, row)), 2),
            row.goal.map(|goal| goal.to_string()).unwrap_or_default(),
            ours.and_then(|ours| met(ours, row, of(BARE)))
                .unwrap_or_default()
                .to_owned(),
        ]);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn figure(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(String::new, |value| format!("{value:.digits$}"))
}

/// The median of the rounds' ratios, because other work on the machine affects both samples of a round; or the ratio of
/// the times of single runs, or of the memory per key.
fn share(ours: &Row, other: &Row) -> Option<f64> {
    if other.subject == OURS {
        return None;
    }
    let figure = |row: &Row| row.ns_min.or(row.bytes_per_key);
    let ratios = ours.with(other).map(|(ours, other)| ours / other);
    median(ratios).or_else(|| Some(figure(ours)? / figure(other)?))
}

fn over_bare(row: &Row, bare: Option<&Row>) -> Option<f64> {
    (row.subject != BARE).then_some(row.over(bare?)?)
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(share) => write!(f, "≤ {share}"),
            Self::OverBare(share) => write!(f, "≤ {share} over bare"),
            Self::ServerMicros(most) => write!(f, "≤ {most} µs of server"),
        }
    }
}

fn met(ours: &Row, peer: &Row, bare: Option<&Row>) -> Option<&'static str> {
    let (share, goal) = match peer.goal? {
        Goal::Share(goal) => (share(ours, peer)?, goal),
        Goal::OverBare(goal) => {
            let bare = bare?;
            (ours.over(bare)? / peer.over(bare)?, goal)
        }
        Goal::ServerMicros(most) => (ours.server_cpu_us? / most, 1.0),
    };
    // The tolerance applies only to goals of equal speed, not to goals of several times the speed.
    let is_near = ours.over(peer) < Some(EQUAL);
    let equal = matches!(peer.goal, Some(Goal::Share(1.0..))) && is_near;
    Some(match share <= goal {
        true => "yes",
        false if equal => "equal",
        false => "NO",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(subject: &'static str, nanos: f64, goal: Option<f64>) -> Row {
        Row {
            goal: goal.map(Goal::Share),
            ..Row::of_rounds("case", subject, vec![nanos])
        }
    }

    #[test]
    fn a_ratio_is_of_the_same_round_and_the_median_of_all_rounds() {
        let row = |subject, rounds: [f64; 3]| Row::of_rounds("case", subject, rounds.into());
        // The machine was slow in the second round, and only for the peer in the third.
        let (ours, peer) = (
            row(OURS, [10.0, 40.0, 11.0]),
            row("peer", [20.0, 80.0, 99.0]),
        );
        assert_eq!(share(&ours, &peer), Some(0.5));
        assert_eq!(ours.over(&peer), Some(-40.0));
        assert_eq!((ours.ns_min, ours.ns_max), (Some(10.0), Some(40.0)));
        assert_eq!(ours.ns_median, Some(11.0));
    }

    #[test]
    fn a_goal_is_met_up_to_its_share_and_parity_also_within_the_noise() {
        let verdict =
            |ours, peer, goal| met(&took(OURS, ours, None), &took("peer", peer, goal), None);
        assert_eq!(verdict(30.0, 100.0, Some(0.3)), Some("yes"));
        assert_eq!(verdict(31.0, 100.0, Some(0.3)), Some("NO"));
        assert_eq!(verdict(20.0, 15.0, Some(1.0)), Some("equal"));
        assert_eq!(verdict(25.0, 15.0, Some(1.0)), Some("NO"));
        assert_eq!(verdict(25.0, 15.0, None), None);
    }

    #[test]
    fn a_goal_over_bare_is_about_the_cost_that_the_layers_add() {
        let peer = Row {
            goal: Some(Goal::OverBare(0.5)),
            ..took("peer", 500.0, None)
        };
        let bare = took(BARE, 300.0, None);
        let verdict = |ours| met(&took(OURS, ours, None), &peer, Some(&bare));
        assert_eq!(verdict(400.0), Some("yes"));
        assert_eq!(verdict(402.0), Some("NO"));
    }

    #[test]
    fn rows_are_flat_objects_with_nulls_for_values_that_were_not_measured() {
        let text = json(&[took(OURS, 1.5, Some(1.0))]).unwrap();
        let rows: Vec<serde_json::Map<_, _>> = serde_json::from_str(&text).unwrap();
        let null = serde_json::Value::Null;
        assert_eq!(rows[0]["ns_min"], 1.5);
        assert_eq!(rows[0]["per_second"], null);
        assert_eq!(rows[0].len(), 12);
    }
}
