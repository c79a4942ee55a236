//! Servers that imitate Memcached.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

/// Answers each received piece with the result of `answer`, and closes the connection at the first `None`.
pub(crate) async fn stub(
    answer: impl Fn(&str) -> Option<Vec<u8>> + Clone + Send + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut buffer = [0; 65_536];
                while let Ok(n @ 1..) = stream.read(&mut buffer).await {
                    let Some(bytes) = answer(&String::from_utf8_lossy(&buffer[..n])) else {
                        return;
                    };
                    if stream.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    format!("memcached://127.0.0.1:{port}")
}

/// The answer of a capable server to the commands of the connection check.
pub(crate) fn greeting(asked: &str) -> Option<Vec<u8>> {
    match asked {
        "version\r\n" => Some(b"VERSION 1.6.18\r\n".to_vec()),
        probe if probe.starts_with("ms rl:probe ") => Some(b"HD O1\r\n".to_vec()),
        probe if probe.starts_with("mg rl:probe ") => Some(b"VA 1 c7 O2\r\n1\r\n".to_vec()),
        _ => None,
    }
}

/// The opaque number of the first command in the text.
pub(crate) fn opaque(asked: &str) -> u64 {
    let flag = asked
        .split([' ', '\r'])
        .find_map(|word| word.strip_prefix('O'));
    flag.unwrap().parse().unwrap()
}
