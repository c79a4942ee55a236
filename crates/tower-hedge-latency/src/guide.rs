//! How hedging works: the percentile that triggers a hedge, the budget, and the race of the attempts.
//!
#![doc = include_str!("../docs/tail.svg")]
//!
//! The repository's `figures` draws this graph with the layers of this crate.
//!
//! # Which percentile
//!
//! A hedge helps if a second attempt would answer sooner. If both attempts share the cause of the delay, a hedge only
//! adds load. [`spread`](crate::HedgeLayerBuilder::spread) and [`alternates`](crate::HedgeLayerBuilder::alternates)
//! send hedges to other endpoints.
//!
//! A percentile can be too high. In the figure 3 % of the responses take 115 ms and the others 15 ms. The 95th
//! percentile lies right above 15 ms, and a hedged call takes about 30 ms. The 99th lies at 115 ms, so its hedges come
//! too late. Choose 1 − q above the share of the slow responses.
//!
//! If fewer than 2 % of 200 hedges win, the layer halves the share of due hedges that it sends, down to 1 in 100. It
//! sends more when hedges win again.
//!
//! # How a percentile is learned
//!
//! - The layer records the time in flight of the *first* attempt, if it succeeded or was past the trigger. If a hedge
//!   overtook the attempt, the attempt's latency is only known to be longer. The layer then uses Kaplan and Meier's
//!   estimate, so hedges do not bias the trigger. In most of this crate's tests the hedged share is within a tenth of 1
//!   − q.
//! - The layer ignores a call that fails, or that its caller drops, before the trigger.
//! - If more than 1 − q of the first attempts never end, the trigger rises slowly, up to
//!   [`max_delay`](crate::HedgeLayerBuilder::max_delay).
//! - The percentile may fall into a cluster: more than a quarter of the calls, which take the same time to within about
//!   1/32. Then the trigger lies right after the cluster, and fewer calls are hedged. In a smaller cluster, such as a
//!   common timeout, all or none of the calls may be late. Then the budget is the bound.
//! - Samples cover the current [`window`](crate::HedgeLayerBuilder::window), by default of at least 10 s, and the
//!   previous one. With the defaults and more than about 4,000 calls per second, the layer records only some calls, at
//!   least 1 in 16.
//! - The first trigger needs `max(100, 10 ÷ (1 − q))` calls. Until then hedges are sent after
//!   [`initial_delay`](crate::HedgeLayerBuilder::initial_delay), or not at all if it is not set.
//! - In this crate's tests, the trigger follows a threefold slowdown within 20 s. It takes longer if hedges answer
//!   immediately, or if few calls fill a window.
//! - [`key`](crate::HedgeLayerBuilder::key) learns a percentile for each class of requests.
//!
//! # Which budget
//!
//! A percentile bounds the extra load while latencies are stable. A [`Budget`](crate::Budget) bounds it also when a
//! service suddenly slows down. The default is 1 − q of the eligible calls that succeed, with 10 tokens at first and a
//! burst of 100.
//!
//! With `Budget::ratio(0.02)` the default percentile rises to the 98th, so that the slowest calls receive the tokens.
//! An explicit percentile that an explicit ratio cannot pay for is an error of `build`. Other triggers have no budget
//! by default.
//!
//! A retry layer above and this layer draw on one budget: the retry layer takes it with `.budget(b.clone())`, the hedge
//! layer with [`shared_budget(b)`](crate::HedgeLayerBuilder::shared_budget).
//!
//! # The race
//!
//! - The first *good* response wins. Retryable failures, such as the statuses 408, 425, 429, 500, 502, 503 and 504, do
//!   not win while another attempt is in flight. If all attempts fail that way, the caller receives the first attempt's
//!   outcome.
//! - A failure that is not retryable ends the race, and the caller receives it.
//! - A tie goes to the oldest attempt. Only the response head is classified.
//! - A failure before any hedge is returned immediately, because retries belong to a retry layer. With
//!   [`hedge_on_failure`](crate::HedgeLayerBuilder::hedge_on_failure) the next hedge follows a retryable failure
//!   immediately, unless the server demands a wait.
//! - A hedge waits until its service is ready. It is not sent if the budget has no token.
//! - Losers are dropped when the winner is known. Over HTTP/1 that closes a connection, over HTTP/2 it resets a stream.
//!   With the setting `drain` they end in the background. Drain losers above a balancer by latency (`PeakEwma`),
//!   because dropped losers make a slow endpoint look fast.
//! - By default, HTTP hedges only safe methods: the second of two DELETEs answers 404 and may win.
//!   [`hedge_unsafe_if`](crate::HedgeLayerBuilder::hedge_unsafe_if) adds requests, and
//!   [`hedge_if`](crate::HedgeLayerBuilder::hedge_if) restricts both kinds. gRPC hedges only methods declared
//!   idempotent.
//! - Over HTTP and gRPC, a hedge is not hedged again. Layers below read the [`Attempt`](crate::Attempt) in its
//!   extensions, other servers the header `x-hedge-attempt`.
//! - No hedge is sent at a request's [deadline](crate::HedgeOverride::deadline) or later.
//! - A streaming body is recorded up to [`replay_limit`](crate::HedgeLayerBuilder::replay_limit). Once an attempt in
//!   flight has read more, the oldest attempt in flight continues, and the bodies of the others are interrupted.
