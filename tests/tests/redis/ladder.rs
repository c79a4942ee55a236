//! Each thing that can go wrong with a server, while requests keep coming: how long decisions take then, who makes them,
//! and what the log says. The table in the docs of `Redis` is what this prints:
//!
//! ```console
//! $ cargo test -p tests --test redis -- --nocapture --test-threads 1 ladder cluster sentinel
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

/// What a decision waits for at most, unless something else is set.
pub(crate) const DEADLINE: Duration = Duration::from_millis(50);

/// How long a fault lasts.
pub(crate) const LASTS: Duration = Duration::from_secs(1);

/// How long there is load before a fault, and after decisions are the store's again.
pub(crate) const CALM: Duration = Duration::from_millis(300);

/// The longest pause before the store is asked again, the longest before it is connected to again, and what a busy machine
/// adds to those. From anew, when the machine has stood still.
const BACK: Duration = Duration::from_secs(5);

/// How many decisions tell who makes them.
const ENOUGH: usize = 100;

/// So many that nobody is refused, of which none comes back.
pub(crate) const PLENTY: u64 = 1_000_000;

/// What a key has used before the fault that gets no load.
const USED: u64 = 1_234;

#[tokio::test]
async fn whatever_happens_to_a_server_under_load_nothing_waits_longer_than_the_deadline() {
    println!("{}", Report::HEAD);
    for fault in &FAULTS {
        let (report, pinged) = under_load(fault).await;
        println!("{report}");
        report.check(fault, pinged);
    }
}

/// Lets a fault happen to a server under load, and come right again. With it, how long a server that has nothing wrong with
/// it any more has taken to answer somebody else.
async fn under_load(fault: &Fault) -> (Report, Duration) {
    let mut lab = blocking(Lab::start).await;
    let port = lab.server.port();
    let proxy = Proxy::start(port).await;
    let port = if fault.far { proxy.port() } else { port };
    lab.proxy = Some(proxy);
    let redis = Redis::builder(&format!("redis://127.0.0.1:{port}"));
    let redis = redis.answer_timeout(10 * fault.deadline());
    let redis = redis.connect().await.unwrap();
    let limiter = |deadline| {
        let quota = Quota::new(PLENTY, Duration::from_secs(3600));
        let policy = Policy::new("p", quota).fixed_window_from_first_request();
        let limiter = Limiter::builder(redis.clone(), policy);
        limiter.backend_timeout(deadline).build().unwrap()
    };
    // Asked in peace, and never by this process instead.
    let witness = limiter(LONG);
    witness.check_n("witness", USED).await.unwrap();

    let (started, load) = (Instant::now(), Load::start(limiter(fault.deadline())));
    // A machine that stands still makes no decisions, neither here nor later.
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
        self.is_in_time(fault.deadline());
        let whole = |sample: &&Sample| sample.started >= self.begun && sample.ended < self.ending;
        let within = || samples.iter().filter(whole);
        match fault.decides {
            Who::Store => assert!(samples.iter().all(Sample::is_by_store), "{name}"),
            Who::Process => {
                assert!(within().count() > ENOUGH, "{name}: it did not last");
                // One that was later than the deadline was the machine's fault, or it would not have been waited for.
                let mut asked = within().filter(|one| one.took() < DEADLINE);
                assert!(!asked.any(Sample::is_by_store), "{name}");
            }
            Who::Either => {}
        }
        let disturbed = self.is_disturbed() || pinged > DEADLINE / 3;
        // A machine that stands still for so long is one more fault, and one more that is told.
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

/// Does something that blocks, and leaves this thread to the load.
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
