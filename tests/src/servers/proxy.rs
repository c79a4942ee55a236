use std::{
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep_until},
};

/// A proxy in front of a server, which forwards all bytes, with a delay, or not at all.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    delay: Arc<AtomicU64>,
    instead: watch::Sender<Option<&'static [u8]>>,
    task: AbortHandle,
}

impl Proxy {
    /// Listens on a free port, on this runtime, until the proxy is dropped.
    ///
    /// # Panics
    ///
    /// Panics if no port is free.
    pub async fn start(to: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let delay = Arc::new(AtomicU64::new(0));
        let (instead, answer) = watch::channel(None);
        let task = serve(listener, to, Arc::clone(&delay), answer);
        let task = tokio::spawn(task).abort_handle();
        Self {
            port,
            delay,
            instead,
            task,
        }
    }

    /// The proxy's port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Delays the server's answers by `delay` from now on.
    pub fn delay(&self, delay: Duration) {
        let micros = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        self.delay.store(micros, Ordering::Relaxed);
    }

    /// Closes all connections, and answers new connections with only these bytes; an empty slice means silence. `None`
    /// serves new connections again; connections opened in between stay unserved.
    pub fn answer_only(&self, bytes: Option<&'static [u8]>) {
        self.instead.send_replace(bytes);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    listener: TcpListener,
    to: u16,
    delay: Arc<AtomicU64>,
    mut instead: watch::Receiver<Option<&'static [u8]>>,
) {
    let (mut connections, mut unserved) = (JoinSet::new(), Vec::new());
    loop {
        let mut client = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => client,
                Err(_) => return,
            },
            Ok(()) = instead.changed() => {
                if instead.borrow().is_some() {
                    connections.abort_all();
                }
                continue;
            }
        };
        let answer = *instead.borrow();
        if let Some(bytes) = answer {
            let _ = client.write_all(bytes).await;
            unserved.push(client);
            continue;
        }
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).await else {
            continue;
        };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        connections.spawn(pass(from_client, to_server, Arc::default()));
        connections.spawn(pass(from_server, to_client, Arc::clone(&delay)));
    }
}

/// Forwards bytes; each piece is delayed by the delay at its arrival.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Arc<AtomicU64>) {
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let reading = async {
        let mut bytes = vec![0; 65_536];
        while let Ok(n @ 1..) = from.read(&mut bytes).await {
            let due = Instant::now() + Duration::from_micros(delay.load(Ordering::Relaxed));
            if sender.send((due, bytes[..n].to_vec())).is_err() {
                break;
            }
        }
        drop(sender);
    };
    let writing = async {
        while let Some((due, bytes)) = receiver.recv().await {
            sleep_until(due).await;
            if to.write_all(&bytes).await.is_err() {
                break;
            }
        }
    };
    tokio::join!(reading, writing);
}
