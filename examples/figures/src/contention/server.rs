//! The simulated server and its network.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rand::rngs::StdRng;
use tokio::time::{Instant, sleep};

use super::network::Network;
use super::row::{Conflict, Row};
use crate::virtual_time::{figure_ms, virtual_ms};

/// The server of all clients of a trial.
#[derive(Debug)]
pub(crate) struct Server {
    start: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    network: Network,
    row: Row,
    /// Arrival times of the writes, in milliseconds.
    writes: Vec<f64>,
}

impl Server {
    /// Starts the server's clock.
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

    /// Reads the row, and writes it if it is unchanged when the write arrives.
    pub(crate) async fn update(&self) -> Result<(), Conflict> {
        let [read, version, write, result] = self.state().network.legs();
        sleep(virtual_ms(read)).await;
        let seen = self.state().row.read();
        // The client writes as soon as it has the version.
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

    /// Returns the time since the start, in milliseconds.
    pub(crate) fn elapsed(&self) -> f64 {
        figure_ms(self.start.elapsed())
    }

    /// Returns the arrival times of the writes so far, in milliseconds.
    pub(crate) fn writes(&self) -> Vec<f64> {
        self.state().writes.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
