//! Replies of a server, valid or not.

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
    // Bytes that are no reply follow.
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

    /// No reply causes a panic, and every caller gets a verdict or an error.
    #[test]
    fn any_replies_of_a_server_end_in_verdicts_or_errors(replies in replies()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (client, mut server) = duplex(1 << 20);
            let (link, mut inbox) = Link::channel(Health::up(), 64);
            let verdicts: Vec<Task> = operations(&link)
                .into_iter()
                .map(|operation| tokio::spawn(operation.ask().unwrap()))
                .collect();
            let value = Command::set(b"k", 1).value("", b"1");
            let commands = [Command::new("mg", b"k").end(" v c"), value];
            let answers = commands.map(|command| tokio::spawn(link.send(command, None).unwrap()));
            let speaking = async {
                // The first commands; then the replies, to these and to the commands that follow from them.
                let mut commands = [0; 16_384];
                assert!(server.read(&mut commands).await.unwrap() > 0);
                // The client may have closed the connection already.
                let _ = server.write_all(&replies).await;
                let _ = server.shutdown().await;
                while matches!(server.read(&mut commands).await, Ok(1..)) {}
            };
            let serving = async {
                let (read, write) = split(client);
                let mut pipeline = Pipeline::new(Duration::from_secs(5));
                let end = pipeline.run(read, write, &mut inbox).await;
                drop(inbox);
                end
            };
            let (end, ()) = tokio::join!(serving, speaking);
            assert!(end.is_some());
            for verdict in verdicts {
                let _ = timeout(Duration::from_secs(10), verdict).await.expect("a verdict").unwrap();
            }
            for answer in answers {
                let _ = timeout(Duration::from_secs(10), answer).await.expect("an answer").unwrap();
            }
        });
    }
}
