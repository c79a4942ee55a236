//! The commands of Memcached that the backend uses, in this process and by tokio's clock.

use std::{collections::HashMap, fmt::Write, sync::Mutex, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream},
    time::{Instant, sleep},
};

/// A multiple of every window in the tests, in seconds.
const BEGINNING: u64 = 360_000_000;

thread_local! {
    static START: Instant = Instant::now();
}

/// The clock of a machine that is ahead by `AHEAD` milliseconds. The tasks of a test share a thread, and so the start.
pub(super) fn clock<const AHEAD: u64>() -> u64 {
    let since = START.with(Instant::elapsed) + Duration::from_millis(AHEAD);
    BEGINNING * 1_000_000_000 + u64::try_from(since.as_nanos()).unwrap()
}

struct Item {
    value: Vec<u8>,
    cas: u64,
    end: Instant,
}

#[derive(Default)]
pub(super) struct Store {
    items: Mutex<(HashMap<String, Item>, u64)>,
}

impl Store {
    /// Serves one connection. Bytes take `latency` in each direction.
    pub(super) async fn serve(&self, stream: DuplexStream, latency: Duration) {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        while let Ok(1..) = stream.read_line(&mut line).await {
            sleep(latency).await;
            let mut answers = Vec::new();
            loop {
                let mut value = Vec::new();
                if let Some(rest) = line.strip_prefix("ms ") {
                    let length = rest.split(' ').nth(1).unwrap().parse::<usize>().unwrap();
                    value.resize(length + 2, 0);
                    stream.read_exact(&mut value).await.unwrap();
                    value.truncate(length);
                }
                answers.extend(self.execute(line.trim_end(), value));
                // Commands of other connections come between two commands of one connection.
                sleep(Duration::from_millis(1)).await;
                line.clear();
                if !stream.buffer().contains(&b'\n') {
                    break;
                }
                stream.read_line(&mut line).await.unwrap();
            }
            sleep(latency).await;
            if stream.write_all(&answers).await.is_err() {
                return;
            }
        }
    }

    fn execute(&self, line: &str, value: Vec<u8>) -> Vec<u8> {
        let mut store = self.items.lock().unwrap();
        let (items, last) = &mut *store;
        let now = Instant::now();
        items.retain(|_, item| item.end > now);
        let mut words = line.split(' ');
        let (command, key) = (words.next().unwrap(), words.next().unwrap());
        let flags: Vec<&str> = words.skip(usize::from(command == "ms")).collect();
        let flag = |name: &str| flags.iter().find_map(|flag| flag.strip_prefix(name));
        let number = |name: &str| flag(name).map(|number| number.parse::<u64>().unwrap());
        let opaque = number("O").unwrap();
        let until = |seconds: Option<u64>| now + Duration::from_secs(seconds.unwrap_or(1 << 30));
        let differs = |item: &Item| number("C").is_some_and(|cas| cas != item.cas);
        *last += 1;
        let code = match (command, items.get_mut(key)) {
            ("mg", None) => "EN",
            ("mg", Some(_)) => "VA",
            ("md", None) => "NF",
            ("ms", None) if flag("C").is_some() => "NF",
            ("ms", Some(_)) if flag("ME").is_some() => "NS",
            (_, Some(item)) if differs(item) => "EX",
            ("md", Some(_)) => {
                items.remove(key);
                "HD"
            }
            ("ms", _) => {
                let (cas, end) = (*last, until(number("T")));
                items.insert(key.to_owned(), Item { value, cas, end });
                "HD"
            }
            ("ma", None) if flag("J").is_none() => "NF",
            ("ma", None) => {
                let (cas, end) = (*last, until(number("N")));
                let value = flag("J").unwrap().as_bytes().to_vec();
                items.insert(key.to_owned(), Item { value, cas, end });
                "VA"
            }
            ("ma", Some(item)) => {
                let before: u64 = String::from_utf8_lossy(&item.value).parse().unwrap();
                let after = match flag("MD") {
                    Some(_) => before.saturating_sub(number("D").unwrap()),
                    None => before + number("D").unwrap(),
                };
                (item.value, item.cas) = (after.to_string().into_bytes(), *last);
                "VA"
            }
            _ => panic!("{line:?}"),
        };
        // An answer has a value only if the command has the flag `v`.
        let code = if code == "VA" && !flags.contains(&"v") {
            "HD"
        } else {
            code
        };
        let item = items.get(key).filter(|_| ["VA", "HD"].contains(&code));
        let mut answer = code.to_owned();
        if let Some(item) = item.filter(|_| code == "VA") {
            write!(answer, " {}", item.value.len()).unwrap();
        }
        write!(answer, " O{opaque}").unwrap();
        if let Some(item) = item {
            if flags.contains(&"c") {
                write!(answer, " c{}", item.cas).unwrap();
            }
            if flags.contains(&"t") {
                write!(answer, " t{}", (item.end - now).as_secs()).unwrap();
            }
        }
        let mut answer = answer.into_bytes();
        answer.extend(b"\r\n");
        if let Some(item) = item.filter(|_| code == "VA") {
            answer.extend(&item.value);
            answer.extend(b"\r\n");
        }
        answer
    }
}
