use std::{sync::Arc, time::Duration};

use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::{sync::oneshot, time::error::Elapsed};

pub(super) use super::reply::Numbers;
use super::{
    call::{Asked, Call},
    failure::Failure,
    reply::{NUMBERS, numbers},
    wire::Commands,
};

/// A request that waits for its decision.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) call: Call,
    pub(super) answer: oneshot::Sender<Result<Numbers, Failure>>,
}

/// How a call went.
#[derive(Debug)]
pub(super) enum Outcome {
    Numbers(Vec<i64>),
    Error(RedisError),
    /// No answer in time. Whether it was executed is not known, so it is not repeated.
    Silence,
}

impl Outcome {
    pub(super) fn of(result: Result<RedisResult<Value>, Elapsed>) -> Self {
        match result.map(numbers) {
            Ok(Ok(numbers)) => Self::Numbers(numbers),
            Ok(Err(error)) => Self::Error(error),
            Err(_) => Self::Silence,
        }
    }

    pub(super) fn failure(&self, patience: Duration) -> Failure {
        match self {
            Self::Error(error) => error.into(),
            Self::Silence => Failure::new(format_args!("no answer from Redis within {patience:?}")),
            Self::Numbers(_) => Failure::new("an answer of another length than expected"),
        }
    }
}

/// What is asked, once if it is the same of all: nearly always one token.
pub(super) fn said<'a>(
    asks: impl Iterator<Item = &'a Asked> + Clone,
) -> impl Iterator<Item = &'a [u8]> {
    let mut others = asks.clone();
    let first = others.next();
    let same = first.is_some_and(|first| others.all(|ask| ask.text == first.text));
    let texts = asks.map(|ask| &ask.text[..]);
    texts.take(if same { 1 } else { usize::MAX })
}

/// Requests that go out together, all to the same script.
pub(super) struct Batch(Vec<Waiting>);

impl Batch {
    pub(super) fn new(requests: Vec<Waiting>) -> Self {
        Self(requests)
    }

    /// Calls the script and tells everyone. Returns what went wrong.
    pub(super) async fn run(
        self,
        commands: &dyn Commands,
        asking: bool,
        patience: Duration,
    ) -> Option<Outcome> {
        let Some(first) = self.0.first() else {
            return None;
        };
        let script = Arc::clone(&first.call.script);
        let by_hash = self.command("EVALSHA", &script.sha);
        let answered = async {
            match commands.send(by_hash, asking).await {
                // Not executed, so it can be repeated. This one also makes the script known.
                Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                    commands.send(self.command("EVAL", &script.lua), asking).await
                }
                answer => answer,
            }
        };
        let outcome = Outcome::of(tokio::time::timeout(patience, answered).await);
        let each = script.rules.len() * NUMBERS;
        match outcome {
            Outcome::Numbers(numbers) if numbers.len() == each * self.decisions() => {
                let mut numbers = numbers.chunks_exact(each);
                for waiting in self.0 {
                    let answer = match waiting.call.settles {
                        true => Numbers::new(),
                        false => Numbers::from_slice(numbers.next().unwrap_or_default()),
                    };
                    let _ = waiting.answer.send(Ok(answer));
                }
                None
            }
            outcome => {
                let failure = outcome.failure(patience);
                for waiting in self.0 {
                    let _ = waiting.answer.send(Err(failure.clone()));
                }
                Some(outcome)
            }
        }
    }

    /// Settlements have no decision.
    fn decisions(&self) -> usize {
        self.0.iter().filter(|waiting| !waiting.call.settles).count()
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let policies = self.0.first().map_or(0, |waiting| waiting.call.asks.len());
        let asks = self.0.len() * policies;
        let mut command = redis::cmd(name);
        command.arg(script).arg(asks);
        let mut key = Vec::with_capacity(128);
        for waiting in &self.0 {
            for (ask, rule) in waiting.call.asks.iter().zip(&waiting.call.script.rules) {
                rule.keys.write(&ask.tag, &mut key);
                command.arg(&key[..]);
            }
        }
        let texts = self.0.iter().flat_map(|waiting| &waiting.call.asks);
        for text in said(texts) {
            command.arg(text);
        }
        command
    }
}
