//! The demo's scenario of a fleet.

use std::process::Output;
use std::time::Duration;

use serde_json::{Map, Value};
use tests::servers::Redis;

use crate::process::{MACHINE, command};

const REQUESTS: u64 = 400;
/// 400 requests take a second: each of four gateways receives 100, and admits 10 and 10 more.
const ARGS: [&str; 11] = [
    "demo",
    "--only",
    "fleet",
    "--requests",
    "400",
    "--load",
    "400",
    "--limit",
    "10",
    "--burst",
    "10",
];

async fn demo(args: &[&str], path: Option<&str>) -> (Output, String) {
    let mut demo = command(&[&ARGS, args].concat());
    if let Some(path) = path {
        demo.env("PATH", path);
    }
    let output = tokio::time::timeout(Duration::from_secs(60), demo.output());
    let output = output.await.expect("the demo ends").unwrap();
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(output.status.success(), "{stderr}");
    (output, stderr)
}

async fn rows(args: &[&str], path: Option<&str>) -> (Vec<Map<String, Value>>, String) {
    let (output, stderr) = demo(&[&["--json"], args].concat(), path).await;
    (serde_json::from_slice(&output.stdout).unwrap(), stderr)
}

fn number(row: &Map<String, Value>, key: &str) -> u64 {
    row[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key}: {row:?}"))
}

/// The number of admitted requests of each gateway.
fn apart(row: &Map<String, Value>) -> [u64; 4] {
    [1, 2, 3, 4].map(|gateway| number(row, &format!("admitted_{gateway}")))
}

/// Checks a row, and returns the number of admitted requests of each gateway.
fn check(row: &Map<String, Value>, scenario: &str) -> [u64; 4] {
    assert_eq!(row["scenario"], scenario);
    assert_eq!(number(row, "requests"), REQUESTS);
    assert_eq!(number(row, "gateways"), 4);
    let (admitted, limit) = (number(row, "admitted"), number(row, "limit"));
    assert_eq!(apart(row).iter().sum::<u64>(), admitted);
    assert_eq!(admitted + number(row, "rejected"), REQUESTS);
    // The last request is due after a second less 1/400.
    assert!(limit >= 19, "{limit}");
    let share = row["admitted_over_limit"].as_f64().unwrap();
    assert!((share - admitted as f64 / limit as f64).abs() < 1e-9);
    apart(row)
}

#[tokio::test]
async fn one_redis_holds_four_gateways_to_one_limit_and_memory_does_not() {
    let _busy = MACHINE.read().await;
    let (rows, stderr) = rows(&[], None).await;
    assert_eq!(stderr, "");
    let [memory, redis] = &rows[..] else {
        panic!("{rows:?}");
    };
    for admitted in check(memory, "fleet-memory") {
        assert!(
            (10..=number(memory, "limit")).contains(&admitted),
            "{memory:?}"
        );
    }
    let admitted = check(redis, "fleet-redis");
    assert!(admitted.iter().all(|admitted| *admitted > 0), "{redis:?}");
    let (admitted, limit) = (number(redis, "admitted"), number(redis, "limit"));
    assert!((10..=limit).contains(&admitted), "{redis:?}");
    assert!(number(memory, "admitted") >= 2 * admitted, "{rows:?}");
}

#[tokio::test]
async fn a_backend_of_the_options_is_where_the_fleet_counts() {
    let _busy = MACHINE.read().await;
    let server = Redis::start();
    // Without a PATH the demo cannot start a server.
    let (rows, stderr) = rows(&["--backend", &server.url()], Some("")).await;
    assert_eq!(stderr, "");
    let [_, redis] = &rows[..] else {
        panic!("{rows:?}");
    };
    check(redis, "fleet-redis");
    assert!(
        number(redis, "admitted") <= number(redis, "limit"),
        "{redis:?}"
    );
    assert_eq!(server.keys().len(), 1, "{:?}", server.keys());
}

#[tokio::test]
async fn without_a_redis_server_the_demo_explains_how_to_get_one_and_continues() {
    let _busy = MACHINE.read().await;
    let (rows, stderr) = rows(&[], Some("")).await;
    let [memory] = &rows[..] else {
        panic!("{rows:?}");
    };
    check(memory, "fleet-memory");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(
        stderr.starts_with("gateway: fleet-redis is left out: it needs redis-server")
            && stderr.contains("apt install redis-server"),
        "{stderr}"
    );
}

#[tokio::test]
async fn the_table_shows_each_gateway_and_the_limit() {
    let _busy = MACHINE.read().await;
    let (output, _) = demo(&[], None).await;
    let stdout = String::from_utf8(output.stdout).unwrap();
    let header = "| scenario     | requests | gateway 1 | gateway 2 | gateway 3 | gateway 4 | admitted | limit | admitted / limit |";
    assert!(stdout.contains(header), "{stdout}");
    for scenario in ["| fleet-memory |      400 |", "| fleet-redis  |      400 |"] {
        assert!(stdout.contains(scenario), "{stdout}");
    }
}

/// The child processes of all threads of a process.
#[cfg(target_os = "linux")]
fn children(id: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{id}/task")).unwrap();
    let lists =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok());
    let lists: Vec<String> = lists.collect();
    let ids = lists.iter().flat_map(|list| list.split(' '));
    ids.filter_map(|id| id.parse().ok()).collect()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_stopped_demo_stops_its_processes() {
    let _busy = MACHINE.read().await;
    let mut demo = command(&["demo", "--only", "fleet", "--requests", "1000000"]);
    let mut demo = demo.stderr(std::process::Stdio::null()).spawn().unwrap();
    let id = demo.id().unwrap();
    let started = async {
        loop {
            let children = children(id);
            if children.len() == 4 {
                return children;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let started = tokio::time::timeout(Duration::from_secs(30), started).await;
    let started = started.expect("four gateways");
    crate::process::signal(id, "TERM");
    let ended = tokio::time::timeout(Duration::from_secs(30), demo.wait()).await;
    assert_eq!(ended.expect("it ends").unwrap().code(), Some(1));
    // A kill may take a moment, and the adopting process may not have reaped the child yet.
    let gone = |child: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    };
    let ended = async {
        while !started.iter().all(gone) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(30), ended).await;
    ended.expect("no gateway is left");
}
