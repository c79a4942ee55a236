//! The demo's JSON, on a smaller load than its default.

use serde_json::{Map, Value};

use crate::process::{MACHINE, output};

/// Enough that the slow requests before the hedge has learned its trigger, 3 %, are not the slowest of 100.
const REQUESTS: u64 = 1500;
const KEYS: [&str; 11] = [
    "scenario",
    "profile",
    "requests",
    "success_ratio",
    "p50_ms",
    "p95_ms",
    "p99_ms",
    "max_ms",
    "upstream_requests",
    "extra_load",
    "rejected",
];

/// The latency of a slow response, 3 in 100. On a busy machine no timer ends earlier.
const SLOW_MS: f64 = 115.0;

/// Few enough that the machine must be undisturbed for only half a second, and enough for a learned trigger; and the
/// number of tries.
const FEW: u64 = 400;
const TRIES: usize = 10;

type Row = Map<String, Value>;

async fn rows(requests: u64, args: &[&str]) -> Vec<Row> {
    let requests = requests.to_string();
    let load: &[&str] = &["demo", "--json", "--requests", &requests, "--load", "750"];
    let limit = &["--limit", "20", "--burst", "20"];
    let output = output(&[load, limit, args].concat()).await;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn name(row: &Row) -> (&str, &str) {
    let text = |key: &str| row[key].as_str().unwrap();
    (text("scenario"), text("profile"))
}

fn number(rows: &[Row], scenario: &str, profile: &str, key: &str) -> f64 {
    let row = rows.iter().find(|row| name(row) == (scenario, profile));
    row.unwrap()[key].as_f64().unwrap()
}

/// Fails unless a row shows this, in the first run or in a short run of its scenario with these options. A busy machine
/// makes responses late, so that hedges lose or requests are retried. It makes no response faster or better, so a
/// single good run is the effect of the layers.
async fn shows(
    rows: &[Row],
    [scenario, profile, key]: [&str; 3],
    options: &[&str],
    is_good: impl Fn(f64) -> bool,
) {
    let mut seen = vec![number(rows, scenario, profile, key)];
    while !seen.last().copied().is_some_and(&is_good) {
        let tries = seen.len();
        assert!(tries < TRIES, "{scenario}, {profile}: {key} was {seen:?}");
        let again = self::rows(FEW, &[&["--only", scenario], options].concat()).await;
        seen.push(number(&again, scenario, profile, key));
    }
}

#[tokio::test]
async fn json_is_one_array_of_flat_rows() {
    let _quiet = MACHINE.write().await;
    let rows = rows(REQUESTS, &[]).await;
    for row in &rows {
        // Rows of fleets have more fields, which another test checks.
        let is_fleet = row.contains_key("gateways");
        assert!(is_fleet || row.len() == KEYS.len());
        let number = |key: &str| row[key].as_f64().unwrap();
        for key in &KEYS[2..] {
            assert!(row[*key].is_number(), "{key}");
        }
        assert_eq!(row["requests"], REQUESTS);
        assert!((0.0..=1.0).contains(&number("success_ratio")));
        assert!(number("p50_ms") <= number("p95_ms") && number("p99_ms") <= number("max_ms"));
        let passed = number("requests") - number("rejected");
        let extra_load = number("upstream_requests") / passed - 1.0;
        assert!((number("extra_load") - extra_load).abs() < 1e-9);
    }
    let names: Vec<_> = rows.iter().map(name).collect();
    let mut expected = Vec::new();
    for profile in ["default", "tail"] {
        expected.extend(["bare", "retry", "hedge", "retry-hedge"].map(|name| (name, profile)));
    }
    expected.push(("rate-limit", "default"));
    expected.extend([("fleet-memory", "tail"), ("fleet-redis", "tail")]);
    assert_eq!(names, expected);

    let number = |scenario, profile, key| number(&rows, scenario, profile, key);
    assert!(number("bare", "default", "success_ratio") <= 0.95);
    assert!(number("bare", "tail", "p99_ms") >= SLOW_MS);
    assert!(number("rate-limit", "default", "rejected") > 0.0);
    assert!(number("retry-hedge", "default", "rejected") == 0.0);
    shows(&rows, ["bare", "tail", "extra_load"], &[], |load| {
        load == 0.0
    })
    .await;
    let success = ["retry-hedge", "default", "success_ratio"];
    shows(&rows, success, &[], |ratio| ratio >= 0.99).await;
    // A learned trigger hedges nothing at first, and the delays of a busy machine enter its sample.
    let learned = ["hedge", "tail", "extra_load"];
    shows(&rows, learned, &[], |load| load > 0.0).await;
    let p99 = ["hedge", "tail", "p99_ms"];
    shows(&rows, p99, &["--hedge-at", "21"], |p99| p99 < SLOW_MS).await;
}
