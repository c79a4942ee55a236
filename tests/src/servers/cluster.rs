use std::{
    net::{Ipv4Addr, TcpListener},
    time::Duration,
};

use super::{
    process::{free_port, pause},
    redis::{Redis, call},
    resp::Reply,
};

/// The number of slots of a Cluster, divided among its primaries.
const SLOTS: u16 = 16_384;

/// A free port for a node of a Cluster. The node also uses the port 10,000 above for the bus.
///
/// # Panics
///
/// Panics if no such port is free.
#[must_use]
pub fn free_port_of_a_node() -> u16 {
    let is_free = |port: u16| {
        let bus = port.checked_add(10_000);
        bus.is_some_and(|bus| TcpListener::bind((Ipv4Addr::LOCALHOST, bus)).is_ok())
    };
    let mut ports = std::iter::repeat_with(free_port).take(1000);
    ports.find(|&port| is_free(port)).expect("two free ports")
}

/// A Redis Cluster of three primaries, each with a replica.
#[derive(Debug)]
pub struct Cluster {
    /// Primaries first.
    nodes: Vec<Redis>,
}

const PRIMARIES: usize = 3;

impl Cluster {
    /// Starts a Cluster and waits until it serves requests.
    ///
    /// # Panics
    ///
    /// Panics if that takes more than 60 s.
    #[must_use]
    pub fn start() -> Self {
        let nodes: Vec<Redis> = (0..2 * PRIMARIES).map(|_| Self::node()).collect();
        let cluster = Self { nodes };
        let ports: Vec<String> = cluster
            .nodes
            .iter()
            .map(|node| node.port().to_string())
            .collect();
        for (number, node) in cluster.nodes.iter().enumerate() {
            node.call(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
        }
        for (number, primary) in cluster.nodes[..PRIMARIES].iter().enumerate() {
            let bound = |n: usize| usize::from(SLOTS) * n / PRIMARIES;
            let (first, last) = (bound(number), bound(number + 1) - 1);
            primary.call(&[
                "CLUSTER",
                "ADDSLOTSRANGE",
                &first.to_string(),
                &last.to_string(),
            ]);
        }
        for node in &cluster.nodes[1..] {
            let bus = node
                .port()
                .checked_add(10_000)
                .expect("a port for the bus")
                .to_string();
            cluster.nodes[0].call(&[
                "CLUSTER",
                "MEET",
                "127.0.0.1",
                &node.port().to_string(),
                &bus,
            ]);
        }
        cluster.wait("nodes to meet", |cluster| {
            cluster.nodes.iter().all(|node| {
                let known = node.call(&["CLUSTER", "NODES"]).text();
                ports
                    .iter()
                    .all(|port| known.contains(&format!(":{port}@")))
                    && !known.contains("handshake")
            })
        });
        for (number, replica) in cluster.nodes[PRIMARIES..].iter().enumerate() {
            let primary = cluster.nodes[number].call(&["CLUSTER", "MYID"]).text();
            replica.call(&["CLUSTER", "REPLICATE", &primary]);
        }
        cluster.wait("the cluster to work", |cluster| {
            cluster.nodes.iter().all(|node| {
                node.call(&["CLUSTER", "INFO"])
                    .text()
                    .contains("cluster_state:ok")
            }) && cluster.nodes[PRIMARIES..].iter().all(|node| {
                node.call(&["INFO", "replication"])
                    .text()
                    .contains("master_link_status:up")
            })
        });
        cluster
    }

    fn node() -> Redis {
        Redis::on(
            free_port_of_a_node,
            &[
                "--cluster-enabled",
                "yes",
                "--cluster-config-file",
                "nodes.conf",
                "--cluster-node-timeout",
                "1000",
                "--cluster-require-full-coverage",
                "no",
                "--repl-diskless-sync-delay",
                "0",
            ],
        )
    }

    /// The Cluster's URL.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.nodes[..PRIMARIES]
            .iter()
            .map(|node| format!("127.0.0.1:{}", node.port()))
            .collect();
        format!("redis-cluster://{}", hosts.join(","))
    }

    /// The nodes: three primaries, then their replicas.
    #[must_use]
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// The nodes, mutably, for faults.
    pub fn nodes_mut(&mut self) -> &mut [Redis] {
        &mut self.nodes
    }

    /// The slot of a key.
    #[must_use]
    pub fn slot(&self, key: &str) -> u16 {
        let slot = self.nodes[0].call(&["CLUSTER", "KEYSLOT", key]).text();
        slot.parse().expect("a slot")
    }

    /// The number of the primary that owns a slot at the start.
    #[must_use]
    pub fn owner(&self, slot: u16) -> usize {
        (0..PRIMARIES)
            .find(|n| usize::from(slot) < usize::from(SLOTS) * (n + 1) / PRIMARIES)
            .expect("an owner")
    }

    /// Begins to move a slot: `from` redirects requests for missing keys to `to`.
    pub fn begin_migration(&self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        let id = |n: usize| self.nodes[n].call(&["CLUSTER", "MYID"]).text();
        self.nodes[to].call(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]);
        self.nodes[from].call(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]);
    }

    /// Moves the slot's present keys.
    pub fn migrate_keys(&self, slot: u16, from: usize, to: usize) {
        let keys = self.nodes[from].call(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "1000"]);
        for key in keys.texts() {
            self.migrate_key(&key, from, to);
        }
    }

    /// Moves one key.
    pub fn migrate_key(&self, key: &str, from: usize, to: usize) {
        let port = self.nodes[to].port().to_string();
        self.nodes[from].call(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
    }

    /// The number of errors of one kind that the primaries returned: `MOVED`, `ASK` or `TRYAGAIN`.
    #[must_use]
    pub fn errors(&self, error: &str) -> u64 {
        let name = format!("errorstat_{error}:count=");
        let count = |node: &Redis| -> u64 {
            let stats = node.call(&["INFO", "errorstats"]).text();
            let count = stats.lines().find_map(|line| line.strip_prefix(&name));
            count.map_or(0, |count| count.parse().expect("a count"))
        };
        self.nodes[..PRIMARIES].iter().map(count).sum()
    }

    /// Ends the move of a slot.
    pub fn end_migration(&self, slot: u16, to: usize) {
        let id = self.nodes[to].call(&["CLUSTER", "MYID"]).text();
        for node in &self.nodes[..PRIMARIES] {
            node.call(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &id]);
        }
    }

    fn wait(&self, what: &str, done: impl Fn(&Self) -> bool) {
        for _ in 0..600 {
            if done(self) {
                return;
            }
            pause(Duration::from_millis(100));
        }
        let nodes: Vec<Reply> = self
            .nodes
            .iter()
            .map(|node| call(node.port(), &["CLUSTER", "NODES"]))
            .collect();
        panic!("waited too long for {what}: {nodes:?}");
    }
}
