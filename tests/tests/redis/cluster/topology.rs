//! Queries for the slots of a Cluster, recorded by stub nodes.

use std::{
    fmt::Write,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tests::servers::free_port;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::Instant,
};

use crate::support::{connect, until};

/// Primaries of a Cluster that share the slots and record the queries.
pub(crate) struct Nodes {
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

struct Shared {
    /// The answer to `CLUSTER SLOTS`.
    slots: String,
    connections: AtomicUsize,
    /// The node and time of each query for the slots.
    questions: Mutex<Vec<(u16, Instant)>>,
}

impl Nodes {
    /// The number of remaining tokens in every answer.
    pub(crate) const REMAINING: u64 = 7;

    /// Starts nodes on these ports. The nodes of `down` own slots, too, but are not started.
    pub(crate) async fn start(ports: &[u16], down: &[u16]) -> Self {
        let all: Vec<u16> = ports.iter().chain(down).copied().collect();
        let mut slots = format!("*{}\r\n", all.len());
        let share = 16_384 / all.len();
        for (number, port) in all.iter().enumerate() {
            let first = number * share;
            let last = if number + 1 == all.len() {
                16_383
            } else {
                first + share - 1
            };
            let node = format!("*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n");
            write!(slots, "*3\r\n:{first}\r\n:{last}\r\n{node}").unwrap();
        }
        let shared = Arc::new(Shared {
            slots,
            connections: AtomicUsize::default(),
            questions: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        for &port in ports {
            let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
            let shared = Arc::clone(&shared);
            tasks.spawn(async move {
                let mut clients = JoinSet::new();
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    shared.connections.fetch_add(1, Ordering::Relaxed);
                    clients.spawn(Arc::clone(&shared).serve(port, stream));
                }
            });
        }
        Self {
            shared,
            _tasks: tasks,
        }
    }

    fn questions(&self) -> Vec<(u16, Instant)> {
        self.shared.questions.lock().unwrap().clone()
    }
}

impl Shared {
    async fn serve(self: Arc<Self>, port: u16, mut stream: TcpStream) {
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = stream.read(&mut buffer).await {
            let said = String::from_utf8_lossy(&buffer[..n]).to_uppercase();
            let answer = if said.contains("CLUSTER\r\n") {
                self.questions.lock().unwrap().push((port, Instant::now()));
                self.slots.clone()
            } else if said.contains("INFO\r\n") && !said.contains("SETINFO") {
                let info = "redis_version:7.0.15\r\nrole:master\r\n";
                format!("${}\r\n{info}\r\n", info.len())
            } else if said.contains("EVAL") {
                format!("*2\r\n:{}\r\n:9\r\n", Nodes::REMAINING)
            } else {
                "-ERR unknown command\r\n".repeat(said.matches("CLIENT\r\n").count().max(1))
            };
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

#[tokio::test]
async fn while_a_primary_is_down_the_others_share_the_questions_without_new_connections() {
    let ports = [free_port(), free_port()];
    let nodes = Nodes::start(&ports, &[free_port()]).await;
    let seed = ports[0];
    let _redis = connect(&format!("redis-cluster://127.0.0.1:{seed}")).await;
    // The first query finds the nodes, and the second begins the outage.
    const PAUSES: usize = 5;
    let times = until("both nodes to be asked", || async {
        let later = nodes.questions().split_off(1);
        let asked = |port: &u16| later.iter().any(|(node, _)| node == port);
        let enough = later.len() > PAUSES && ports.iter().all(asked);
        enough.then(|| later.iter().map(|(_, time)| *time).collect::<Vec<_>>())
    })
    .await;
    // One connection for the first query, and one to each node.
    assert_eq!(
        nodes.shared.connections.load(Ordering::Relaxed),
        1 + ports.len()
    );
    // Pauses double from 200 ms up to 1 s, and half of each is random.
    let shortest = Duration::from_millis(100 + 200 + 400 + 500 + 500);
    let took = times[PAUSES] - times[0];
    assert!(took >= shortest, "{took:?}");
}
