use std::{sync::Arc, time::Duration};

use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::{sync::oneshot, time::error::Elapsed};

use super::{
    arguments::{Arguments, words},
    call::Call,
    failure::Failure,
    reply::{Words, numbers},
    wire::Commands,
};

/// Where an answer goes.
pub(super) type Answer = oneshot::Sender<Result<Words, Failure>>;

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

/// Requests that go out together, all to the same script.
#[derive(Default)]
pub(super) struct Batch {
    calls: Vec<Call>,
    answers: Vec<Answer>,
}

impl Batch {
    pub(super) fn push(&mut self, call: Call, answer: Answer) {
        self.calls.push(call);
        self.answers.push(answer);
    }

    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Calls the script and tells everyone. Returns what went wrong.
    pub(super) async fn run(
        self,
        commands: &dyn Commands,
        asking: bool,
        patience: Duration,
    ) -> Option<Outcome> {
        let script = Arc::clone(&self.calls.first()?.script);
        let by_hash = self.command("EVALSHA", &script.sha);
        let answered = async {
            match commands.send(by_hash, asking).await {
                // Not executed, so it can be repeated. This one also makes the script known.
                Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                    commands
                        .send(self.command("EVAL", &script.lua), asking)
                        .await
                }
                answer => answer,
            }
        };
        let outcome = Outcome::of(tokio::time::timeout(patience, answered).await);
        if let Outcome::Numbers(numbers) = &outcome
            && let Some(words) = words(&self.calls, numbers)
        {
            for (answer, words) in self.answers.into_iter().zip(words) {
                let _ = answer.send(Ok(words));
            }
            return None;
        }
        let failure = outcome.failure(patience);
        for answer in self.answers {
            let _ = answer.send(Err(failure.clone()));
        }
        Some(outcome)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let arguments = Arguments::of(&self.calls);
        let mut command = redis::cmd(name);
        command.arg(script).arg(arguments.number_of_keys());
        arguments.keys(|key| {
            command.arg(key);
        });
        arguments.asks(|ask| {
            command.arg(ask);
        });
        command
    }
}
