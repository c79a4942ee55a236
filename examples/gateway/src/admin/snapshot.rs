//! The state of the gateway as JSON, once a tick.

use std::collections::VecDeque;
use std::sync::Arc;

use hdrhistogram::Histogram;
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tower_jitter_retry::Mode;

use super::TICK;
use super::board::{Board, Lane, Taken, histogram};
use super::switches::{Setting, Switches};

/// Ticks that a percentile covers: ten seconds.
const WINDOW: usize = 20;

/// Publishes snapshots until the page's server ends.
pub(super) async fn publish(
    sender: watch::Sender<Arc<str>>,
    board: Arc<Board>,
    switches: Arc<Switches>,
    metrics: PrometheusHandle,
) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut layers, mut unhedged, mut bare) = <(Chart, Chart, Chart)>::default();
    let mut before = (0, 0, 0);
    while !sender.is_closed() {
        ticks.tick().await;
        // The exporter's histograms grow until they are drained.
        metrics.run_upkeep();
        let (retry, hedge) = (switches.retry.counts(), switches.hedge.counts());
        let now = (retry.retries, hedge.hedges, hedge.hedge_wins);
        let layers = layers.next(&board.layers);
        let extra = per_second(now.0 + now.1 - before.0 - before.1);
        let delays = switches.hedge.delays_by_key();
        let delays = delays
            .into_iter()
            .map(|(key, delay)| (key.to_string(), delay));
        let shared = match delays.len() {
            0 => Some(("all requests".to_owned(), switches.hedge.delay())),
            _ => None,
        };
        let delays = delays.chain(shared);
        let limit = match switches.bare {
            true => Mode::Off,
            false => switches.limit.get(),
        };
        let redis = match &switches.redis {
            Some(redis) => Some(redis.lock().await.state()),
            None => None,
        };
        let snapshot = json!({
            "attempts": {
                "first": layers["forwarded"],
                "retries": per_second(now.0 - before.0),
                "hedges": per_second(now.1 - before.1),
                "hedge_wins": per_second(now.2 - before.2),
            },
            "extra_load": ratio(extra, layers["forwarded"].as_f64().unwrap_or(0.0)),
            "layers": layers,
            "unhedged": unhedged.next(&board.unhedged),
            "bare": bare.next(&board.bare),
            "budget": switches.retry.budget().available(),
            "budget_ratio": switches.retry.budget().share(),
            "quantile": switches.hedge.quantile(),
            "triggers": delays.map(|(key, delay)| json!({
                "key": key, "ms": delay.map(|delay| delay.as_secs_f64() * 1e3),
            })).collect::<Vec<_>>(),
            "decisions": board.decisions().into_iter().map(|count| json!({
                "policy": count.policy, "source": format!("{:?}", count.source),
                "allowed": count.allowed, "rejected": count.rejected,
            })).collect::<Vec<_>>(),
            // No request uses the circuit of the other limit layer, so its state is out of date.
            "circuit": board.circuit_is_open(limit).map(|is_open| if is_open { "open" } else { "closed" }),
            "modes": (!switches.bare).then(|| json!({
                "limit": Setting::from(limit),
                "retry": Setting::from(switches.retry.mode()),
                "hedge": Setting::from(switches.hedge.mode()),
            })),
            "faults": switches.faults.as_ref().map(|faults| faults.active()),
            "redis": redis,
            "backend": switches.backend,
            "fleet": switches.stack.fleet,
            "limit": { "per_second": switches.stack.limit, "burst": switches.stack.burst },
            "lease_ms": switches.stack.lease.map(|lease| lease.as_secs_f64() * 1e3),
        });
        before = now;
        sender.send_replace(snapshot.to_string().into());
    }
}

/// The recent past of a lane.
#[derive(Default)]
struct Chart {
    window: VecDeque<Histogram<u64>>,
    requests: u64,
    rejected: u64,
    failed: u64,
}

impl Chart {
    fn next(&mut self, lane: &Lane) -> Value {
        let Taken {
            requests,
            rejected,
            failed,
            latency,
        } = lane.take();
        self.window.push_back(latency);
        if self.window.len() > WINDOW {
            self.window.pop_front();
        }
        let mut recent = histogram();
        for latency in &self.window {
            recent += latency;
        }
        let (new, new_rejected) = (requests - self.requests, rejected - self.rejected);
        let forwarded = new.saturating_sub(new_rejected);
        let succeeded = forwarded.saturating_sub(failed - self.failed);
        (self.requests, self.rejected, self.failed) = (requests, rejected, failed);
        let ms = |quantile| {
            (!recent.is_empty()).then(|| recent.value_at_quantile(quantile) as f64 / 1e3)
        };
        json!({
            "requests": per_second(new),
            "forwarded": per_second(forwarded),
            "rejected": per_second(new_rejected),
            "success": ratio(succeeded as f64, forwarded as f64),
            "p50": ms(0.5), "p95": ms(0.95), "p99": ms(0.99),
        })
    }
}

fn per_second(count: u64) -> f64 {
    count as f64 / TICK.as_secs_f64()
}

/// `None` without requests.
fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}
