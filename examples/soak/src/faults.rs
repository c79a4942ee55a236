//! The faults, one after another, in rounds.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use tests::servers::{Memcached, Redis, Sentinels};
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep, sleep_until};
use tower::BoxError;

use crate::upstream::{self, Upstream};

/// The duration of a fault, and the time until the next one. A failover may take longer.
const ON: Duration = Duration::from_secs(4);
const OFF: Duration = Duration::from_secs(7);
/// Time without faults at the end of a round. The resources are compared in its second half.
pub(crate) const CALM: Duration = Duration::from_secs(12);

/// A fault.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Upstream(upstream::Fault),
    /// The backends keep their connections and answer nothing.
    Freeze,
    /// The backends end, and start again without their data.
    Kill,
    /// The primary freezes until the sentinels have promoted its replica.
    Failover,
    /// The clocks of the gateways go ahead by an hour, or back.
    Clock {
        ahead: bool,
    },
}

const ROUND: [Fault; 8] = [
    Fault::Upstream(upstream::Fault::Unavailable),
    Fault::Freeze,
    Fault::Upstream(upstream::Fault::Resets),
    Fault::Kill,
    Fault::Upstream(upstream::Fault::Stalls),
    Fault::Failover,
    Fault::Clock { ahead: true },
    Fault::Clock { ahead: false },
];

/// The duration of a round.
pub(crate) fn round() -> Duration {
    ROUND.map(|_| ON + OFF).iter().sum::<Duration>() + CALM
}

/// The backends.
#[derive(Debug)]
pub(crate) struct Backends {
    pub(crate) redis: Redis,
    pub(crate) memcached: Memcached,
    pub(crate) sentinels: Sentinels,
    /// The clock of the gateways: libfaketime reads the offset from a file.
    clock: TempDir,
}

/// The events of a run.
#[derive(Debug, Default)]
pub(crate) struct Events {
    pub(crate) failovers: u64,
    /// The times at which the clocks jumped.
    pub(crate) jumps: Vec<Duration>,
    /// The starts of the times without faults.
    pub(crate) calm: Vec<Duration>,
}

impl Backends {
    pub(crate) fn start() -> Result<Self, BoxError> {
        let backends = Self {
            redis: Redis::start(),
            memcached: Memcached::with(&["-m", "1024"]),
            sentinels: Sentinels::start(),
            clock: TempDir::new()?,
        };
        fs::write(backends.clock_file(), "+0")?;
        Ok(backends)
    }

    pub(crate) fn clock_file(&self) -> PathBuf {
        self.clock.path().join("offset")
    }

    /// Plays rounds of faults, and then ends them all.
    pub(crate) async fn play(
        &mut self,
        rounds: u32,
        upstream: &Upstream,
        start: Instant,
    ) -> Result<Events, BoxError> {
        let mut events = Events::default();
        let mut due = start;
        for round in 1..=rounds {
            for fault in ROUND {
                eprintln!("soak: round {round} of {rounds}, {fault:?}");
                self.strike(fault, upstream, &mut events, start).await?;
                due += ON + OFF;
                sleep_until(due).await;
            }
            events.calm.push(start.elapsed() + CALM / 2);
            due += CALM;
            sleep_until(due).await;
        }
        Ok(events)
    }

    async fn strike(
        &mut self,
        fault: Fault,
        upstream: &Upstream,
        events: &mut Events,
        start: Instant,
    ) -> Result<(), BoxError> {
        match fault {
            Fault::Upstream(fault) => {
                upstream.set(fault);
                sleep(ON).await;
                upstream.set(upstream::Fault::None);
            }
            Fault::Freeze => {
                block_in_place(|| (self.redis.freeze(), self.memcached.freeze()));
                sleep(ON).await;
                block_in_place(|| (self.redis.thaw(), self.memcached.thaw()));
            }
            Fault::Kill => {
                block_in_place(|| (self.redis.kill(), self.memcached.kill()));
                sleep(ON).await;
                block_in_place(|| (self.redis.restart(), self.memcached.restart()));
            }
            Fault::Failover => {
                let old = block_in_place(|| self.sentinels.primary());
                let mut servers = self.sentinels.servers_mut().iter();
                let primary = servers.position(|server| server.port() == old);
                let primary = primary.ok_or("the sentinels know no primary")?;
                block_in_place(|| self.sentinels.servers_mut()[primary].freeze());
                let frozen = Instant::now();
                sleep(ON).await;
                let promoted = loop {
                    let promoted = block_in_place(|| self.sentinels.primary()) != old;
                    if promoted || frozen.elapsed() > ON + OFF / 2 {
                        break promoted;
                    }
                    sleep(Duration::from_millis(100)).await;
                };
                block_in_place(|| self.sentinels.servers_mut()[primary].thaw());
                events.failovers += u64::from(promoted);
            }
            Fault::Clock { ahead } => {
                events.jumps.push(start.elapsed());
                // Renamed, so that a gateway never reads half of it.
                let file = self.clock_file();
                let next = file.with_extension("next");
                fs::write(&next, if ahead { "+3600" } else { "+0" })?;
                fs::rename(next, file)?;
                sleep(ON).await;
            }
        }
        Ok(())
    }
}
