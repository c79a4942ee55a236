//! Every fault of a server under load: the latency of decisions, their source, and the log. The tests print the table
//! in the docs of `Redis`:
//!
//! ```console
//! $ cargo test -p tests --test redis -- --nocapture --test-threads 1 under_load cluster sentinel
//! ```

mod fault;
mod lab;
mod lines;
mod load;
mod report;

use std::time::Duration;

use tests::servers::Proxy;
use tokio::time::{Instant, sleep};
use tower_dist_ratelimit::{Limiter, Policy, Quota};
use tower_dist_ratelimit_redis::Redis;
use tracing::Level;

use self::{
    fault::{FAULTS, Fault, Who},
    lab::Lab,
    load::Sample,
};
pub(crate) use self::{load::Load, report::Report};
use crate::support::LONG;

/// The timeout of a decision, unless a test sets another.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(50);

/// The duration of a fault.
pub(crate) const LASTS: Duration = Duration::from_secs(1);

/// The duration of load before a fault, and after the backend has recovered.
pub(crate) const CALM: Duration = Duration::from_millis(300);

/// The longest pause of the circuit breaker, the longest pause between connection attempts, and the delays of a busy
/// machine. A stopped machine restarts it.
const BACK: Duration = Duration::from_secs(5);

/// The number of decisions that is enough to name their source.
const ENOUGH: usize = 100;

/// More tokens than a test uses, which do not refill.
pub(crate) const PLENTY: u64 = 1_000_000;

/// The tokens that a key without load used before the fault.
const USED: u64 = 1_234;

#[tokio::test]
async fn during_every_fault_of_a_server_no_decision_takes_longer_than_the_timeout() {
    println!("{}", Report::HEAD);
    for fault in &FAULTS {
        let (report, pinged) = under_load(fault).await;
        println!("{report}");
        report.check(fault, pinged);
    }
}

/// Runs a fault against a server under load, and waits for recovery. Also returns the latency of another client's first
/// answer after the fault.
async fn under_load(fault: &Fault) -> (Report, Duration) {
    let mut lab = blocking(Lab::start).await;
    let port = lab.server.port();
    let proxy = Proxy::start(port).await;
    let port = if fault.far { proxy.port() } else { port };
    lab.proxy = Some(proxy);
    let redis = Redis::builder(&format!("redis://127.0.0.1:{port}"));
    let redis = redis.answer_timeout(10 * fault.timeout());
    let redis = redis.connect().await.unwrap();
    let limiter = |timeout| {
        let quota = Quota::new(PLENTY, Duration::from_secs(3600));
        let policy = Policy::new("p", quota).fixed_window_from_first_request();
        let limiter = Limiter::builder(redis.clone(), policy);
        limiter.backend_timeout(timeout).build().unwrap()
    };
    // A second limiter without load, with a long timeout, so that the backend itself always decides.
    let witness = limiter(LONG);
    witness.check_n("witness", USED).await.unwrap();

    let (started, load) = (Instant::now(), Load::start(limiter(fault.timeout())));
    // A stopped machine makes no decisions.
    while started.elapsed() < CALM || load.decided_since(started) <= ENOUGH {
        sleep(Duration::from_millis(10)).await;
    }
    let began = Instant::now();
    let begin = fault.begin;
    let mut lab = on(lab, begin).await;
    let begun = Instant::now();
    let enough = || fault.decides != Who::Process || load.decided_since(begun) > ENOUGH;
    while begun.elapsed() < fault.lasts || !enough() {
        lab = on(lab, fault.meanwhile).await;
        sleep(Duration::from_millis(20)).await;
    }
    let ending = Instant::now();
    let mut lab = on(lab, fault.end).await;
    let (ended, mut pinged) = (Instant::now(), Duration::ZERO);
    while !load.is_calm(ended) {
        assert!(
            ended.elapsed() < LONG,
            "{}: decisions are not the store's again",
            fault.name
        );
        let asked = Instant::now();
        lab = on(lab, Lab::ping).await;
        pinged = pinged.max(asked.elapsed());
        sleep(Duration::from_millis(10)).await;
    }
    let load = load.stop().await;
    let left = witness.peek("witness").await.unwrap().remaining;
    drop(lab);
    let report = Report {
        name: fault.name,
        began,
        begun,
        ending,
        ended,
        load,
        forgot: left == PLENTY,
    };
    (report, pinged)
}

impl Report {
    fn check(&self, fault: &Fault, pinged: Duration) {
        let name = fault.name;
        let samples = &self.load.samples;
        assert!(samples.len() > 2 * ENOUGH, "{name}: there was no load");
        self.is_in_time(fault.timeout());
        let whole = |sample: &&Sample| sample.started >= self.begun && sample.ended < self.ending;
        let within = || samples.iter().filter(whole);
        match fault.decides {
            Who::Store => assert!(samples.iter().all(Sample::is_by_store), "{name}"),
            Who::Process => {
                assert!(within().count() > ENOUGH, "{name}: it did not last");
                // A decision beyond the timeout was delayed by the machine.
                let mut asked = within().filter(|one| one.took() < TIMEOUT);
                assert!(!asked.any(Sample::is_by_store), "{name}");
            }
            Who::Either => {}
        }
        let disturbed = self.is_disturbed() || pinged > TIMEOUT / 3;
        // A machine that stops for as long as a fault causes another change of source, which is also logged.
        let changes = match fault.decides {
            Who::Store => 0,
            Who::Process | Who::Either if disturbed => self.load.lines.len() / 2,
            Who::Process | Who::Either => 1,
        };
        let lines = [Level::WARN, Level::INFO].repeat(changes);
        assert_eq!(self.load.lines, lines, "{name}");
        self.is_back_in_time();
        assert_eq!(self.forgot, fault.forgets, "{name}");
    }
}

/// Runs blocking work on another thread, so that the load keeps this one.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

async fn on(mut lab: Lab, work: fn(&mut Lab)) -> Lab {
    blocking(move || {
        work(&mut lab);
        lab
    })
    .await
}
