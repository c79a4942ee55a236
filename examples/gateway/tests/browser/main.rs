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

/// Whether the element shows this text.
fn text(id: &str, text: &str) -> String {
    format!("document.querySelector('#{id}').textContent === '{text}'")
}

/// Whether the table of the fleet shows this share of the limit.
fn share(text: &str) -> String {
    format!("document.querySelectorAll('#fleet tr')[3].cells[1].textContent === '{text}'")
}

/// Whether the table of decisions has a row of this source whose counts fulfil the condition.
fn decisions(source: &str, condition: &str) -> String {
    format!(
        "[...document.querySelectorAll('#decisions tr')].some((row) => {{
            const [policy, source, allowed, rejected] = [...row.cells].map((cell) => cell.textContent);
            return policy === 'per-client' && source === '{source}' && {condition};
        }})"
    )
}

/// Starts a gateway with traffic, and opens its page.
async fn open(args: &[&str]) -> (Gateway, Tab) {
    let mut gateway = Gateway::with_page(&[&["--traffic", "130"], args].concat());
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
    let args = ["--profile", "tail", "--fleet", "3", "--hedge-per-path"];
    let (_gateway, mut tab) = open(&args).await;
    let (p99, success) = (value("latency-bare", 2), value("success", 2));
    let fleet = "limits counted in memory, fleet of 3";
    until(
        &mut tab,
        &format!("document.querySelector('#state').textContent.includes('{fleet}')"),
    )
    .await;
    // Each path has its trigger. The reports take 30 ms longer.
    until(
        &mut tab,
        "(() => {
            const rows = [...document.querySelectorAll('#triggers tr')];
            const [page, report] = rows.map((row) => parseFloat(row.cells[1].textContent));
            return rows.map((row) => row.cells[0].textContent).join() === '/,/report' && 15 < page && page + 15 < report;
        })()",
    )
    .await;
    until(&mut tab, &share("all of it (50.0/s), counted alone")).await;
    // Hedging cuts the tail, and the lane without hedges and the switch show that nothing else does.
    let (hedged, unhedged) = (value("latency-layers", 2), value("latency-unhedged", 2));
    until(&mut tab, &format!("{hedged} * 1.3 < {unhedged}")).await;
    until(&mut tab, &text("hedging", "with hedging")).await;
    press(&mut tab, "hedge", "off").await;
    until(&mut tab, &text("hedging", "hedging off")).await;
    until(&mut tab, &format!("{hedged} > 115 && {unhedged} > 115")).await;
    press(&mut tab, "hedge", "on").await;
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
    let (_gateway, mut tab) = open(&["--backend", "redis", "--hedge-per-path"]).await;
    // A line of each chart that traffic keeps moving.
    for (chart, line) in [
        ("latency-layers", 1),
        ("latency-unhedged", 2),
        ("success", 2),
        ("throughput", 0),
        ("attempts", 1),
        ("budget", 0),
    ] {
        let shown = value(chart, line);
        until(&mut tab, &format!("{shown} > 0")).await;
        let before = tab.evaluate(&shown).await;
        until(&mut tab, &format!("{shown} > 0 && {shown} !== {before}")).await;
        // The height of its last point. Time alone moves a point to the left only.
        let height = format!(
            "document.querySelectorAll('#{chart} path')[{line}].getAttribute('d').split(' ').at(-1)"
        );
        let before = tab.evaluate(&height).await;
        until(
            &mut tab,
            &format!("{height} !== '{}'", before.as_str().unwrap()),
        )
        .await;
    }
    // Without layers and faults the percentiles hardly move.
    until(&mut tab, &format!("{} > 0", value("latency-bare", 2))).await;
    // The budget is 20 % of the successful requests and 10 requests per second.
    until(
        &mut tab,
        &format!(
            "{} > 0 && {} < 50 && {} === 20",
            value("budget", 0),
            value("budget", 0),
            value("budget", 1)
        ),
    )
    .await;
    until(
        &mut tab,
        &decisions("Backend", "allowed > 0 && rejected > 0"),
    )
    .await;
    // With the layers more requests succeed than without.
    until(
        &mut tab,
        &format!("{} > {}", value("success", 0), value("success", 2)),
    )
    .await;
    until(
        &mut tab,
        "document.querySelector('#triggers').textContent.includes(' ms')",
    )
    .await;
    if let Ok(folder) = std::env::var("SCREENSHOTS") {
        // The charts are full, and the start is off them.
        sleep(Duration::from_secs(125)).await;
        for theme in ["light", "dark"] {
            tab.prefer(theme).await;
            let image = tab.screenshot().await;
            std::fs::write(format!("{folder}/gateway-{theme}.png"), image).unwrap();
        }
    }

    // The line of each chart that the layer moves.
    for (layer, line) in [
        ("rate limit", value("throughput", 3)),
        ("retry", value("attempts", 1)),
        ("hedge", value("attempts", 2)),
    ] {
        for (mode, effect) in [("shadow", "=== 0"), ("on", "> 0"), ("off", "=== 0")] {
            press(&mut tab, layer, mode).await;
            until(&mut tab, &format!("{line} {effect}")).await;
        }
    }
    // The layers are off now, and failures show. Retries alone hide them.
    until(&mut tab, &format!("{} < 98", value("success", 0))).await;
    press(&mut tab, "retry", "on").await;
    until(
        &mut tab,
        &format!(
            "{} === 100 && {} < 98",
            value("success", 0),
            value("success", 2)
        ),
    )
    .await;
    press(&mut tab, "retry", "off").await;
    press(&mut tab, "upstream", "503s").await;
    until(&mut tab, &format!("{} < 80", value("success", 0))).await;
    press(&mut tab, "rate limit", "on").await;
    for (action, circuit, part) in [
        ("frozen", "open", "1/1 of it (50.0/s), decided locally"),
        ("running", "closed", "what the others leave of 50.0/s"),
        ("stopped", "open", "1/1 of it (50.0/s), decided locally"),
        ("running", "closed", "what the others leave of 50.0/s"),
    ] {
        press(&mut tab, "redis", action).await;
        until(&mut tab, &text("circuit", circuit)).await;
        until(&mut tab, &share(part)).await;
    }
    until(&mut tab, &decisions("Local", "allowed > 0")).await;
    // The gateway's server would outlive a gateway that the test kills.
    press(&mut tab, "redis", "stopped").await;
    let background = "getComputedStyle(document.body).backgroundColor";
    for (theme, colour) in [("light", "rgb(255, 255, 255)"), ("dark", "rgb(18, 21, 27)")] {
        tab.prefer(theme).await;
        until(&mut tab, &format!("{background} === '{colour}'")).await;
    }
    // A phone: nothing is wider than the screen. Chromium enlarges `innerWidth` to content that overflows.
    tab.narrow().await;
    until(&mut tab, "matchMedia('(max-width: 360px)').matches").await;
    let fits = "document.documentElement.scrollWidth <= 360";
    assert_eq!(tab.evaluate(fits).await, true);
    let widen = |width| format!("document.querySelector('main').style.minWidth = '{width}'");
    tab.evaluate(&widen("400px")).await;
    assert_eq!(
        tab.evaluate(fits).await,
        false,
        "the check notices overflow"
    );
    tab.evaluate(&widen("0")).await;
    assert_eq!(tab.evaluate(fits).await, true);
    assert_eq!(tab.errors(), [""; 0]);
}

#[tokio::test]
#[ignore = "needs Chromium: scripts/browser"]
async fn without_layers_their_switches_are_disabled() {
    let (_gateway, mut tab) = open(&["--bare"]).await;
    let buttons = "[...document.querySelectorAll('#layers button')]";
    until(
        &mut tab,
        &format!(
            "{buttons}.length === 9 && \
             {buttons}.every((button) => button.disabled && button.getAttribute('aria-pressed') === 'false')"
        ),
    )
    .await;
    until(
        &mut tab,
        "document.querySelector('#circuit').textContent === 'not in use' && \
         document.querySelector('#state').textContent.includes('--bare')",
    )
    .await;
    assert_eq!(tab.errors(), [""; 0]);
}
