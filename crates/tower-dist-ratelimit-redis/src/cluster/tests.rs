//! Redirects of a node in memory.

use std::sync::atomic::{AtomicU32, Ordering};

use redis::{Cmd, RedisResult, Value};

use super::*;
use crate::{call::ScriptCall, connection::Connection, script::Script};

const TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(1),
    answer: Duration::from_secs(1),
};

/// Redirects the first `redirects` commands to itself, and answers each later command like a full bucket.
struct Node {
    redirects: u32,
    commands: AtomicU32,
}

impl CommandSender for Node {
    fn send(&self, _: Cmd, _: bool) -> BoxFuture<'static, RedisResult<Value>> {
        let answer = match self.commands.fetch_add(1, Ordering::Relaxed) < self.redirects {
            true => redis::parse_redis_value(b"-MOVED 0 a:1\r\n").unwrap(),
            false => Value::Array(vec![Value::Int(4), Value::Int(200_000)]),
        };
        Box::pin(async { answer.extract_error() })
    }
}

/// Sends a request to a Cluster of one node. Returns the outcome, and the number of commands that the node received.
async fn ask(redirects: u32) -> (Result<Replies, Failure>, u32) {
    let node = Arc::new(Node {
        redirects,
        commands: AtomicU32::new(0),
    });
    let connection = Connection {
        commands: Arc::clone(&node) as Arc<dyn CommandSender>,
        driver: Box::pin(std::future::pending()),
    };
    let dialer = Dialer {
        #[cfg(feature = "tls")]
        tls: None,
        user: None,
        password: None,
        db: 0,
    };
    let address = Address::parse("a:1", 0).unwrap();
    let cluster = Cluster::new(Vec::new(), dialer, TIMEOUTS);
    let link = Link::new(Some(connection), None, TIMEOUTS);
    cluster.write().links.insert(address.clone(), link);
    let range = Value::Array(vec![
        Value::Int(0),
        Value::Int(16_383),
        Value::Array(vec![Value::BulkString(b"a".to_vec()), Value::Int(1)]),
    ]);
    cluster.take_over(slots(Value::Array(vec![range]), &address).unwrap());
    let queued = QueuedCall {
        call: ScriptCall::to_one(&Script::of_five(), "k", 1),
        slot: 0,
        batching: Batching::Together,
    };
    let outcome = cluster.send(queued).unwrap().await;
    (outcome, node.commands.load(Ordering::Relaxed))
}

#[tokio::test(start_paused = true)]
async fn a_call_gets_the_answer_to_its_last_resend() {
    let (outcome, commands) = ask(MOVES).await;
    assert_eq!(outcome.unwrap()[0].remaining, 4);
    assert_eq!(commands, 1 + MOVES);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_redirected_after_its_last_resend_fails() {
    let (outcome, commands) = ask(u32::MAX).await;
    let Err(Failure::Error(text)) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(&*text, "the slot does not stop moving");
    assert_eq!(commands, 1 + MOVES);
}
