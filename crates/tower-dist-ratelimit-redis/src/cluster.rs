mod slots;

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak},
    time::Duration,
};

use futures_util::future::join_all;
use tokio::{sync::Notify, time::sleep};
use tower_dist_ratelimit::backend::{
    BackendError, BoxFuture,
    toolkit::{ConnectError, Timeouts, connect_within},
};
use tower_jitter_retry::{Backoff, Jitter};

use self::slots::{SLOTS, SlotOwners, slots};
use super::{
    batch::PendingReply,
    connection::{CommandSender, Dialer, refused},
    failure::Failure,
    link::Link,
    queued_call::{Batching, QueuedCall},
    reply::Replies,
    target::Address,
};

/// First and longest pause between queries for the owners of slots. While the queries fail or the link to a primary is
/// down, the pauses double up to the longest pause. Equal jitter shortens each pause by up to half.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Maximum number of times that [`Cluster::follow`] sends one call again, because its slot has moved or is moving.
const MOVES: u32 = 100;

/// A Redis Cluster: a link to each primary, and the slots of each primary.
pub(super) struct Cluster {
    dialer: Dialer,
    timeouts: Timeouts,
    seeds: Vec<Address>,
    map: RwLock<ClusterMap>,
    /// Notified when the map may be out of date, and when the `Cluster` is dropped.
    stale: Arc<Notify>,
}

/// The pending answer to one request. After a redirect, the future sends the request to the node that the redirect
/// names.
pub(super) type Redirected = BoxFuture<'static, Result<Replies, Failure>>;

#[derive(Default)]
struct ClusterMap {
    slots: SlotOwners,
    links: HashMap<Address, Link>,
    /// The error of the last query for the slots if it failed at every node, or a note that no query has ended yet.
    /// `None` after a query that succeeded.
    problem: Option<Arc<str>>,
}

impl Cluster {
    /// A Cluster without connections.
    pub(super) fn new(seeds: Vec<Address>, dialer: Dialer, timeouts: Timeouts) -> Arc<Self> {
        Arc::new(Self {
            dialer,
            timeouts,
            seeds,
            map: RwLock::new(ClusterMap {
                problem: Some("the owners of the slots are not known yet".into()),
                ..ClusterMap::default()
            }),
            stale: Arc::default(),
        })
    }

    /// Queries the nodes for the primaries, and connects to the primaries. Fails if the query fails at every node, or
    /// if no primary is connected in time. If only some primaries are connected, the backend keeps trying in the
    /// background to connect to the others, or to the replicas that replace them.
    pub(super) async fn open(self: &Arc<Self>) -> Result<(), ConnectError> {
        let slots = self.query_nodes().await?;
        self.take_over(slots);
        let links: Vec<Link> = self.read().links.values().cloned().collect();
        // Less than the caller's timeout, so that one silent primary usually does not make the whole attempt time out.
        let limit = self.timeouts.connect / 2;
        let mut answers = join_all(links.iter().map(|link| link.ready(limit))).await;
        if answers.iter().all(Result::is_err)
            && let Some(Err(failure)) = answers.pop()
        {
            return Err(ConnectError::new(
                "a Redis Cluster",
                BackendError::from(failure),
            ));
        }
        if answers.iter().any(Result::is_err) {
            self.stale.notify_one();
        }
        self.keep_fresh();
        Ok(())
    }

    /// Finds the nodes and connects to the primaries in the background, and retries if this fails.
    pub(super) fn open_later(self: &Arc<Self>) {
        self.stale.notify_one();
        self.keep_fresh();
    }

    fn keep_fresh(self: &Arc<Self>) {
        let task = keep_fresh(Arc::downgrade(self), Arc::clone(&self.stale));
        let task: BoxFuture<'static, ()> = Box::pin(task);
        tokio::spawn(task);
    }

    /// Sends a call to the owner of its slot.
    pub(super) fn send(self: &Arc<Self>, queued: QueuedCall) -> Result<Redirected, Failure> {
        let (cluster, again) = (Arc::clone(self), queued.clone());
        let owner = self.owner(queued.slot)?;
        let pending = self.send_to(&owner, queued)?;
        Ok(Box::pin(async move {
            cluster.follow(owner, pending, again).await
        }))
    }

    /// Waits for an answer. After a redirect, sends the call to the node that the redirect names. If a call in a batch
    /// gets `TRYAGAIN`, sends the call alone to the slot's owner.
    async fn follow(
        &self,
        mut asked: Link,
        mut pending: PendingReply,
        mut again: QueuedCall,
    ) -> Result<Replies, Failure> {
        let slot = again.slot;
        let mut moves = 0;
        loop {
            // A server that answers with a redirect or `TRYAGAIN` has not executed the call, so it is safe to send the
            // call again.
            (asked, again.batching) = match pending.await {
                Err(Failure::Moved(to)) => {
                    let to = self.resolve(to, &asked);
                    self.write().slots.set(slot, &to);
                    self.stale.notify_one();
                    (self.link(&to), Batching::Alone)
                }
                Err(Failure::Ask(to)) => (self.link(&self.resolve(to, &asked)), Batching::Asking),
                // Perhaps only keys of other requests in the batch are on another node, so this request is sent alone.
                // If the request's own keys are on two nodes, the caller splits the request.
                Err(Failure::TryAgain) if again.batching == Batching::Together => {
                    (self.owner(slot)?, Batching::Alone)
                }
                Err(Failure::NotConnected(why)) => {
                    self.stale.notify_one();
                    return Err(Failure::NotConnected(why));
                }
                answer => return answer,
            };
            if moves == MOVES {
                return Err(Failure::new("the slot does not stop moving"));
            }
            moves += 1;
            // A new link is not connected yet.
            asked.ready(self.timeouts.connect).await?;
            pending = self.send_to(&asked, again.clone())?;
        }
    }

