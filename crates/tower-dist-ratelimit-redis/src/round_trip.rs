use std::time::Duration;

use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::time::timeout;

use super::{
    arguments::{Arguments, row_answers},
    connection::CommandSender,
    failure::Failure,
    rows::Rows,
    send_queue::DueCall,
};

/// The outcome of a call.
#[derive(Debug)]
pub(super) enum CallOutcome {
    Numbers(Vec<i64>),
    Error(RedisError),
    /// The answer timed out. The server may have executed the call, so it is not resent.
    TimedOut,
}

impl CallOutcome {
    fn failure(&self, limit: Duration) -> Failure {
        match self {
            Self::Error(error) => error.into(),
            Self::TimedOut => Failure::new(format_args!("no answer from Redis within {limit:?}")),
            Self::Numbers(_) => Failure::new("an answer of another length than expected"),
        }
    }
}

/// Sends a call and answers its requests. Returns the outcome if the server gave no valid answer.
pub(super) async fn run(
    due_call: DueCall,
    commands: &dyn CommandSender,
    limit: Duration,
) -> Option<CallOutcome> {
    let DueCall { batch, asking, .. } = due_call;
    let outcome = match timeout(limit, decide(&batch.rows, commands, asking)).await {
        Err(_) => CallOutcome::TimedOut,
        Ok(answer) => answer
            .and_then(numbers)
            .map_or_else(CallOutcome::Error, CallOutcome::Numbers),
    };
    if let CallOutcome::Numbers(numbers) = &outcome
        && let Some(row_answers) = row_answers(&batch.rows, numbers)
    {
        batch.answer(Ok(row_answers)).await;
        return None;
    }
    batch.answer(Err(outcome.failure(limit))).await;
    Some(outcome)
}

/// Reads an array of numbers.
fn numbers(answer: Value) -> RedisResult<Vec<i64>> {
    let number = |value| match value {
        Value::Int(number) => Some(number),
        _ => None,
    };
    let numbers = match answer {
        Value::Array(values) => values.into_iter().map(number).collect(),
        _ => None,
    };
    numbers.ok_or_else(|| (ErrorKind::UnexpectedReturnType, "no array of numbers").into())
}

/// Calls the script of these rows.
async fn decide(rows: &Rows, commands: &dyn CommandSender, asking: bool) -> RedisResult<Value> {
    let Some(script) = rows.0.first().map(|row| &row.call.script) else {
        return Ok(Value::Array(Vec::new()));
    };
    let by_hash = command(rows, "EVALSHA", &script.sha);
    match commands.send(by_hash, asking).await {
        // The server did not know the script and executed nothing, so a resend is safe. `EVAL` also caches the script.
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::{
        batch::{Batch, PendingReply},
        call::ScriptCall,
        script::Script,
    };
    use tower_dist_ratelimit::backend::{BoxFuture, toolkit::Health};

    /// Gives these answers one after the other, and then none.
    struct Server {
        answers: Mutex<Vec<RedisResult<Value>>>,
        asked: Mutex<Vec<String>>,
    }

    impl CommandSender for Server {
        fn send(&self, command: Cmd, _: bool) -> BoxFuture<'static, RedisResult<Value>> {
            let packed = String::from_utf8(command.get_packed_command()).unwrap();
            let name = packed.lines().nth(2).unwrap().to_owned();
            self.asked.lock().unwrap().push(name);
            let mut answers = self.answers.lock().unwrap();
            if answers.is_empty() {
                return Box::pin(std::future::pending());
            }
            Box::pin(std::future::ready(answers.remove(0)))
        }
    }

    /// A request to a bucket of five tokens, in flight.
    fn due_call() -> (PendingReply, DueCall) {
        let script = Script::of_five();
        let batch = Arc::new(Batch::new(Arc::default(), Arc::new(Health::up())));
        let (pending, _) = batch.join(ScriptCall::to_one(&script, "k", 1));
        let due_call = DueCall {
            batch: batch.close(),
            asking: false,
            kind: None,
        };
        (pending, due_call)
    }

    /// Returns the commands that were sent, and the remaining tokens if the call was answered.
    async fn sent(answers: Vec<RedisResult<Value>>) -> (Vec<String>, Option<i64>) {
        let server = Server {
            answers: Mutex::new(answers),
            asked: Mutex::default(),
        };
        let (pending, due_call) = due_call();
        let outcome = run(due_call, &server, Duration::from_millis(500)).await;
        let answer = pending.await;
        assert_eq!(outcome.is_some(), answer.is_err());
        let left = answer.ok().map(|replies| replies[0].remaining);
        (server.asked.into_inner().unwrap(), left)
    }

    fn error(kind: ErrorKind) -> RedisResult<Value> {
        Err((kind, "an error").into())
    }

    fn numbers_of(numbers: &[i64]) -> RedisResult<Value> {
        let numbers = numbers.iter().map(|&number| Value::Int(number));
        Ok(Value::Array(numbers.collect()))
    }

    #[test]
    fn an_answer_that_is_no_array_of_numbers_is_named() {
        for answer in [Value::Okay, Value::Array(vec![Value::Nil])] {
            let error = numbers(answer).unwrap_err().to_string();
            assert!(error.starts_with("no array of numbers"), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_command_that_was_not_executed_is_resent() {
        let good = || numbers_of(&[4, 200_000]);
        let unknown = || error(ErrorKind::Server(ServerErrorKind::NoScript));
        assert_eq!(sent(vec![good()]).await, (vec!["EVALSHA".into()], Some(4)));
        let twice = vec!["EVALSHA".into(), "EVAL".into()];
        assert_eq!(
            sent(vec![unknown(), good()]).await,
            (twice.clone(), Some(4))
        );
        assert_eq!(
            sent(vec![unknown(), unknown(), good()]).await,
            (twice, None)
        );
        for failure in [
            error(ErrorKind::Io),
            error(ErrorKind::Server(ServerErrorKind::ReadOnly)),
            error(ErrorKind::Server(ServerErrorKind::TryAgain)),
            error(ErrorKind::Extension),
            // Answers of another length or type.
            numbers_of(&[4]),
            numbers_of(&[4, 200_000, 0]),
            Ok(Value::Nil),
        ] {
            let (asked, left) = sent(vec![failure, good()]).await;
            assert_eq!((asked, left), (vec!["EVALSHA".into()], None));
        }
        let silence = sent(Vec::new()).await;
        assert_eq!(silence, (vec!["EVALSHA".into()], None));
    }

    #[test]
    fn a_call_without_a_valid_answer_fails_with_a_message_that_names_the_cause() {
        for (outcome, says) in [
            (CallOutcome::TimedOut, "no answer from Redis within 500ms"),
            (
                CallOutcome::Numbers(vec![1]),
                "an answer of another length than expected",
            ),
        ] {
            let Failure::Error(text) = outcome.failure(Duration::from_millis(500)) else {
                panic!("{outcome:?}");
            };
            assert_eq!(&*text, says);
        }
    }
}
