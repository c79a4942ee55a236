use std::{
    env,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::{Duration, UNIX_EPOCH},
};

use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::{sleep, timeout},
};

pub(crate) const MEMBERS: u64 = 4;

/// Longer than any wait of a test on a busy machine.
const LONG: Duration = Duration::from_secs(30);

/// Processes that share a limit; each is this test program, started again.
pub(crate) struct Fleet {
    members: Vec<Child>,
    lines: UnboundedReceiver<String>,
}

impl Fleet {
    /// Starts the processes, and waits until all are connected.
    pub(crate) async fn start(url: &str, case: &str) -> Self {
        let (tell, lines) = unbounded_channel();
        let member = |_| {
            let name = "member::a_member_asks_for_more_than_the_fleet_is_allowed";
            let mut member = Command::new(env::current_exe().unwrap())
                .args(["--exact", name, "--nocapture"])
                .env("OUTAGE_URL", url)
                .env("OUTAGE_CASE", case)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let (out, tell) = (member.stdout.take().unwrap(), tell.clone());
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines() {
                    let _ = tell.send(line.unwrap());
                }
            });
            member
        };
        let members = (0..MEMBERS).map(member).collect();
        let mut fleet = Self { members, lines };
        fleet.all_say("connected").await;
        fleet
    }

    async fn all_say(&mut self, what: &str) {
        let mut missing = MEMBERS;
        while missing > 0 {
            let line = timeout(LONG, self.lines.recv()).await;
            let line = line.expect(what).expect("the processes are running");
            missing -= u64::from(line == what);
        }
    }

    /// Waits until each process has used the local fallback and then the backend again.
    pub(crate) async fn all_have_returned(&mut self) {
        self.all_say("returned").await;
    }

    /// Ends the processes. Returns the sorted times of admitted requests, in microseconds of Unix time.
    pub(crate) async fn stop(mut self) -> Vec<u64> {
        for member in &mut self.members {
            drop(member.stdin.take());
        }
        let mut admitted = Vec::new();
        while let Some(line) = timeout(LONG, self.lines.recv()).await.expect("the end") {
            admitted.extend(
                line.strip_prefix("admitted ")
                    .map(|time| time.parse::<u64>().unwrap()),
            );
        }
        for member in &mut self.members {
            assert!(member.wait().unwrap().success());
        }
        admitted.sort_unstable();
        admitted
    }
}

/// The highest number of requests admitted in any interval, minus the rate (per second) times the interval.
pub(crate) fn excess(admitted: &[u64], rate: u64) -> u64 {
    // The level, in millionths of a token, of a bucket without a limit that leaks at the rate.
    let (mut level, mut most, mut before) = (0_u64, 0, 0);
    for &time in admitted {
        level = level.saturating_sub((time - before) * rate) + 1_000_000;
        before = time;
        most = most.max(level);
    }
    most / 1_000_000
}

/// The number of requests admitted in this window.
pub(crate) fn in_window(admitted: &[u64], begin: Duration, length: Duration) -> u64 {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap();
    let window = micros(begin)..micros(begin + length);
    admitted.iter().filter(|time| window.contains(time)).count() as u64
}

/// Waits for the start of a window of Unix time, and returns it.
pub(crate) async fn begin_of_a_window(length: Duration) -> Duration {
    let now = UNIX_EPOCH.elapsed().unwrap();
    let window = now.as_secs() / length.as_secs() + 1;
    let begin = Duration::from_secs(window * length.as_secs());
    sleep(begin - now).await;
    begin
}
