use std::time::Duration;

use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::time::timeout;

use super::{
    arguments::{Arguments, told},
    failure::Failure,
    outbox::Parcel,
    reply::numbers,
    rows::Rows,
    wire::Commands,
};

/// How a call went.
#[derive(Debug)]
pub(super) enum Outcome {
    Numbers(Vec<i64>),
    Error(RedisError),
    /// No answer in time. Whether it was executed is not known, so it is not repeated.
    Silence,
}

impl Outcome {
    fn failure(&self, patience: Duration) -> Failure {
        match self {
            Self::Error(error) => error.into(),
            Self::Silence => Failure::new(format_args!("no answer from Redis within {patience:?}")),
            Self::Numbers(_) => Failure::new("an answer of another length than expected"),
        }
    }
}

/// Sends a parcel and tells everyone. Returns what went wrong.
pub(super) async fn run(
    parcel: Parcel,
    commands: &dyn Commands,
    patience: Duration,
) -> Option<Outcome> {
    let Parcel {
        command,
        batch,
        asking,
        ..
    } = parcel;
    let is_script = command.is_none();
    let answer = async {
        match command {
            Some(command) => commands.send(command, asking).await,
            None => decide(&batch.rows, commands, asking).await,
        }
    };
    let outcome = match timeout(patience, answer).await {
        Err(_) => Outcome::Silence,
        Ok(Err(error)) => Outcome::Error(error),
        // Whatever else a command is answered, it was made.
        Ok(Ok(_)) if !is_script => Outcome::Numbers(Vec::new()),
        Ok(answer) => match numbers(answer) {
            Ok(numbers) => Outcome::Numbers(numbers),
            Err(error) => Outcome::Error(error),
        },
    };
    if let Outcome::Numbers(numbers) = &outcome
        && let Some(told) = told(&batch.rows, numbers)
    {
        batch.tell(Ok(told));
        return None;
    }
    batch.tell(Err(outcome.failure(patience)));
    Some(outcome)
}

/// Calls the script of these rows.
async fn decide(rows: &Rows, commands: &dyn Commands, asking: bool) -> RedisResult<Value> {
    let Some(script) = rows.as_slice().first().map(|row| &row.call.script) else {
        return Ok(Value::Array(Vec::new()));
    };
    let by_hash = command(rows, "EVALSHA", &script.sha);
    match commands.send(by_hash, asking).await {
        // Not executed, so it can be repeated. This one also makes the script known.
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
            let by_source = command(rows, "EVAL", &script.lua);
            commands.send(by_source, asking).await
        }
        answer => answer,
    }
}

fn command(rows: &Rows, name: &str, script: &str) -> Cmd {
    let arguments = Arguments::of(rows);
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
