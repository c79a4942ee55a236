use std::sync::Arc;

use futures_util::{FutureExt, future::Either};
use smallvec::SmallVec;
use tower_dist_ratelimit::backend::{
    JointDecision,
    toolkit::{ConnectError, Timeouts},
};

use super::{
    batch::PendingReply,
    call::ScriptCall,
    cluster::{Cluster, Redirected},
    connection::Dialer,
    failure::Failure,
    link::{Connect, Link},
    queued_call::{Batching, QueuedCall},
    reply::verdict,
    sentinel::MonitoredPrimary,
    target::{Deployment, ServerUrl},
};

/// The way to the server that decides.
#[derive(Clone)]
pub(super) enum Route {
    /// One link: to a single server, or to the present primary under sentinels.
    One(Link),
    /// A link to each known primary. A call goes first to the recorded owner of its slot.
    Cluster(Arc<Cluster>),
}

/// The future of a script's answer to one request. Outside of a Cluster this future is not boxed, which saves an
/// allocation.
type ReplyFuture = Either<PendingReply, Redirected>;

/// How to connect to a target.
pub(super) enum Topology {
    One(Connect),
    Cluster(Arc<Cluster>),
}

impl Topology {
    /// `sentinel_dialer` has the settings for connections to sentinels, and `dialer` for connections to servers.
    pub(super) fn new(
        target: ServerUrl,
        dialer: Dialer,
        sentinel_dialer: Dialer,
        timeouts: Timeouts,
    ) -> Result<Self, ConnectError> {
        let mut addresses = target.addresses.into_iter();
        Ok(match target.kind {
            Deployment::Standalone => {
                let address = addresses.next().ok_or_else(|| {
                    ConnectError::new("the URL of a Redis server", "names no host")
                })?;
                Self::One(dialer.to(&address))
            }
            Deployment::Sentinel(name) => {
                let watched = MonitoredPrimary {
                    name,
                    sentinels: addresses.collect(),
                    dialer,
                    sentinel_dialer,
                };
                Self::One(Arc::new(move || {
                    let watched = watched.clone();
                    Box::pin(async move { watched.dial().await })
                }))
            }
            Deployment::Cluster => {
                Self::Cluster(Cluster::new(addresses.collect(), dialer, timeouts))
            }
        })
    }
}

impl Route {
    /// Connects now.
    pub(super) async fn open(topology: Topology, timeouts: Timeouts) -> Result<Self, ConnectError> {
        Ok(match topology {
            Topology::One(connect) => {
                Self::One(Link::new(Some(connect().await?), Some(connect), timeouts))
            }
            Topology::Cluster(cluster) => {
                cluster.open().await?;
                Self::Cluster(cluster)
            }
        })
    }

    /// Connects in the background.
    pub(super) fn connect_lazy(topology: Topology, timeouts: Timeouts) -> Self {
        match topology {
            Topology::One(connect) => Self::One(Link::new(None, Some(connect), timeouts)),
            Topology::Cluster(cluster) => {
                cluster.open_later();
                Self::Cluster(cluster)
            }
        }
    }

    /// Sends a call. `limits` are the limits of its policies. The returned future resolves to the decisions.
    pub(super) fn decide<E: From<Failure>>(
        &self,
        call: ScriptCall,
        limits: SmallVec<[u64; 2]>,
    ) -> Result<impl Future<Output = Result<JointDecision, E>> + Send + use<E>, Failure> {
        let answers = self.send(call)?;
        // Not an async block, because that would copy the decisions several times.
        Ok(answers.map(move |answers| Ok(verdict(&answers?, &limits))))
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Sends a call. In a Cluster, all keys of the call must be in one slot.
    pub(super) fn send(&self, call: ScriptCall) -> Result<ReplyFuture, Failure> {
        let batching = Batching::Together;
        Ok(match self {
            Self::One(link) => Either::Left(link.send(QueuedCall {
                call,
                slot: 0,
                batching,
            })?),
            Self::Cluster(cluster) => {
                let slot = call.slot();
                Either::Right(cluster.send(QueuedCall {
                    call,
                    slot,
                    batching,
                })?)
            }
        })
    }
}
