//! The parts of a decision alone: the server's work, and the wakeups of the tasks.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{Client, RedisError, Script};
use tokio::sync::{Mutex, mpsc, oneshot};

/// A token per microsecond and a burst that is never exhausted, with the least work per key. It checks no stored value.
const LUA: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local call, format, max = redis.call, string.format, math.max
local texts, replies = call('MGET', unpack(KEYS)), {}
for i = 1, #KEYS do
  local used = max((tonumber(texts[i]) or now) - now, 0) + 1
  replies[2 * i - 1], replies[2 * i] = 1000000000 - used, used
  call('SET', KEYS[i], format('%d', now + used), 'PX', format('%d', used / 1000 + 3))
end
return replies
";

/// The tasks that answer, and the number of requests that each takes at a time. As in `ours`, two calls are in flight, of
/// at most 32 keys.
const SERVERS: usize = 2;
const REQUESTS: usize = 32;

type Request = (Arc<str>, oneshot::Sender<bool>);

/// Tasks that answer the requests of a channel.
#[derive(Clone)]
pub(super) struct Floor(mpsc::UnboundedSender<Request>);

impl Floor {
    /// A channel to one task that admits every request immediately.
    pub(super) fn channel() -> Self {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut requests: Vec<Request> = Vec::new();
            while receiver.recv_many(&mut requests, REQUESTS).await > 0 {
                for (_, reply) in requests.drain(..) {
                    // A task that has ended needs no answer.
                    let _ = reply.send(true);
                }
            }
        });
        Self(sender)
    }

    /// A channel to tasks that call the script.
    pub(super) async fn script(url: &str) -> Result<Self, RedisError> {
        let mut connection = Client::open(url)?
            .get_multiplexed_async_connection()
            .await?;
        let script = Script::new(LUA);
        let hash = script.prepare_invoke().load_async(&mut connection).await?;
        let (sender, receiver) = mpsc::unbounded_channel();
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..SERVERS {
            tokio::spawn(call(
                Arc::clone(&receiver),
                connection.clone(),
                hash.clone(),
            ));
        }
        Ok(Self(sender))
    }

    /// Asks for one decision.
    pub(super) async fn decide(self, key: Arc<str>) -> bool {
        let (sender, receiver) = oneshot::channel();
        self.0.send((key, sender)).is_ok() && receiver.await.unwrap_or(false)
    }
}

/// Answers requests, in calls that are as full as possible.
async fn call(
    receiver: Arc<Mutex<mpsc::UnboundedReceiver<Request>>>,
    mut connection: MultiplexedConnection,
    hash: String,
) {
    let mut requests = Vec::new();
    while receiver
        .lock()
        .await
        .recv_many(&mut requests, REQUESTS)
        .await
        > 0
    {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&*hash).arg(requests.len());
        for (key, _) in &requests {
            // The length of the keys of `ours`.
            command.arg(format!("rl:b2:{{{key:0>32}}}:bench"));
        }
        let answers: Result<Vec<i64>, RedisError> = command.query_async(&mut connection).await;
        let answers = answers.unwrap_or_default();
        for (n, (_, reply)) in requests.drain(..).enumerate() {
            let _ = reply.send(answers.get(2 * n).is_some_and(|remaining| *remaining >= 0));
        }
    }
}
