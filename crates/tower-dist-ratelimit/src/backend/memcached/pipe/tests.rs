use std::{sync::Arc, time::Duration};

use proptest::prelude::*;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex, split},
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::Pipe;
use crate::{
    Policy, Quota,
    backend::{
        Charge, PolicyId, Verdict,
        memcached::{
            failure::Failure,
            job::{Asked, Counting, Job, Swapping, Verb},
            rule::{Counted, Set},
        },
        tag::tag,
    },
};

type Receiver = oneshot::Receiver<Result<Verdict, Failure>>;

fn asked(cost: u64) -> Asked {
    Asked::of(&Charge::new(PolicyId::new(0), b"k", cost).want(cost + 2))
}

fn counting(policy: &Policy, verb: Verb) -> (Job, Receiver) {
    let rule = Counted::new("rl", policy).unwrap().unwrap();
    let (answer, receiver) = oneshot::channel();
    let job = Counting::new(Arc::new(rule), tag(b"k"), verb, asked(3), answer);
    (Job::Count(Box::new(job)), receiver)
}

fn swapping(policy: Policy, verb: Verb) -> (Job, Receiver) {
    let (answer, receiver) = oneshot::channel();
    let job = Swapping {
        set: Arc::new(Set::new("rl", &[policy]).unwrap()),
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
    let mut jobs = Vec::new();
    for verb in [
        Verb::Acquire,
        Verb::Settle(-2),
        Verb::Settle(2),
        Verb::Reset,
    ] {
        jobs.push(counting(&policy().first_hit(), verb));
        jobs.push(counting(&policy().fixed_window(), verb));
        jobs.push(counting(&policy().sub_windows(2), verb));
        jobs.push(swapping(policy(), verb));
    }
    jobs
}

/// What a server could say to the command of this number, right or wrong.
fn reply(opaque: usize, code: &str, value: &str, flags: &str) -> String {
    match code {
        "VA" => format!("VA {} O{opaque}{flags}\r\n{value}\r\n", value.len()),
        error if error.contains('_') => format!("{error}\r\n"),
        code => format!("{code} O{opaque}{flags}\r\n"),
    }
}

fn replies() -> impl Strategy<Value = Vec<u8>> {
    let code = prop_oneof![
        4 => Just("VA"),
        4 => Just("HD"),
        2 => Just("EN"),
        1 => Just("NF"),
        1 => Just("NS"),
        2 => Just("EX"),
        1 => Just("SERVER_ERROR out of memory"),
        1 => Just("CLIENT_ERROR cannot increment or decrement non-numeric value"),
    ];
    let value = prop_oneof![
        Just("3"),
        Just("5"),
        Just("9 "),
        Just("4611686018427387904"),
        Just("18446744073709551615"),
        Just(""),
        Just("x"),
        Just("\u{a1}\0"),
    ];
    let flags = prop_oneof![
        4 => Just(" t3600 c7"),
        1 => Just(" t-1 c7"),
        1 => Just(" t18446744073709551615 c18446744073709551615"),
        1 => Just(" t1 c0"),
        1 => Just(""),
    ];
    let wrong = prop_oneof![40 => Just(0), 1 => Just(1)];
    proptest::collection::vec((code, value, flags, wrong), 0..60).prop_map(|replies| {
        let numbered = replies.into_iter().zip(1..);
        let texts = numbered
            .map(|((code, value, flags, wrong), number)| reply(number + wrong, code, value, flags));
        texts.collect::<String>().into_bytes()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever a server says, nothing panics, and everybody is told something.
    #[test]
    fn no_server_is_too_strange(replies in replies()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (client, mut server) = duplex(1 << 20);
            let (sender, mut inbox) = mpsc::channel(64);
            let mut receivers = Vec::new();
            for (job, receiver) in jobs() {
                sender.try_send(job).unwrap_or_else(|_| panic!("there is room"));
                receivers.push(receiver);
            }
            let speaking = async {
                // All that was asked at first; then the answers, to that and to what follows from them.
                let mut asked = [0; 16_384];
                assert!(server.read(&mut asked).await.unwrap() > 0);
                // It may have hung up already.
                let _ = server.write_all(&replies).await;
                let _ = server.shutdown().await;
                while matches!(server.read(&mut asked).await, Ok(1..)) {}
            };
            let mut pipe = Pipe::new(Duration::from_secs(5));
            let (read, write) = split(client);
            let serving = async {
                let end = pipe.run(read, write, &mut inbox).await;
                drop(pipe);
                end
            };
            let (end, ()) = tokio::join!(serving, speaking);
            assert!(end.is_some());
            for mut receiver in receivers {
                let told = receiver.try_recv();
                assert_ne!(told.err(), Some(oneshot::error::TryRecvError::Empty));
            }
        });
    }
}
