//! What a server could say, right or wrong.

use proptest::prelude::*;

use super::*;

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
    let replies = proptest::collection::vec((code, value, flags, wrong), 0..60);
    // And then what is no reply.
    let noise = prop_oneof![
        3 => Just(Vec::new()),
        1 => proptest::collection::vec(any::<u8>(), 1..80),
    ];
    (replies, noise).prop_map(|(replies, noise)| {
        let numbered = replies.into_iter().zip(1..);
        let texts = numbered
            .map(|((code, value, flags, wrong), number)| reply(number + wrong, code, value, flags));
        let mut bytes = texts.collect::<String>().into_bytes();
        bytes.extend(noise);
        bytes
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
            let value = Command::set(b"k", 1).value("", b"1");
            let commands = [Command::new("mg", b"k").end(" v c"), value];
            let asked = commands.map(|command| {
                let (job, receiver) = asking_for(command);
                sender.try_send(job).unwrap_or_else(|_| panic!("there is room"));
                receiver
            });
            let speaking = async {
                // All that was asked at first; then the answers, to that and to what follows from them.
                let mut asked = [0; 16_384];
                assert!(server.read(&mut asked).await.unwrap() > 0);
                // It may have hung up already.
                let _ = server.write_all(&replies).await;
                let _ = server.shutdown().await;
                while matches!(server.read(&mut asked).await, Ok(1..)) {}
            };
            let mut pipe = Pipe::new(Duration::from_secs(5), clock::now);
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
            for mut receiver in asked {
                let told = receiver.try_recv();
                assert_ne!(told.err(), Some(oneshot::error::TryRecvError::Empty));
            }
        });
    }
}
