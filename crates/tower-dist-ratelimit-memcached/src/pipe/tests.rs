mod nonsense;
mod windows;

use std::{sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex, split},
    sync::{mpsc, oneshot},
    task::JoinHandle,
};
use tower_dist_ratelimit::{
    Policy, Quota,
    backend::{Charge, JointDecision, PolicyId, toolkit::tag},
};

use super::{End, Pipe};
use crate::{
    clock,
    counted::Counted,
    failure::Failure,
    job::{Counting, Job, Verb},
    reply::Meta,
    request::Command,
};

type Receiver = oneshot::Receiver<Result<JointDecision, Failure>>;

fn counting(policy: &Policy, verb: Verb) -> (Job, Receiver) {
    let rule = Counted::new("rl", policy).unwrap().unwrap();
    let (answer, receiver) = oneshot::channel();
    let charge = Charge::new(PolicyId::new(0), b"", 3).up_to(5);
    let job = Counting::new(Arc::new(rule), tag(b"k"), verb, charge, answer);
    (Job::Count(Box::new(job)), receiver)
}

/// A command by itself, and its answer.
fn asking_for(command: Command) -> (Job, oneshot::Receiver<Result<Meta, Failure>>) {
    let (answer, receiver) = oneshot::channel();
    (Job::Ask { command, answer }, receiver)
}

/// One of each operation that has steps of its own.
fn jobs() -> Vec<(Job, Receiver)> {
    let policy = || Policy::new("p", Quota::per_hour(5));
    let mut jobs = Vec::new();
    for verb in [
        Verb::Acquire,
        Verb::Settle(-2),
        Verb::Settle(2),
        Verb::Reset,
    ] {
        jobs.push(counting(&policy().fixed_window_from_first_request(), verb));
        jobs.push(counting(&policy().fixed_window(), verb));
    }
    jobs
}

/// A pipe and what is at its other end, which answers when it is told to.
struct Wire {
    server: tokio::io::DuplexStream,
    inbox: mpsc::Sender<Job>,
    /// Why the pipe has given the connection up.
    end: JoinHandle<Option<End>>,
}

impl Wire {
    fn new() -> Self {
        let (client, server) = duplex(1 << 16);
        let (inbox, mut jobs) = mpsc::channel(8);
        let end = tokio::spawn(async move {
            let (read, write) = split(client);
            let mut pipe = Pipe::new(Duration::from_secs(5), clock::now);
            pipe.run(read, write, &mut jobs).await
        });
        Self { server, inbox, end }
    }

    fn send(&self, job: Job) {
        assert!(self.inbox.try_send(job).is_ok());
    }

    /// The next command, which has to have this in it, is answered so.
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
async fn nothing_is_taken_back_from_a_window_that_others_began() {
    let policy = Policy::new("p", Quota::per_minute(5)).fixed_window_from_first_request();
    let (job, receiver) = counting(&policy, Verb::Acquire);
    let mut wire = Wire::new();
    wire.send(job);
    // Five were asked for, where 98 had been.
    wire.answer(" D5 t v c", "VA", "103", " t3 c11").await;
    wire.answer(" MD D5 C11", "EX", "", "").await;
    // Somebody else has changed it, but it is still the same window.
    wire.answer("mg ", "VA", "104", " t3 c12").await;
    wire.answer(" MD D5 C12", "EX", "", "").await;
    // And now it is the next one.
    wire.answer("mg ", "VA", "1", " t61 c13").await;
    wire.answer(" N61 J5 D5 t v c", "VA", "5", " t61 c14").await;
    let verdict = receiver.await.unwrap().unwrap();
    assert!(verdict.allowed && verdict.decisions[0].granted == 5);
}

/// What a server could say to the command of this number, right or wrong.
fn reply(opaque: usize, code: &str, value: &str, flags: &str) -> String {
    match code {
        "VA" => format!("VA {} O{opaque}{flags}\r\n{value}\r\n", value.len()),
        error if error.contains('_') => format!("{error}\r\n"),
        code => format!("{code} O{opaque}{flags}\r\n"),
    }
}
