use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use smallvec::SmallVec;
use tower_dist_ratelimit::backend::{
    BackendError, BoxFuture, JointDecision,
    toolkit::{ConnectError, Timeouts},
};

use super::{
    batch::Pending,
    call::Call,
    cluster::Cluster,
    failure::Failure,
    link::{Connect, Link},
    reply::{Words, verdict},
    sentinel::Watched,
    target::{Kind, Target},
    wire::Dialer,
    work::{How, Work},
};

/// Which server is asked.
#[derive(Clone, Debug)]
pub(super) enum Route {
    /// The only one, or the one that is primary now.
    One(Link),
    /// The one that has the slot.
    Cluster(Arc<Cluster>),
}

/// What a script says on one request, later. An enum, since a box for each answer would cost as much as waiting for it.
pub(super) enum Answers {
    One(Pending),
    Followed(BoxFuture<'static, Result<Words, Failure>>),
}

impl Future for Answers {
    type Output = Result<Words, Failure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::One(pending) => Pin::new(pending).poll(cx),
            Self::Followed(answer) => answer.as_mut().poll(cx),
        }
    }
}

/// The verdict on policies that have these limits. By hand, since every request waits for one.
pub(super) struct Deciding {
    pub(super) answers: Answers,
    pub(super) limits: SmallVec<[u64; 2]>,
}

impl Future for Deciding {
    type Output = Result<JointDecision, BackendError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let words = ready!(Pin::new(&mut self.answers).poll(cx));
        Poll::Ready(match words {
            Ok(words) => Ok(verdict(&words, &self.limits)),
            Err(failure) => Err(failure.into()),
        })
    }
}

/// How to connect to a target.
pub(super) enum Way {
    One(Connect),
    Cluster(Arc<Cluster>),
}

impl Way {
    /// `asker` connects to sentinels, `dialer` to servers.
    pub(super) fn new(
        target: Target,
        dialer: Dialer,
        asker: Dialer,
        timeouts: Timeouts,
    ) -> Result<Self, ConnectError> {
        let mut addresses = target.addresses.into_iter();
        Ok(match target.kind {
            Kind::Standalone => {
                let address = addresses.next().ok_or_else(|| {
                    ConnectError::new("the URL of a Redis server", "names no host")
                })?;
                Self::One(Arc::new(move || {
                    let (dialer, address) = (dialer.clone(), address.clone());
                    Box::pin(async move { dialer.dial(&address).await })
                }))
            }
            Kind::Sentinel(name) => {
                let watched = Watched {
                    name,
                    sentinels: addresses.collect(),
                    dialer,
                    asker,
                };
                Self::One(Arc::new(move || {
                    let watched = watched.clone();
                    Box::pin(async move { watched.dial().await })
                }))
            }
            Kind::Cluster => Self::Cluster(Cluster::new(addresses.collect(), dialer, timeouts)),
        })
    }
}

impl Route {
    /// Connects now.
    pub(super) async fn open(way: Way, timeouts: Timeouts) -> Result<Self, ConnectError> {
        Ok(match way {
            Way::One(connect) => Self::One(Link::new(connect, timeouts).await?),
            Way::Cluster(cluster) => {
                cluster.open().await?;
                Self::Cluster(cluster)
            }
        })
    }

    /// Connects in the background.
    pub(super) fn later(way: Way, timeouts: Timeouts) -> Self {
        match way {
            Way::One(connect) => Self::One(Link::later(connect, timeouts)),
            Way::Cluster(cluster) => {
                cluster.open_later();
                Self::Cluster(cluster)
            }
        }
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Sends a call, all of whose keys are in one slot of a Cluster; what it returns then is to be awaited, or dropped.
    pub(super) fn send(&self, call: Call) -> Result<Answers, Failure> {
        let slot = match self {
            Self::One(_) => 0,
            Self::Cluster(_) => call.slot(),
        };
        let how = How::Together;
        self.work(slot, Work::Decide { call, slot, how })
    }

    /// Deletes a key, in this slot.
    pub(super) fn delete(&self, key: Vec<u8>, slot: u16) -> Result<Answers, Failure> {
        let mut command = redis::cmd("DEL");
        command.arg(key);
        let how = How::Together;
        self.work(slot, Work::Command { command, how })
    }

    fn work(&self, slot: u16, work: Work) -> Result<Answers, Failure> {
        match self {
            Self::One(link) => Ok(Answers::One(link.send(work)?)),
            Self::Cluster(cluster) => cluster.send(slot, work),
        }
    }
}
