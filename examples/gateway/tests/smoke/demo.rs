//! The demo's JSON, on a smaller load than its default.

use serde_json::Value;

use crate::process::{MACHINE, output};

/// Enough that those before the hedge has learned its trigger, 3 % of which are slow, are not the slowest of 100.
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
    "refused",
];

#[tokio::test]
async fn json_is_one_array_of_flat_rows() {
    let _quiet = MACHINE.write().await;
    let output = output(&[
        "demo",
        "--json",
        "--requests",
        &REQUESTS.to_string(),
        "--load",
        "750",
        "--limit",
        "20",
        "--burst",
        "20",
    ])
    .await;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let rows: Vec<serde_json::Map<String, Value>> = serde_json::from_slice(&output.stdout).unwrap();

    let mut names = Vec::new();
    for row in &rows {
        // Rows of fleets have more, which are looked at elsewhere.
        let is_fleet = row.contains_key("gateways");
        assert!(is_fleet || row.len() == KEYS.len());
        names.push((
            row["scenario"].as_str().unwrap(),
            row["profile"].as_str().unwrap(),
        ));
        let number = |key: &str| row[key].as_f64().unwrap();
        for key in &KEYS[2..] {
            assert!(row[*key].is_number(), "{key}");
        }
        assert_eq!(row["requests"], REQUESTS);
        assert!((0.0..=1.0).contains(&number("success_ratio")));
        assert!(number("p50_ms") <= number("p95_ms") && number("p99_ms") <= number("max_ms"));
        let passed = number("requests") - number("refused");
        let extra_load = number("upstream_requests") / passed - 1.0;
        assert!((number("extra_load") - extra_load).abs() < 1e-9);
    }
    let mut expected = Vec::new();
    for profile in ["default", "tail"] {
        expected.extend(["bare", "retry", "hedge", "retry-hedge"].map(|name| (name, profile)));
    }
    expected.push(("rate-limit", "default"));
    expected.extend([("fleet-memory", "tail"), ("fleet-redis", "tail")]);
    assert_eq!(names, expected);

    let row = |scenario, profile| {
        &rows[names
            .iter()
            .position(|name| *name == (scenario, profile))
            .unwrap()]
    };
    let number = |scenario, profile, key: &str| row(scenario, profile)[key].as_f64().unwrap();
    assert!(number("bare", "default", "success_ratio") <= 0.95);
    assert!(number("retry-hedge", "default", "success_ratio") >= 0.99);
    assert!(number("hedge", "tail", "p99_ms") < number("bare", "tail", "p99_ms"));
    assert!(number("bare", "tail", "extra_load") == 0.0);
    assert!(number("rate-limit", "default", "refused") > 0.0);
    assert!(number("retry-hedge", "default", "refused") == 0.0);
}
