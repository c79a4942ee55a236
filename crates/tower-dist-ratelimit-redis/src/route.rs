use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use smallvec::SmallVec;
use tower_dist_ratelimit::backend::{
    JointDecision,
    toolkit::{ConnectError, Timeouts},
};

use super::{
    batch::Pending,
    call::Call,
    cluster::{Cluster, Followed},
    failure::Failure,
    link::{Connect, Link},
    reply::{Words, verdict},
    sentinel::Watched,
    target::{Kind, Target},
    wire::Dialer,
    work::{How, Work},
};

/// The server that decides.
#[derive(Clone)]
pub(super) enum Route {
    /// The only server, or the present primary.
    One(Link),
    /// The node that has the slot.
    Cluster(Arc<Cluster>),
}

/// A script's pending answer to one request. An enum, because a box for each answer would cost as much as the wait.
pub(super) enum Answers {
    One(Pending),
    Followed(Followed),
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
                Self::One(dialer.to(&address))
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
            Way::One(connect) => Self::One(Link::on(connect().await?, Some(connect), timeouts)),
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

    /// Sends a call to policies that have these limits. The future has the decision.
    pub(super) fn decide(
        &self,
        call: Call,
        limits: SmallVec<[u64; 2]>,
    ) -> Result<impl Future<Output = Result<JointDecision, Failure>> + Send + use<>, Failure> {
        let answers = self.send(call)?;
        Ok(async move { Ok(verdict(&answers.await?, &limits)) })
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Sends a call. In a Cluster all its keys are in one slot. The future has to be awaited or dropped.
    pub(super) fn send(&self, call: Call) -> Result<Answers, Failure> {
        let slot = match self {
            Self::One(_) => 0,
            Self::Cluster(_) => call.slot(),
        };
        let how = How::Together;
        let work = Work { call, slot, how };
        match self {
            Self::One(link) => Ok(Answers::One(link.send(work)?)),
            Self::Cluster(cluster) => Ok(Answers::Followed(cluster.send(work)?)),
        }
    }
}
