//! A hand-written limiter: a counter per key and window, one `ma` per decision, over one connection without waits
//! between requests.

use std::collections::VecDeque;
use std::io;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};

/// More than the number of tasks.
const MANY: usize = 1024;

type Job = (String, oneshot::Sender<u64>);

/// A handle to the connection.
#[derive(Clone)]
pub(crate) struct Raw(mpsc::Sender<Job>);

impl Raw {
    pub(crate) async fn connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        let (sender, jobs) = mpsc::channel(MANY);
        tokio::spawn(run(stream, jobs));
        Ok(Self(sender))
    }

    /// Decides on a key whose limit is never reached.
    pub(crate) async fn decide(&self, key: &str) -> bool {
        let (answer, count) = oneshot::channel();
        // Keys have no spaces.
        let command = format!("ma {} N3600 J1 D1 t v\r\n", key.replace(' ', "-"));
        if self.0.send((command, answer)).await.is_err() {
            return false;
        }
        count.await.is_ok_and(|count| count <= 1_000_000_000)
    }
}

/// Sends requests in order of arrival, and returns the answers in the same order.
async fn run(mut stream: TcpStream, mut jobs: mpsc::Receiver<Job>) -> io::Result<()> {
    let (mut read, mut write) = stream.split();
    let (mut input, mut output) = (BytesMut::new(), BytesMut::new());
    let (mut arrived, mut waiting) = (Vec::new(), VecDeque::new());
    loop {
        tokio::select! {
            biased;
            n = read.read_buf(&mut input) => {
                if n? == 0 {
                    return Ok(());
                }
                while let Some(count) = reply(&mut input)? {
                    if let Some(answer) = waiting.pop_front() {
                        let _: Result<(), u64> = oneshot::Sender::send(answer, count);
                    }
                }
            }
            n = jobs.recv_many(&mut arrived, MANY) => {
                if n == 0 {
                    return Ok(());
                }
                for (command, answer) in arrived.drain(..) {
                    output.extend_from_slice(command.as_bytes());
                    waiting.push_back(answer);
                }
            }
            n = write.write_buf(&mut output), if !output.is_empty() => {
                n?;
            }
        }
    }
}

/// The count in `VA 1 t60\r\n7\r\n`, or `None` for an incomplete answer.
fn reply(input: &mut BytesMut) -> io::Result<Option<u64>> {
    let Some(head) = input.iter().position(|&byte| byte == b'\n') else {
        return Ok(None);
    };
    let rest = &input[head + 1..];
    let Some(value) = rest.iter().position(|&byte| byte == b'\n') else {
        return Ok(None);
    };
    let digits = std::str::from_utf8(&rest[..value]).map(str::trim_end);
    let count = digits.ok().and_then(|digits| digits.parse().ok());
    let count = count.filter(|_| input.starts_with(b"VA "));
    input.advance(head + value + 2);
    count
        .map(Some)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}
