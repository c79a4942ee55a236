mod slots;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, PoisonError, RwLock, Weak},
    time::Duration,
};

use futures_util::future::join_all;
use tokio::{sync::Notify, time::sleep};

use self::slots::{Slots, slots};
use super::{
    ConnectError,
    batch::Pending,
    failure::Failure,
    link::{Connect, Link},
    reply::Words,
    route::Answers,
    target::Address,
    wire::Dialer,
    work::{How, Work},
};
use crate::backend::patience::Patience;

/// How often at most the nodes are asked which of them has which slots.
const REFRESH: Duration = Duration::from_millis(200);

/// How often a call is sent again because slots are moving. A slot moves once; its keys one by one, within a second or
/// so.
const MOVES: u32 = 100;

/// A Redis Cluster: a link to each primary, and which slots it has.
pub(super) struct Cluster {
    dialer: Dialer,
    patience: Patience,
    seeds: Vec<Address>,
    map: RwLock<Map>,
    /// Something shows that the map is out of date.
    stale: Arc<Notify>,
}

#[derive(Default)]
struct Map {
    slots: Slots,
    links: HashMap<Address, Link>,
}

impl Cluster {
    /// Finds the nodes, and connects to the primaries. One that cannot be reached is tried in the background, like one that
    /// is lost later, since a replica takes its place; but not all of them.
    pub(super) async fn open(
        seeds: Vec<Address>,
        dialer: Dialer,
        patience: Patience,
    ) -> Result<Arc<Self>, ConnectError> {
        let cluster = Arc::new(Self {
            dialer,
            patience,
            seeds,
            map: RwLock::default(),
            stale: Arc::default(),
        });
        let slots = cluster.ask_nodes().await?;
        let links = join_all(slots.primaries().map(|address| cluster.open_link(address))).await;
        let (mut failure, mut is_up) = (None, false);
        for (address, (link, problem)) in slots.primaries().zip(links) {
            is_up |= problem.is_none();
            failure = failure.or(problem);
            cluster.write().links.insert(address.clone(), link);
        }
        match failure {
            Some(failure) if !is_up => return Err(failure),
            Some(_) => cluster.stale.notify_one(),
            None => {}
        }
        cluster.write().slots = slots;
        tokio::spawn(keep_fresh(
            Arc::downgrade(&cluster),
            Arc::clone(&cluster.stale),
        ));
        Ok(cluster)
    }

    /// A link to a node; and why that cannot be reached yet, if so.
    async fn open_link(&self, address: &Address) -> (Link, Option<ConnectError>) {
        let connect = self.connect_to(address);
        // One that does not answer leaves the others time enough.
        let attempt = tokio::time::timeout(self.patience.connect / 2, connect()).await;
        let late = |_| Err(ConnectError::new(address, "does not answer"));
        match attempt.unwrap_or_else(late) {
            Ok(wire) => (Link::on(wire, Some(connect), self.patience), None),
            Err(problem) => (Link::later(connect, self.patience), Some(problem)),
        }
    }

    /// Sends a call whose keys are all in this slot.
    pub(super) fn send(self: &Arc<Self>, slot: u16, work: Work) -> Result<Answers, Failure> {
        let (cluster, again) = (Arc::clone(self), work.clone());
        let pending = self.send_to(&self.owner(slot)?, work)?;
        Ok(Answers::Followed(Box::pin(async move {
            cluster.follow(slot, pending, again).await
        })))
    }

    /// Waits for an answer, wherever the slot has gone.
    async fn follow(&self, slot: u16, mut pending: Pending, again: Work) -> Result<Words, Failure> {
        let mut how = How::Together;
        for _ in 0..MOVES {
            // None of these answers comes after anything has been executed.
            let to;
            (to, how) = match pending.await {
                Err(Failure::Moved(to)) => {
                    self.write().slots.set(slot, &to);
                    self.stale.notify_one();
                    (self.link(&to), How::Alone)
                }
                Err(Failure::Ask(to)) => (self.link(&to), How::Asking),
                // It went with others, whose keys are elsewhere. When it goes alone, it is for the one who asks to ask
                // for each key by itself.
                Err(Failure::TryAgain) if how == How::Together => (self.owner(slot)?, How::Alone),
                Err(Failure::NotConnected(why)) => {
                    self.stale.notify_one();
                    return Err(Failure::NotConnected(why));
                }
                answer => return answer,
            };
            // A node that is new is connected to now.
            to.ready(self.patience.connect).await?;
            pending = self.send_to(&to, again.clone().how(how))?;
        }
        Err(Failure::new("the slot does not stop moving"))
    }

