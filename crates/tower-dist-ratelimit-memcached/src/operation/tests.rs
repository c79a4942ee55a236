mod fleet;
mod nonsense;
mod store;
mod windows;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split},
    task::JoinHandle,
    time::timeout,
};
use tower_dist_ratelimit::{
    Policy, Quota,
    backend::{
        PolicyId,
        toolkit::{Health, tag, wall_clock},
    },
};

use super::*;
use crate::pipeline::{Disconnect, Pipeline};

/// A verdict that a task waits for.
type Task = JoinHandle<OperationResult>;

/// An operation on a key of this policy: 3 tokens, or up to 5.
fn operation(link: &Link, policy: &Policy, action: OperationKind) -> Operation {
    Operation {
        link: link.clone(),
        rule: Arc::new(CounterPolicy::new("rl", policy).unwrap().unwrap()),
        clock: wall_clock,
        tag: tag(b"k"),
        action,
        charge: Charge::new(PolicyId::new(0), b"", 3).up_to(5),
    }
}

/// One of each operation that has steps of its own.
fn operations(link: &Link) -> Vec<Operation> {
    let policy = || Policy::new("p", Quota::per_hour(5));
    let mut operations = Vec::new();
    for action in [
        OperationKind::Acquire,
        OperationKind::Settle(-2),
        OperationKind::Settle(2),
        OperationKind::Reset,
    ] {
        for policy in [
            policy().fixed_window_from_first_request(),
            policy().fixed_window(),
        ] {
            operations.push(operation(link, &policy, action));
        }
    }
    operations
}

/// A connection whose other end the test controls.
struct Wire {
    server: DuplexStream,
    link: Link,
    /// Why the connection was given up.
    end: JoinHandle<Option<Disconnect>>,
}

impl Wire {
    fn new() -> Self {
        let (client, server) = duplex(1 << 16);
        let (link, mut jobs) = Link::channel(Health::up(), 8);
        let end = tokio::spawn(async move {
            let (read, write) = split(client);
            Pipeline::new(Duration::from_secs(5))
                .run(read, write, &mut jobs)
                .await
        });
        Self { server, link, end }
    }

    fn send(&self, policy: &Policy) -> Task {
        let operation = operation(&self.link, policy, OperationKind::Acquire);
        tokio::spawn(operation.ask().unwrap())
    }

    /// Answers the next command, which has to contain `has`.
    async fn answer(&mut self, has: &str, code: &str, value: &str, flags: &str) {
        let mut asked = vec![0; 4096];
        let asking = self.server.read(&mut asked);
        let asking = tokio::time::timeout(Duration::from_secs(10), asking).await;
        let n = asking.expect("a command").unwrap();
        let asked = String::from_utf8_lossy(&asked[..n]).into_owned();
        assert!(asked.contains(has), "{has:?} in {asked:?}");
        let opaque = asked.split(' ').find_map(|word| word.strip_prefix('O'));
        let opaque = opaque.unwrap().trim_end().parse().unwrap();
        let reply = reply(opaque, code, value, flags);
        self.server.write_all(reply.as_bytes()).await.unwrap();
    }
}

#[tokio::test]
async fn no_token_is_taken_back_from_a_window_that_other_processes_began() {
    let policy = Policy::new("p", Quota::per_minute(5)).fixed_window_from_first_request();
    let mut wire = Wire::new();
    let task = wire.send(&policy);
    // The request adds 5 tokens to 98 tokens.
    wire.answer(" D5 t v c", "VA", "103", " t3 c11").await;
    wire.answer(" MD D5 C11", "EX", "", "").await;
    // Another process has changed the same window.
    wire.answer("mg ", "VA", "104", " t3 c12").await;
    wire.answer(" MD D5 C12", "EX", "", "").await;
    // The next window has begun.
    wire.answer("mg ", "VA", "1", " t61 c13").await;
    wire.answer(" N61 J5 D5 t v c", "VA", "5", " t61 c14").await;
    let verdict = task.await.unwrap().unwrap();
    assert!(verdict.allowed && verdict.decisions[0].granted == 5);
}

/// A reply to the command of this number, valid or not.
fn reply(opaque: usize, code: &str, value: &str, flags: &str) -> String {
    match code {
        "VA" => format!("VA {} O{opaque}{flags}\r\n{value}\r\n", value.len()),
        error if error.contains('_') => format!("{error}\r\n"),
        code => format!("{code} O{opaque}{flags}\r\n"),
    }
}
