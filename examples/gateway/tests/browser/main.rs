//! The live page in a real browser. `scripts/browser` installs Chromium and runs these tests.

#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod chromium;
#[path = "../smoke/process.rs"]
#[expect(dead_code, reason = "the smoke tests use the rest")]
mod process;

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::chromium::Tab;
use crate::process::Gateway;

/// Time that the effect of a switch may take to reach the page.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until a JavaScript expression is true in the page.
async fn until(tab: &mut Tab, expression: &str) {
    let start = Instant::now();
    while tab.evaluate(expression).await != true {
        assert!(start.elapsed() < PATIENCE, "{expression}");
        sleep(Duration::from_millis(200)).await;
    }
}

/// Clicks a button, and waits until the page shows it as pressed or released.
async fn click(tab: &mut Tab, group: &str, label: &str, is_pressed: bool) {
    let button =
        format!("document.querySelector('[data-group=\"{group}\"] [data-label=\"{label}\"]')");
    tab.evaluate(&format!("{button}.click()")).await;
    until(
        tab,
        &format!("{button}.getAttribute('aria-pressed') === '{is_pressed}'"),
    )
    .await;
}

async fn press(tab: &mut Tab, group: &str, label: &str) {
    click(tab, group, label, true).await;
}

/// Returns the last value of a line, as the legend shows it.
fn value(chart: &str, line: usize) -> String {
    format!("parseFloat(document.querySelectorAll('#{chart} .legend b')[{line}].textContent)")
}

/// Starts a gateway with traffic, and opens its page.
async fn open(args: &[&str]) -> (Gateway, Tab) {
    let mut gateway = Gateway::with_page(&[&["--traffic", "200"], args].concat());
    let hint = gateway.hint();
    let url = hint
        .lines()
        .find_map(|line| line.strip_prefix("live page and metrics: "))
        .unwrap();
    (gateway, Tab::open(url).await)
}

#[tokio::test]
#[ignore = "needs Chromium: scripts/browser"]
async fn each_fault_of_the_upstream_shows_in_the_requests_without_layers() {
    let (_gateway, mut tab) = open(&["--profile", "tail"]).await;
    let (p99, success) = (value("latency", 3), value("success", 1));
    for (fault, effect) in [
        ("slow replica", format!("{p99} > 900")),
        ("503s", format!("{success} < 100")),
        ("stalls", format!("{success} < 100")),
        ("resets", format!("{success} < 100")),
    ] {
        until(&mut tab, &format!("{p99} < 900 && {success} === 100")).await;
        press(&mut tab, "upstream", fault).await;
        until(&mut tab, &effect).await;
        click(&mut tab, "upstream", fault, false).await;
    }
    assert_eq!(tab.errors(), [""; 0]);
}

#[tokio::test]
#[ignore = "needs Chromium: scripts/browser"]
async fn the_page_loads_without_errors_its_charts_move_and_each_switch_has_its_effect() {
    let (_gateway, mut tab) = open(&["--backend", "redis"]).await;
    for chart in ["latency", "success", "throughput", "attempts", "budget"] {
        let path = format!("document.querySelector('#{chart} path').getAttribute('d')");
        until(
            &mut tab,
            &format!("document.querySelector('#{chart} path') !== null && {path}.length > 0"),
        )
        .await;
        let before = tab.evaluate(&path).await;
        until(&mut tab, &format!("{path} !== {before}")).await;
    }
    // With the layers more requests succeed than without.
    until(
        &mut tab,
        &format!("{} > {}", value("success", 0), value("success", 1)),
    )
    .await;
    until(
        &mut tab,
        "document.querySelector('#triggers').textContent.includes(' ms')",
    )
    .await;
    if let Ok(folder) = std::env::var("SCREENSHOTS") {
        // Enough time for half of each chart.
        sleep(Duration::from_secs(60)).await;
        for theme in ["light", "dark"] {
            let image = tab.screenshot(theme).await;
            std::fs::write(format!("{folder}/gateway-{theme}.png"), image).unwrap();
        }
    }

    // The line of each chart that the layer moves.
    for (layer, line) in [
        ("rate limit", value("throughput", 1)),
        ("retry", value("attempts", 1)),
        ("hedge", value("attempts", 2)),
    ] {
        for (mode, effect) in [("shadow", "=== 0"), ("on", "> 0"), ("off", "=== 0")] {
            press(&mut tab, layer, mode).await;
            until(&mut tab, &format!("{line} {effect}")).await;
        }
    }
    press(&mut tab, "upstream", "503s").await;
    until(&mut tab, &format!("{} < 80", value("success", 0))).await;
    press(&mut tab, "rate limit", "on").await;
    for (action, circuit) in [
        ("frozen", "open"),
        ("running", "closed"),
        ("stopped", "open"),
        ("running", "closed"),
    ] {
        press(&mut tab, "redis", action).await;
        until(
            &mut tab,
            &format!("document.querySelector('#circuit').textContent === '{circuit}'"),
        )
        .await;
    }
    // The gateway's server would outlive a gateway that the test kills.
    press(&mut tab, "redis", "stopped").await;
    // A phone: nothing is wider than the screen.
    tab.narrow().await;
    until(
        &mut tab,
        "document.documentElement.scrollWidth <= window.innerWidth",
    )
    .await;
    assert_eq!(tab.errors(), [""; 0]);
}