    fn send_to(&self, link: &Link, work: Work) -> Result<Pending, Failure> {
        let sent = link.send(work);
        if sent.is_err() {
            self.stale.notify_one();
        }
        sent
    }

    fn owner(&self, slot: u16) -> Result<Link, Failure> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let link = map.slots.owner(slot).and_then(|owner| map.links.get(owner));
        let link = link.cloned();
        drop(map);
        link.ok_or_else(|| {
            self.stale.notify_one();
            Failure::new(format_args!("no node has slot {slot}"))
        })
    }

    /// The link to a node, also one that was not known.
    fn link(&self, address: &Address) -> Link {
        let known = |map: &Map| map.links.get(address).cloned();
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(link) = known(&map) {
            return link;
        }
        drop(map);
        let mut map = self.write();
        known(&map).unwrap_or_else(|| {
            let link = Link::later(self.connect_to(address), self.patience);
            map.links.insert(address.clone(), link.clone());
            link
        })
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Map> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect_to(&self, address: &Address) -> Connect {
        let (dialer, address) = (self.dialer.clone(), address.clone());
        Arc::new(move || {
            let (dialer, address) = (dialer.clone(), address.clone());
            Box::pin(async move { dialer.dial(&address).await })
        })
    }

    /// Asks one node after the other who has which slots, until one knows.
    async fn ask_nodes(&self) -> Result<Slots, ConnectError> {
        let mut nodes: Vec<Address> = {
            let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
            map.slots.nodes().cloned().collect()
        };
        nodes.extend(self.seeds.iter().cloned());
        let mut why = ConnectError::new("a Redis Cluster", "has no nodes");
        for node in &nodes {
            match tokio::time::timeout(self.patience.connect / 4, self.ask_node(node)).await {
                Ok(Ok(slots)) => return Ok(slots),
                Ok(Err(error)) => why = error,
                Err(_) => why = ConnectError::new(node, "does not answer"),
            }
        }
        Err(why)
    }

    async fn ask_node(&self, node: &Address) -> Result<Slots, ConnectError> {
        let wire = self.dialer.connect(node).await?;
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let answer = wire.ask(node, command).await?;
        slots(answer, node).ok_or_else(|| ConnectError::new(node, "has no slots of a Cluster"))
    }

    /// Takes a new map over: links to nodes that are not primaries any more end.
    fn take_over(&self, slots: Slots) {
        let mut map = self.write();
        map.links
            .retain(|address, _| slots.primaries().any(|primary| primary == address));
        map.slots = slots;
        let missing: Vec<Address> = map
            .slots
            .primaries()
            .filter(|primary| !map.links.contains_key(*primary))
            .cloned()
            .collect();
        for address in missing {
            let link = Link::later(self.connect_to(&address), self.patience);
            map.links.insert(address, link);
        }
    }

    fn is_whole(&self) -> bool {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        map.links.values().all(Link::is_up)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The task that keeps the map waits for this, and then finds nobody to keep it for.
        self.stale.notify_one();
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("seeds", &self.seeds)
            .finish_non_exhaustive()
    }
}

/// Asks again who has which slots, when something has shown that it changed; and for as long as a primary cannot be
/// reached, since a replica takes its place.
async fn keep_fresh(cluster: Weak<Cluster>, stale: Arc<Notify>) {
    loop {
        stale.notified().await;
        loop {
            let Some(cluster) = cluster.upgrade() else {
                return;
            };
            if let Ok(slots) = cluster.ask_nodes().await {
                cluster.take_over(slots);
            }
            let whole = cluster.is_whole();
            drop(cluster);
            sleep(REFRESH).await;
            if whole {
                break;
            }
        }
    }
}
