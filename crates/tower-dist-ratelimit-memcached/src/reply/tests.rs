use super::*;
use proptest::prelude::*;

fn all(input: &[u8]) -> Result<Vec<Reply>, String> {
    let (mut parser, mut bytes) = (Parser::default(), BytesMut::from(input));
    let mut replies = Vec::new();
    while let Some(reply) = parser.next(&mut bytes)? {
        replies.push(reply);
    }
    Ok(replies)
}

fn meta(code: Code, value: Option<&[u8]>, flags: [Option<u64>; 3]) -> Reply {
    let [cas, ttl, opaque] = flags;
    Reply::Meta(Meta {
        code,
        value: value.map(Value::from_slice),
        cas,
        ttl: ttl.map(u64::cast_signed),
        opaque,
    })
}

#[test]
fn replies_are_read_with_their_flags() {
    let input = b"VA 2 t61 c7 O12\r\n42\r\nHD c3 O18\r\nEN O1\r\nNF\r\nNS c0\r\nEX O9\r\n\
        VERSION 1.6.18\r\nCLIENT_ERROR bad data chunk\r\nVA 0 t-1 W\r\n\r\n";
    let minus_one = Some((-1_i64).cast_unsigned());
    assert_eq!(
        all(input).unwrap(),
        [
            meta(Code::Value, Some(b"42"), [Some(7), Some(61), Some(12)]),
            meta(Code::Done, None, [Some(3), None, Some(18)]),
            meta(Code::Miss, None, [None, None, Some(1)]),
            meta(Code::NotFound, None, [None; 3]),
            meta(Code::NotStored, None, [Some(0), None, None]),
            meta(Code::Exists, None, [None, None, Some(9)]),
            Reply::Version("1.6.18".to_owned()),
            Reply::Error("CLIENT_ERROR bad data chunk".to_owned()),
            meta(Code::Value, Some(b""), [None, minus_one, None]),
        ]
    );
}

#[test]
fn bytes_outside_of_the_protocol_are_an_error() {
    let (ending, length) = (
        "a line that is too long, or ends in LF",
        "a value without a length",
    );
    for (input, says) in [
        (&b"HD\n"[..], ending),
        (b"OK\r\n", "\"OK\""),
        (b"\r\n", "\"\""),
        (b"VA\r\n", length),
        (b"VA x\r\n", length),
        (b"VA -1\r\n", length),
        (b"VA 1 t5\r\n12\r\n", "a value that is longer than stated"),
        (b"HD c\r\n", "the flag \"c\""),
        (b"HD Ox\r\n", "the flag \"Ox\""),
        (
            b"HD t18446744073709551616\r\n",
            "the flag \"t18446744073709551616\"",
        ),
        (b"VA 99999999999\r\n", "a value of 99999999999 bytes"),
        (&[b'x'; 3000], "a line without an end"),
        (&[&b"VERSION "[..], &[b'1'; 2048], b"\r\n"].concat(), ending),
    ] {
        let expected = format!("the server does not speak the protocol: {says}");
        assert_eq!(all(input), Err(expected));
    }
}

#[test]
fn a_value_that_is_too_long_is_skipped_and_the_next_reply_is_read() {
    let (mut parser, mut bytes) = (Parser::default(), BytesMut::new());
    bytes.extend_from_slice(b"VA 100000 O1\r\n");
    let skipped = meta(Code::Value, None, [None, None, Some(1)]);
    assert_eq!(parser.next(&mut bytes), Ok(Some(skipped)));
    for _ in 0..100 {
        assert_eq!(parser.next(&mut bytes), Ok(None));
        bytes.extend_from_slice(&[b'\n'; 1000]);
    }
    bytes.extend_from_slice(b"\r\nHD O2\r\n");
    let next = meta(Code::Done, None, [None, None, Some(2)]);
    assert_eq!(parser.next(&mut bytes), Ok(Some(next)));
    assert!(bytes.is_empty());
}

/// Replies and other bytes.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"HD O1\r\n".to_vec()),
        Just(b"VA 3 c1 O2\r\nabc\r\n".to_vec()),
        Just(b"VA 20000 O3\r\n".to_vec()),
        Just(b"EN\r\n".to_vec()),
        Just(b"VA ".to_vec()),
        Just(b"\r\n".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..40),
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    /// No bytes cause a panic. The replies do not depend on how the bytes are split.
    #[test]
    fn any_bytes_are_read_as_the_same_replies_in_any_pieces(input in stream(), cuts in proptest::collection::vec(1..50_usize, 0..40)) {
        let whole = {
            let (mut parser, mut bytes) = (Parser::default(), BytesMut::from(&input[..]));
            read(&mut parser, &mut bytes)
        };
        let (mut parser, mut bytes) = (Parser::default(), BytesMut::new());
        let (mut replies, mut failed, mut rest) = (Vec::new(), false, &input[..]);
        for cut in cuts.into_iter().chain([usize::MAX]) {
            let (now, later) = rest.split_at(cut.min(rest.len()));
            bytes.extend_from_slice(now);
            rest = later;
            let (more, wrong) = read(&mut parser, &mut bytes);
            replies.extend(more);
            failed = wrong;
            if failed {
                break;
            }
        }
        prop_assert_eq!((replies, failed), whole);
    }
}

fn read(parser: &mut Parser, bytes: &mut BytesMut) -> (Vec<Reply>, bool) {
    let mut replies = Vec::new();
    loop {
        match parser.next(bytes) {
            Ok(Some(reply)) => replies.push(reply),
            Ok(None) => return (replies, false),
            Err(_) => return (replies, true),
        }
    }
}

#[test]
fn a_value_of_the_largest_length_is_read() {
    let value = vec![b'v'; LONGEST_VALUE];
    let mut input = format!("VA {LONGEST_VALUE} O1\r\n").into_bytes();
    input.extend_from_slice(&value);
    input.extend_from_slice(b"\r\n");
    let read = meta(Code::Value, Some(&value), [None, None, Some(1)]);
    assert_eq!(all(&input).unwrap(), [read]);
}

#[test]
fn the_longest_line_is_read_when_its_end_arrives_in_pieces() {
    let line = format!("VERSION {}\r\n", "1".repeat(LONGEST_LINE - 8));
    for cut in line.len() - 3..line.len() {
        let (mut parser, mut bytes) = (Parser::default(), BytesMut::from(&line[..cut]));
        assert_eq!(parser.next(&mut bytes), Ok(None), "{cut}");
        bytes.extend_from_slice(&line.as_bytes()[cut..]);
        assert!(parser.next(&mut bytes).is_ok_and(|reply| reply.is_some()));
    }
}
