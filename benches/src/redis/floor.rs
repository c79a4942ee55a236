//! The parts of a decision alone: the server's work, the wakeups of the tasks, and a time limit for each.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Client, RedisError, Script};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::timeout;

/// A token per second and a burst that is never exhausted, with the least work per key. It checks no stored value.
const LUA: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local call, format, max, encode, decode = redis.call, string.format, math.max, struct.pack, struct.unpack
local values, replies, ttl, text = call('MGET', unpack(KEYS)), {}, nil, nil
for i = 1, #KEYS do
  local full_at = values[i] and decode('<d', values[i]) or now
  local used = max(full_at - now, 0) + 1000000
  replies[2 * i - 1], replies[2 * i] = 1000000000000000 - used, used
  if used ~= ttl then ttl, text = used, format('%d', used / 1000 + 3) end
  call('SET', KEYS[i], encode('<d', now + used), 'PX', text)
end
return replies
";

/// The tasks that answer. Each has one call in flight.
const SERVERS: usize = 2;

/// The number of requests in a call: at most 32 keys, or 256 requests for one key, as in `ours`.
const KEYS: usize = 32;
const REQUESTS: usize = 256;

/// The time limit of a request.
const TIMEOUT: Duration = Duration::from_millis(50);

type Request = (Arc<str>, oneshot::Sender<bool>);

/// Tasks that answer the requests of a channel.
#[derive(Clone)]
pub(super) struct Floor(mpsc::UnboundedSender<Request>);

impl Floor {
    /// A channel to tasks that send one command for many requests: the script, or with `one_key` an addition.
    pub(super) async fn server(url: &str, one_key: bool) -> Result<Self, RedisError> {
        let mut connection = Client::open(url)?
            .get_multiplexed_async_connection()
            .await?;
        let script = Script::new(LUA);
        let hash = script.prepare_invoke().load_async(&mut connection).await?;
        let (sender, receiver) = mpsc::unbounded_channel();
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..SERVERS {
            let (receiver, connection) = (Arc::clone(&receiver), connection.clone());
            match one_key {
                false => tokio::spawn(call(receiver, connection, hash.clone())),
                true => tokio::spawn(count(receiver, connection)),
            };
        }
        Ok(Self(sender))
    }

    /// Asks for one decision, within the time limit.
    pub(super) async fn decide(self, key: Arc<str>) -> bool {
        let (sender, receiver) = oneshot::channel();
        self.0.send((key, sender)).is_ok()
            && matches!(timeout(TIMEOUT, receiver).await, Ok(Ok(true)))
    }
}

type Requests = Arc<Mutex<mpsc::UnboundedReceiver<Request>>>;

/// Takes up to `most` waiting requests. Returns `false` if there will be no more.
async fn take(from: &Requests, requests: &mut Vec<Request>, most: usize) -> bool {
    from.lock().await.recv_many(requests, most).await > 0
}

/// Answers requests for different keys, in calls that are as full as possible.
async fn call(from: Requests, mut connection: MultiplexedConnection, hash: String) {
    let mut requests = Vec::new();
    while take(&from, &mut requests, KEYS).await {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&*hash).arg(requests.len());
        for (key, _) in &requests {
            // The length of the keys of `ours`.
            command.arg(format!("rl:b3:{{{key:0>32}}}:bench"));
        }
        let answers: Result<Vec<i64>, RedisError> = command.query_async(&mut connection).await;
        let answers = answers.unwrap_or_default();
        for (n, (_, reply)) in requests.drain(..).enumerate() {
            let _ = reply.send(answers.get(2 * n).is_some_and(|remaining| *remaining >= 0));
        }
    }
}

/// Answers requests for one key, with one addition per call.
async fn count(from: Requests, mut connection: MultiplexedConnection) {
    let mut requests = Vec::new();
    while take(&from, &mut requests, REQUESTS).await {
        let mut command = redis::cmd("INCRBY");
        command.arg("rl:b3:{everyone}:bench").arg(requests.len());
        let count: Result<u64, RedisError> = command.query_async(&mut connection).await;
        for (_, reply) in requests.drain(..) {
            let _ = reply.send(count.is_ok());
        }
    }
}
