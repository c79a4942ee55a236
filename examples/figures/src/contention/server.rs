//! The simulated server, with the network before it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rand::rngs::StdRng;
use tokio::time::{Instant, sleep};

use super::network::Network;
use super::row::{Conflict, Row};
use crate::virtual_time::{figure_ms, virtual_ms};

/// What all clients of a trial talk to.
#[derive(Debug)]
pub(crate) struct Server {
    start: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    network: Network,
    row: Row,
    /// When writes arrived, in milliseconds.
    writes: Vec<f64>,
}

impl Server {
    /// Its time starts now.
    pub(crate) fn start(random: StdRng) -> Self {
        Self {
            start: Instant::now(),
            state: Mutex::new(State {
                network: Network::new(random),
                row: Row::default(),
                writes: Vec::new(),
            }),
        }
    }

    /// One client's try: it reads the row, and writes it if it is unchanged by then.
    pub(crate) async fn update(&self) -> Result<(), Conflict> {
        let [read, version, write, result] = self.state().network.legs();
        sleep(virtual_ms(read)).await;
        let seen = self.state().row.read();
        // Nothing happens at the client in between.
        sleep(virtual_ms(version + write)).await;
        let written = self.write(|row| row.write(seen));
        sleep(virtual_ms(result)).await;
        written
    }

    fn write<T>(&self, write: impl FnOnce(&mut Row) -> T) -> T {
        let now = self.elapsed();
        let mut state = self.state();
        state.writes.push(now);
        write(&mut state.row)
    }

    /// The time since the start, in milliseconds.
    pub(crate) fn elapsed(&self) -> f64 {
        figure_ms(self.start.elapsed())
    }

    /// When writes arrived so far, in milliseconds.
    pub(crate) fn writes(&self) -> Vec<f64> {
        self.state().writes.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