    /// Returns the address of a redirect. A redirect without a host means the host of the node that answered.
    fn resolve(&self, to: Address, answered: &Link) -> Address {
        if !to.host.is_empty() {
            return to;
        }
        let map = self.read();
        let mut links = map.links.iter();
        let node = links.find(|(_, link)| link.is_same(answered));
        let host = node.map_or_else(String::new, |(node, _)| node.host.clone());
        Address { host, ..to }
    }

    fn send_to(&self, link: &Link, queued: QueuedCall) -> Result<PendingReply, Failure> {
        let sent = link.send(queued);
        if sent.is_err() {
            self.stale.notify_one();
        }
        sent
    }

    fn owner(&self, slot: u16) -> Result<Link, Failure> {
        let map = self.read();
        let link = map.slots.owner(slot).and_then(|owner| map.links.get(owner));
        let (link, problem) = (link.cloned(), map.problem.clone());
        drop(map);
        link.ok_or_else(|| {
            self.stale.notify_one();
            match problem {
                Some(problem) => Failure::NotConnected(problem),
                None => Failure::new(format_args!("no node has slot {slot}")),
            }
        })
    }

    /// Returns the link to a node, and creates a missing link.
    fn link(&self, address: &Address) -> Link {
        let known = |map: &ClusterMap| map.links.get(address).cloned();
        let map = self.read();
        if let Some(link) = known(&map) {
            return link;
        }
        drop(map);
        let mut map = self.write();
        known(&map).unwrap_or_else(|| {
            let link = Link::new(None, Some(self.dialer.to(address)), self.timeouts);
            map.links.insert(address.clone(), link.clone());
            link
        })
    }

    fn read(&self) -> RwLockReadGuard<'_, ClusterMap> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, ClusterMap> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queries the nodes for the owners of the slots, one after the other, until one knows the owners of all slots.
    /// Otherwise, the answer with the most slots counts. A node that was cut off from the Cluster may know only its own.
    /// Connected nodes come first. Apart from that the order is random, so that the queries of a fleet spread over the
    /// nodes.
    async fn query_nodes(&self) -> Result<SlotOwners, ConnectError> {
        let mut nodes: Vec<(Address, Option<Arc<dyn CommandSender>>)> = {
            let map = self.read();
            let commands = |node: &Address| map.links.get(node).and_then(Link::commands);
            let known = map.slots.nodes();
            let seeds = self.seeds.iter().filter(|seed| !known.contains(seed));
            let nodes = known.iter().chain(seeds);
            nodes.map(|node| (node.clone(), commands(node))).collect()
        };
        let random = RandomState::new();
        nodes.sort_by_cached_key(|(node, commands)| (commands.is_none(), random.hash_one(node)));
        let mut best = Err(ConnectError::new("a Redis Cluster", "has no nodes"));
        for (node, commands) in nodes {
            let limit = match commands {
                Some(_) => self.timeouts.answer,
                None => self.timeouts.connect / 4,
            };
            let answer = connect_within(limit, &node, self.query_node(&node, commands)).await;
            if owned(&answer) >= owned(&best) {
                best = answer;
            }
            if owned(&best) == SLOTS {
                break;
            }
        }
        best
    }

    async fn query_node(
        &self,
        node: &Address,
        commands: Option<Arc<dyn CommandSender>>,
    ) -> Result<SlotOwners, ConnectError> {
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let answer = match commands {
            Some(commands) => {
                let answer = commands.send(command, false).await;
                answer.map_err(|error| refused(node, error))?
            }
            None => {
                let connection = self.dialer.clone().connect(node.clone()).await?;
                connection.ask(node, command).await?
            }
        };
        slots(answer, node).ok_or_else(|| ConnectError::new(node, "has no slots of a Cluster"))
    }

    /// Installs new slots. Adds links to new primaries, and drops links to nodes that are not primaries.
    fn take_over(&self, slots: SlotOwners) {
        let mut map = self.write();
        map.problem = None;
        let primaries = slots.primaries();
        map.links.retain(|node, _| primaries.contains(&node));
        for address in primaries {
            let link = || Link::new(None, Some(self.dialer.to(address)), self.timeouts);
            map.links.entry(address.clone()).or_insert_with(link);
        }
        map.slots = slots;
    }

    fn is_whole(&self) -> bool {
        let map = self.read();
        map.problem.is_none() && map.links.values().all(Link::is_up)
    }
}

/// Returns the number of slots whose owners an answer names.
fn owned(answer: &Result<SlotOwners, ConnectError>) -> usize {
    answer.as_ref().map_or(0, SlotOwners::owned)
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Wakes the task that refreshes the map, so that the task ends.
        self.stale.notify_one();
    }
}

/// Refreshes the map of slots when `stale` is notified, and repeats this while the query fails. Also repeats it while
/// the link to a primary is down, because a replica may replace that primary.
async fn keep_fresh(cluster: Weak<Cluster>, stale: Arc<Notify>) {
    let backoff = Backoff::exponential(FIRST_PAUSE, LONGEST_PAUSE).jitter(Jitter::Equal);
    loop {
        stale.notified().await;
        for pause in backoff.schedule() {
            let Some(cluster) = cluster.upgrade() else {
                return;
            };
            match cluster.query_nodes().await {
                Ok(slots) => cluster.take_over(slots),
                Err(error) => cluster.write().problem = Some(error.to_string().into()),
            }
            let whole = cluster.is_whole();
            drop(cluster);
            sleep(pause).await;
            if whole {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests;
