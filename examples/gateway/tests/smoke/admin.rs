//! The live page: its events follow the traffic, and each switch has the effect that the page shows.

use std::time::Duration;

use axum::http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::client::{get, send, text};
use crate::process::{Gateway, MACHINE, unused_addr};

/// A gateway with traffic, and the URL of its page.
struct Page {
    url: String,
    _gateway: Gateway,
}

impl Page {
    fn open(args: &[&str]) -> Self {
        Self::open_only(&[&["--traffic", "50", "--limit", "10", "--burst", "10"], args].concat())
    }

    /// Opens the page of a gateway without further options.
    fn open_only(args: &[&str]) -> Self {
        let mut gateway = Gateway::with_page(args);
        let hint = gateway.hint();
        let url = hint
            .lines()
            .find_map(|line| line.strip_prefix("live page and metrics: "));
        Self {
            url: url.unwrap().to_owned(),
            _gateway: gateway,
        }
    }

    /// Waits for a snapshot that fulfils the condition.
    async fn until(&self, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let mut events = get(format!("{}/events", self.url)).await.into_body();
        let mut last = Value::Null;
        let found = timeout(Duration::from_secs(60), async {
            let mut text = String::new();
            loop {
                let frame = events.frame().await.unwrap().unwrap();
                text += std::str::from_utf8(&frame.into_data().unwrap()).unwrap();
                while let Some((event, rest)) = text.split_once("\n\n") {
                    if let Some(data) = event.strip_prefix("data: ") {
                        last = serde_json::from_str(data).unwrap();
                    }
                    text = rest.to_owned();
                    if last["layers"].is_object() && condition(&last) {
                        return;
                    }
                }
            }
        });
        assert!(found.await.is_ok(), "{what}: {last:#}");
        last
    }

    async fn switch(&self, change: Value) {
        let (status, text) = self.post(&self.url, change).await;
        assert_eq!(status, StatusCode::NO_CONTENT, "{text}");
    }

