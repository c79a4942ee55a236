mod nonsense;
mod windows;

use std::{sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex, split},
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::Instant,
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
    job::{Asked, Counting, Job, Swapping, Verb},
    set::Set,
};

type Receiver = oneshot::Receiver<Result<JointDecision, Failure>>;

fn asked(cost: u64) -> Asked {
    Asked::of(&Charge::new(PolicyId::new(0), b"k", cost).up_to(cost + 2))
}

fn counting(policy: &Policy, verb: Verb) -> (Job, Receiver) {
    let rule = Counted::new("rl", policy).unwrap().unwrap();
    let (answer, receiver) = oneshot::channel();
    let job = Counting::new(Arc::new(rule), tag(b"k"), verb, asked(3), answer);
    (Job::Count(Box::new(job)), receiver)
}

fn swapping(set: &Arc<Set>, verb: Verb) -> (Job, Receiver) {
    let (answer, receiver) = oneshot::channel();
    let job = Swapping {
        set: Arc::clone(set),
        tag: tag(b"k"),
        verb,
        asked: [(0, asked(3))].into_iter().collect(),
        answer,
        since: Instant::now(),
    };
    (Job::Swap(job), receiver)
}

/// One of each that has steps of its own.
fn jobs() -> Vec<(Job, Receiver)> {
    let policy = || Policy::new("p", Quota::per_hour(5));
    let set = Arc::new(Set::new("rl", &[policy()]).unwrap());
    let mut jobs = Vec::new();
    for verb in [
        Verb::Acquire,
        Verb::Settle(-2),
        Verb::Settle(2),
        Verb::Reset,
    ] {
        jobs.push(counting(&policy().fixed_window_from_first_request(), verb));
        jobs.push(counting(&policy().fixed_window(), verb));
        jobs.push(counting(&policy().sliding_window_buckets(2), verb));
        jobs.push(swapping(&set, verb));
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

#[tokio::test]
async fn nobody_is_refused_by_what_was_not_looked_at() {
    let set = Arc::new(Set::new("rl", &[Policy::new("p", Quota::per_hour(5))]).unwrap());
    let (first, took_all) = swapping(&set, Verb::Acquire);
    let (second, receiver) = swapping(&set, Verb::Acquire);
    let mut wire = Wire::new();
    wire.send(first);
    wire.answer("mg ", "EN", "", "").await;
    // It comes while the first is being written.
    wire.send(second);
    tokio::time::sleep(Duration::from_millis(20)).await;
    wire.answer(" ME c", "HD", "", " c5").await;
    assert_eq!(took_all.await.unwrap().unwrap().decisions[0].granted, 5);
    // There is nothing left by that; but somebody may have put it back, and somebody has.
    wire.answer("mg ", "EN", "", "").await;
    wire.answer(" ME c", "HD", "", " c6").await;
    assert!(receiver.await.unwrap().unwrap().allowed);
}

#[tokio::test]
async fn who_has_lost_a_race_goes_before_those_who_have_come_meanwhile() {
    let set = Arc::new(Set::new("rl", &[Policy::new("p", Quota::per_hour(13))]).unwrap());
    let mut wire = Wire::new();
    let (mut jobs, mut told) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let (job, receiver) = swapping(&set, Verb::Acquire);
        jobs.push(job);
        told.push(receiver);
    }
    let last = jobs.pop().unwrap();
    jobs.into_iter().for_each(|job| wire.send(job));
    wire.answer("mg ", "EN", "", "").await;
    wire.send(last);
    tokio::time::sleep(Duration::from_millis(20)).await;
    wire.answer(" ME c", "NS", "", "").await;
    wire.answer("mg ", "EN", "", "").await;
    wire.answer(" ME c", "HD", "", " c5").await;
    let mut granted = Vec::new();
    for told in told {
        granted.push(told.await.unwrap().unwrap().decisions[0].granted);
    }
    assert_eq!(granted, [5, 5, 3]);
}

/// With a pause between the attempts, and an end to them.
#[tokio::test(start_paused = true)]
async fn who_always_comes_too_late_pauses_and_is_told_at_the_deadline() {
    let set = Arc::new(Set::new("rl", &[Policy::new("p", Quota::per_hour(5))]).unwrap());
    let (job, mut receiver) = swapping(&set, Verb::Acquire);
    let mut wire = Wire::new();
    let started = Instant::now();
    wire.send(job);
    let mut writes = 0;
    let told = loop {
        wire.answer("mg ", "EN", "", "").await;
        wire.answer(" ME c", "NS", "", "").await;
        writes += 1;
        // The second attempt comes at once; from then on there are pauses of 4 ms in the mean, so that even the luckiest
        // makes fewer than this.
        assert!(
            writes < 5_000,
            "{writes} attempts in {:?}",
            started.elapsed()
        );
        if writes == 2 {
            assert_eq!(started.elapsed(), Duration::ZERO);
        }
        tokio::task::yield_now().await;
        if let Ok(told) = receiver.try_recv() {
            break told;
        }
    };
    let error = tower_dist_ratelimit::backend::BackendError::from(told.unwrap_err()).to_string();
    assert!(error.contains("again and again for 5s"), "{error}");
    let late = started.elapsed() - Duration::from_secs(5);
    assert!(late <= Duration::from_millis(10), "{late:?}");
}

#[tokio::test]
async fn who_has_gone_before_it_is_written_is_not_charged() {
    let set = Arc::new(Set::new("rl", &[Policy::new("p", Quota::per_hour(100))]).unwrap());
    let mut wire = Wire::new();
    let (first, told) = swapping(&set, Verb::Acquire);
    wire.send(first);
    wire.answer("mg ", "EN", "", "").await;
    let (second, gone) = swapping(&set, Verb::Acquire);
    wire.send(second);
    tokio::time::sleep(Duration::from_millis(20)).await;
    drop(gone);
    wire.answer(" ME c", "HD", "", " c5").await;
    assert!(told.await.unwrap().unwrap().allowed);
    // Nothing is written for the second: what comes next is the third's question.
    let (third, _told) = swapping(&set, Verb::Acquire);
    wire.send(third);
    wire.answer("mg ", "EN", "", "").await;
}

/// Of two who charge two sub-windows at the same time one sees the other, whatever the server does in between.
#[tokio::test]
async fn sub_windows_are_read_after_one_of_them_is_charged() {
    let policy = Policy::new("p", Quota::per_hour(5)).sliding_window_strict(2);
    let (job, _told) = counting(&policy, Verb::Acquire);
    let mut wire = Wire::new();
    wire.send(job);
    let mut asked = vec![0; 4096];
    let n = wire.server.read(&mut asked).await.unwrap();
    let asked = String::from_utf8_lossy(&asked[..n]).into_owned();
    let commands: Vec<&str> = asked.lines().map(|line| &line[..2]).collect();
    // The charge, the two before it, and the one behind it.
    assert_eq!(commands, ["ma", "mg", "mg", "mg"]);
}

/// What is not known is not nothing: an older sub-window could be full.
#[tokio::test]
async fn who_cannot_be_told_of_older_sub_windows_is_not_let_in() {
    let policy = Policy::new("p", Quota::per_hour(5)).sliding_window_strict(2);
    for verb in [Verb::Acquire, Verb::Settle(-2)] {
        let (job, told) = counting(&policy, verb);
        let mut wire = Wire::new();
        wire.send(job);
        let mut asked = vec![0; 4096];
        let n = wire.server.read(&mut asked).await.unwrap();
        let commands = String::from_utf8_lossy(&asked[..n]).lines().count();
        let answers: String = (1..=commands)
            .map(|number| match number {
                1 => reply(number, "VA", "5", ""),
                2 => reply(number, "SERVER_ERROR out of memory", "", ""),
                _ => reply(number, "EN", "", ""),
            })
            .collect();
        wire.server.write_all(answers.as_bytes()).await.unwrap();
        let failure = told.await.unwrap().unwrap_err();
        let error = tower_dist_ratelimit::backend::BackendError::from(failure).to_string();
        assert!(error.contains("out of memory"), "{error}");
    }
}

/// What a server could say to the command of this number, right or wrong.
fn reply(opaque: usize, code: &str, value: &str, flags: &str) -> String {
    match code {
        "VA" => format!("VA {} O{opaque}{flags}\r\n{value}\r\n", value.len()),
        error if error.contains('_') => format!("{error}\r\n"),
        code => format!("{code} O{opaque}{flags}\r\n"),
    }
}