    async fn post(&self, origin: &str, change: Value) -> (StatusCode, String) {
        let request = Request::post(format!("{}/switch", self.url))
            .header("origin", origin)
            .header("content-type", "application/json");
        let response = send(request, change.to_string()).await;
        (response.status(), text(response).await)
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_default()
}

fn allowed_by(source: &'static str) -> impl Fn(&Value) -> f64 {
    move |state| {
        let counts = state["decisions"].as_array().unwrap();
        let counts = counts.iter().filter(|count| count["source"] == source);
        counts.map(|count| number(&count["allowed"])).sum()
    }
}

#[tokio::test]
async fn the_page_loads_nothing_from_elsewhere() {
    let page = Page::open(&[]);
    let response = get(page.url.clone()).await;
    let policy = response.headers()["content-security-policy"]
        .to_str()
        .unwrap();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    let html = text(response).await;
    assert!(html.contains("new EventSource(\"/events\")"));
    // The names of XML namespaces are no requests.
    let html = html.replace("http://www.w3.org/2000/svg", "");
    assert!(!html.contains("http://") && !html.contains("https://") && !html.contains("@import"));
}

#[tokio::test]
async fn traffic_moves_the_charts_and_each_layer_can_be_switched_off() {
    let page = Page::open(&[]);
    let state = page
        .until(
            "all lanes have traffic, and the trigger is learned",
            |state| {
                number(&state["layers"]["p99"]) > 0.0
                    && number(&state["unhedged"]["p99"]) > 0.0
                    && number(&state["bare"]["p99"]) > 0.0
                    && number(&state["attempts"]["retries"]) > 0.0
                    && number(&state["attempts"]["hedge_wins"]) > 0.0
                    && number(&state["triggers"][0]["ms"]) > 0.0
            },
        )
        .await;
    assert_eq!(
        state["modes"],
        json!({ "limit": "on", "retry": "on", "hedge": "on" })
    );
    assert_eq!(
        (&state["circuit"], &state["backend"]),
        (&json!("closed"), &json!("memory"))
    );
    assert!(allowed_by("Backend")(&state) > 0.0);
    let count = &state["decisions"][0];
    assert_eq!(count["policy"], "per-client");
    // The budget pays for 20 % and 10 per second, which is a third of these 35 requests per second.
    page.until("retries and hedges are extra load", |state| {
        let extra = number(&state["extra_load"]);
        state["budget_ratio"] == 0.2 && extra > 0.0 && extra < 1.0
    })
    .await;

    page.until("one client exceeds its limit", |state| {
        number(&state["layers"]["rejected"]) > 0.0
    })
    .await;
    page.switch(json!({ "limit": "off" })).await;
    page.until("only the lane with a limit of its own rejects", |state| {
        state["modes"]["limit"] == "off"
            && state["layers"]["rejected"] == 0.0
            && number(&state["unhedged"]["rejected"]) > 0.0
            && number(&state["layers"]["requests"]) > 0.0
    })
    .await;
    page.switch(json!({ "hedge": "shadow" })).await;
    page.switch(json!({ "retry": "off" })).await;
    page.until("only first attempts are sent, and failures show", |state| {
        state["modes"] == json!({ "limit": "off", "retry": "off", "hedge": "shadow" })
            && state["attempts"]["retries"] == 0.0
            && state["attempts"]["hedges"] == 0.0
            && number(&state["layers"]["success"]) < 1.0
    })
    .await;

    let metrics = text(get(format!("{}/metrics", page.url)).await).await;
    for name in [
        "retry_attempts_total",
        "hedge_attempts_total",
        "ratelimit_requests_total",
    ] {
        assert!(
            metrics.contains(&format!("{name}{{name=\"gateway\"")),
            "{metrics}"
        );
    }
}

#[tokio::test]
async fn the_page_shows_the_effect_of_hedges_on_latency_and_of_retries_on_success() {
    let _alone = MACHINE.write().await;
    let traffic = ["--traffic", "70", "--limit", "1000", "--burst", "1000"];
    let page = Page::open_only(&[&traffic[..], &["--profile", "tail"]].concat());
    let p99 = |state: &Value| {
        (
            number(&state["layers"]["p99"]),
            number(&state["unhedged"]["p99"]),
        )
    };
    page.until("hedges cut the tail", |state| {
        let (with, without) = p99(state);
        with > 0.0 && with * 1.3 < without
    })
    .await;
    page.switch(json!({ "hedge": "off" })).await;
    page.until("without hedges the tail is back", |state| {
        let (with, without) = p99(state);
        with > 115.0 && without > 115.0
    })
    .await;
    drop(page);

    let page = Page::open_only(&traffic);
    let success = |state: &Value, lane| number(&state[lane]["success"]);
    page.until("retries hide the failures", |state| {
        success(state, "layers") >= 1.0
            && success(state, "unhedged") >= 1.0
            && success(state, "bare") < 0.98
    })
    .await;
    page.switch(json!({ "retry": "off" })).await;
    page.until(
        "only the lane with retries of its own hides them",
        |state| success(state, "layers") < 0.98 && success(state, "unhedged") >= 1.0,
    )
    .await;
}

#[tokio::test]
async fn the_hedge_learns_a_delay_for_each_path_on_request() {
    // Otherwise the wait for a processor would be most of each latency.
    let _alone = MACHINE.write().await;
    let page = Page::open_only(&["--traffic", "130", "--profile", "tail", "--hedge-per-path"]);
    let delay = |state: &Value, key: &str| {
        let triggers = state["triggers"].as_array().unwrap();
        let trigger = triggers.iter().find(|trigger| trigger["key"] == key);
        trigger.map_or(0.0, |trigger| number(&trigger["ms"]))
    };
    let state = page
        .until("the slow path has the longer delay", |state| {
            let (fast, slow) = (delay(state, "/"), delay(state, "/report"));
            fast > 0.0 && slow > 45.0 && fast < slow
        })
        .await;
    assert_eq!(state["triggers"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn layers_that_start_off_can_be_switched_on_and_bare_has_no_layers_to_switch() {
    let page = Page::open(&["--layers", "limit", "--fleet", "3"]);
    let state = page
        .until("failures show", |state| {
            number(&state["layers"]["success"]) < 1.0 && number(&state["layers"]["requests"]) > 0.0
        })
        .await;
    assert_eq!(
        state["modes"],
        json!({ "limit": "on", "retry": "off", "hedge": "off" })
    );
    assert_eq!(state["fleet"], 3);
    assert_eq!(state["limit"], json!({ "per_second": 10, "burst": 10 }));
    assert_eq!(state["lease_ms"], Value::Null);
    page.switch(json!({ "retry": "on" })).await;
    page.until("the failures are retried", |state| {
        state["modes"]["retry"] == "on" && number(&state["attempts"]["retries"]) > 0.0
    })
    .await;

    let page = Page::open(&["--bare"]);
    let state = page
        .until("requests pass", |state| {
            number(&state["layers"]["requests"]) > 0.0
        })
        .await;
    assert_eq!(
        (&state["modes"], &state["circuit"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(state["unhedged"]["requests"], 0.0);
    for layer in ["limit", "retry", "hedge"] {
        let (status, text) = page.post(&page.url, json!({ layer: "on" })).await;
        assert_eq!(status, StatusCode::CONFLICT, "{text}");
        assert_eq!(text, "start the gateway without --bare to use the layers\n");
    }
}

#[tokio::test]
async fn the_circuit_is_that_of_the_limit_layer_in_use() {
    let page = Page::open(&["--backend", "redis"]);
    page.until("Redis decides", |state| allowed_by("Backend")(state) > 0.0)
        .await;
    page.switch(json!({ "redis": "freeze" })).await;
    page.until("the enforcing layer opens its circuit", |state| {
        state["circuit"] == "open"
    })
    .await;
    page.switch(json!({ "limit": "off" })).await;
    page.until("no layer uses a circuit", |state| {
        state["modes"]["limit"] == "off" && state["circuit"].is_null()
    })
    .await;
    page.switch(json!({ "redis": "restart" })).await;
    let state = page
        .until("Redis runs", |state| state["redis"] == "running")
        .await;
    let before = allowed_by("Backend")(&state);
    // The enforcing layer gets no request that could close its circuit.
    page.switch(json!({ "limit": "shadow" })).await;
    page.until("Redis decides for the counting layer", |state| {
        state["circuit"] == "closed" && allowed_by("Backend")(state) > before
    })
    .await;
    page.switch(json!({ "limit": "on" })).await;
    page.until("a probe closes the first circuit", |state| {
        state["modes"]["limit"] == "on" && state["circuit"] == "closed"
    })
    .await;
}

#[tokio::test]
async fn each_fault_of_the_upstream_shows_in_the_requests_without_layers() {
    let page = Page::open(&["--profile", "tail"]);
    page.until("the profile never fails", |state| {
        state["bare"]["success"] == 1.0
    })
    .await;
    for fault in ["unavailable", "resets"] {
        page.switch(json!({ "fault": { "fault": fault, "on": true } }))
            .await;
        page.until(fault, |state| number(&state["bare"]["success"]) < 1.0)
            .await;
        page.switch(json!({ "fault": { "fault": fault, "on": false } }))
            .await;
        page.until("the fault ends", |state| {
            state["faults"] == json!([]) && state["bare"]["success"] == 1.0
        })
        .await;
    }
    page.switch(json!({ "fault": { "fault": "slow-replica", "on": true } }))
        .await;
    page.until("slow-replica", |state| {
        number(&state["bare"]["p95"]) > 900.0
    })
    .await;
    page.switch(json!({ "fault": { "fault": "slow-replica", "on": false } }))
        .await;
    page.switch(json!({ "fault": { "fault": "stalls", "on": true } }))
        .await;
    // The attempt without layers ends at the deadline of 5 s, as a 504.
    page.until("stalls", |state| number(&state["bare"]["success"]) < 1.0)
        .await;
}

#[tokio::test]
async fn the_gateway_decides_locally_while_its_redis_server_is_killed_or_frozen() {
    let page = Page::open(&["--backend", "redis"]);
    page.until("Redis decides", |state| allowed_by("Backend")(state) > 0.0)
        .await;
    for (action, name) in [("freeze", "frozen"), ("kill", "stopped")] {
        page.switch(json!({ "redis": action })).await;
        page.until(name, |state| {
            state["redis"] == name && state["circuit"] == "open"
        })
        .await;
        page.switch(json!({ "redis": "restart" })).await;
        page.until("Redis decides again", |state| {
            state["redis"] == "running" && state["circuit"] == "closed"
        })
        .await;
    }
    page.until("the source is local", |state| {
        allowed_by("Local")(state) > 0.0
    })
    .await;
}

#[tokio::test]
async fn switches_accept_requests_of_the_page_only() {
    let page = Page::open(&[]);
    let off = json!({ "hedge": "off" });
    let (status, body) = page.post("http://evil.example", off.clone()).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert_eq!(body, "only this page may use its switches\n");
    // Without an origin.
    let request =
        Request::post(format!("{}/switch", page.url)).header("content-type", "application/json");
    assert_eq!(
        send(request, off.to_string()).await.status(),
        StatusCode::FORBIDDEN
    );
    // A form of another site has another content type.
    let request = Request::post(format!("{}/switch", page.url)).header("origin", &page.url);
    assert_eq!(
        send(request, off.to_string()).await.status(),
        StatusCode::UNSUPPORTED_MEDIA_TYPE
    );
    // A site that points its own name at this machine.
    let request = Request::get(&page.url).header("host", "evil.example");
    let response = send(request, "").await;
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    let body = text(response).await;
    assert_eq!(body, "open this page by its IP address or as localhost\n");
    let (status, text) = page.post(&page.url, json!({ "hedge": "sideways" })).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{text}");
    let (status, text) = page.post(&page.url, json!({ "redis": "kill" })).await;
    assert_eq!(status, StatusCode::CONFLICT);
    let says = "start the gateway with --backend redis, without a URL\n";
    assert_eq!(text, says);
    let state = page.until("any state", |_| true).await;
    assert_eq!(state["modes"]["hedge"], "on");
}

#[tokio::test]
async fn the_faults_are_those_of_the_built_in_upstream_only() {
    let upstream = format!("http://{}", unused_addr());
    let page = Page::open_only(&["--upstream", &upstream]);
    let fault = json!({ "fault": { "fault": "slow-replica", "on": true } });
    let (status, text) = page.post(&page.url, fault).await;
    assert_eq!(status, StatusCode::CONFLICT, "{text}");
    assert_eq!(text, "the gateway forwards to your own upstream\n");
}

#[tokio::test]
async fn a_page_that_others_can_reach_is_a_warning_and_a_busy_address_is_no_failure() {
    let mut open = Gateway::logged_with_page("0.0.0.0:0");
    let line = open.log_line().await;
    assert!(
        line.starts_with("gateway: warning: everyone who reaches 0.0.0.0:")
            && line.ends_with(" can see the traffic and switch the layers off"),
        "{line}"
    );

    let busy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut gateway = Gateway::logged_with_page(&busy.local_addr().unwrap().to_string());
    let line = gateway.log_line().await;
    assert!(
        line.starts_with("gateway: no live page: cannot listen on")
            && line.ends_with("; --admin chooses another address, or off"),
        "{line}"
    );
    assert_eq!(
        get(format!("http://{}/", gateway.addr)).await.status(),
        StatusCode::OK
    );
}
