use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use tokio::time::sleep_until;

use super::*;

/// The time of one round trip.
const TRIP: Duration = Duration::from_millis(10);

/// A server that gives its configured answers, and then allows every request.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    answers: VecDeque<Result<bool, Problem>>,
    /// Tokens of charges that were allowed.
    taken: u64,
    sent: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Problem {
    /// Nothing was charged.
    Busy,
    Unknown,
    /// The keys are in two places.
    Apart,
    Unsent,
    /// Nothing was charged, and there may be room soon.
    Full,
}

impl From<Problem> for BackendError {
    fn from(problem: Problem) -> Self {
        Self::new(format!("{problem:?}"))
    }
}

impl Server {
    fn answering(answers: impl IntoIterator<Item = Result<bool, Problem>>) -> Self {
        let server = Self::default();
        server.state().answers.extend(answers);
        server
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn part(&self, places: impl IntoIterator<Item = usize>) -> Request {
        Request {
            server: self.clone(),
            places: places.into_iter().collect(),
            returned: None,
        }
    }

    fn taken(&self) -> u64 {
        self.state().taken
    }
}

/// A charge of one token at each place, or a correction.
struct Request {
    server: Server,
    places: Vec<usize>,
    returned: Option<u64>,
}

impl TransactionPart for Request {
    type Failure = Problem;

    fn send(&self) -> Result<PartAnswer<Self>, Problem> {
        let mut state = self.server.state();
        state.sent += 1;
        let answer = state.answers.pop_front().unwrap_or(Ok(true));
        let charges = self.places.len();
        match (answer, self.returned) {
            (Err(unsent @ (Problem::Unsent | Problem::Full)), _) => return Err(unsent),
            (Ok(true), None) => state.taken += u64::try_from(charges).unwrap(),
            (Ok(_), Some(tokens)) => state.taken -= tokens,
            _ => {}
        }
        let arrival = Instant::now() + TRIP;
        Ok(Box::pin(async move {
            sleep_until(arrival).await;
            let allowed = answer?;
            let decision = match allowed {
                true => Decision::allow(1, 5, 3, Duration::ZERO),
                false => Decision::reject(5, 0, None, Duration::ZERO),
            };
            let decisions = std::iter::repeat_n(decision, charges).collect();
            Ok(JointDecision { allowed, decisions })
        }))
    }

    fn places(&self) -> impl Iterator<Item = usize> {
        self.places.iter().copied()
    }

    fn refund(&self, granted: impl Iterator<Item = u64>) -> Self {
        Self {
            returned: Some(granted.sum()),
            ..self.server.part(self.places())
        }
    }

    fn split(&self, problem: &Problem) -> Option<Vec<Self>> {
        let one = |place| self.server.part([place]);
        (*problem == Problem::Apart).then(|| self.places().map(one).collect())
    }

    fn is_retryable(problem: &Problem) -> bool {
        matches!(problem, Problem::Busy | Problem::Full)
    }
}

/// Charges one server that allows and one server that rejects.
fn rejected(transactions: &Transactions, allows: &Server) -> PendingVerdict {
    let rejects = Server::answering([Ok(false)]);
    let parts = vec![allows.part([0]), rejects.part([1])];
    transactions.acquire(parts).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_rejection_reports_the_remaining_tokens_after_the_refunds_in_flight() {
    let (transactions, allows) = (Transactions::current(), Server::default());
    let asked = Instant::now();
    let verdict = rejected(&transactions, &allows).await.unwrap();
    assert_eq!((asked.elapsed(), allows.state().sent), (TRIP, 2));
    let [one, other] = &verdict.decisions[..] else {
        panic!("{verdict:?}")
    };
    assert!(!verdict.allowed && one.allowed && !other.allowed);
    assert_eq!((one.remaining, one.granted), (4, 0));
    assert_eq!((one.source, other.source), (Source::Parts, Source::Parts));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_drops_its_request_immediately_keeps_no_tokens() {
    let (transactions, allows) = (Transactions::current(), Server::default());
    drop(rejected(&transactions, &allows));
    assert_eq!(allows.taken(), 1);
    transactions.finish(RETRIED_FOR).await.unwrap();
    assert_eq!((allows.taken(), transactions.lost()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_refund_without_room_is_retried_until_it_is_made() {
    let busy = [Ok(true), Err(Problem::Busy), Err(Problem::Busy)];
    let (transactions, allows) = (Transactions::current(), Server::answering(busy));
    drop(rejected(&transactions, &allows));
    transactions.finish(RETRIED_FOR).await.unwrap();
    assert_eq!((allows.taken(), transactions.lost()), (0, 0));
    assert_eq!(allows.state().sent, 4);
}

#[tokio::test(start_paused = true)]
async fn a_refund_whose_outcome_is_unknown_is_given_up_and_counted() {
    for unknown in [Problem::Unknown, Problem::Unsent] {
        let answers = [Ok(true), Err(unknown)];
        let (transactions, allows) = (Transactions::current(), Server::answering(answers));
        assert!(!rejected(&transactions, &allows).await.unwrap().allowed);
        transactions.finish(RETRIED_FOR).await.unwrap();
        assert_eq!((allows.taken(), transactions.lost()), (1, 1));
        assert_eq!(allows.state().sent, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refund_is_given_up_after_five_seconds() {
    let busy = std::iter::repeat_n(Err(Problem::Busy), 10_000);
    let answers = std::iter::once(Ok(true)).chain(busy);
    let (transactions, allows) = (Transactions::current(), Server::answering(answers));
    drop(rejected(&transactions, &allows));
    let early = transactions.finish(RETRIED_FOR).await;
    assert!(early.unwrap_err().is_timeout());
    assert_eq!(transactions.lost(), 0);
    transactions.finish(LONGEST_PAUSE + 2 * TRIP).await.unwrap();
    assert_eq!(transactions.lost(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_correction_survives_its_caller_and_fails_with_its_last_part() {
    let (transactions, server) = (Transactions::current(), Server::default());
    server.state().taken = 7;
    let correction = |server: &Server| server.part([0]).refund([3].into_iter());
    drop(transactions.settle(vec![correction(&server)]).unwrap());
    transactions.finish(RETRIED_FOR).await.unwrap();
    assert_eq!(server.taken(), 4);
    let broken = Server::answering([Err(Problem::Unknown)]);
    let parts = vec![correction(&server), correction(&broken)];
    assert!(transactions.settle(parts).unwrap().await.is_err());
    assert_eq!((server.taken(), transactions.lost()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_correction_that_finds_a_full_queue_is_retried_until_it_is_made() {
    let (transactions, server) = (
        Transactions::current(),
        Server::answering([Err(Problem::Full)]),
    );
    server.state().taken = 7;
    let correction = server.part([0]).refund([3].into_iter());
    assert!(transactions.settle(vec![correction]).unwrap().await.is_ok());
    assert_eq!((server.taken(), transactions.lost()), (4, 0));
}

#[tokio::test(start_paused = true)]
async fn keys_that_have_moved_apart_are_asked_one_by_one() {
    let apart = Server::answering([Err(Problem::Apart), Ok(true), Ok(false)]);
    let other = Server::default();
    let transactions = Transactions::current();
    let parts = vec![apart.part([0, 2]), other.part([1])];
    let verdict = transactions.acquire(parts).unwrap().await.unwrap();
    let allowed = verdict.decisions.iter().map(|decision| decision.allowed);
    assert_eq!(allowed.collect::<Vec<_>>(), [true, true, false]);
    transactions.finish(RETRIED_FOR).await.unwrap();
    assert_eq!((apart.taken(), other.taken()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_transaction_without_a_part_that_can_be_sent_fails_immediately() {
    let unsent = || Server::answering([Err(Problem::Unsent)]).part([0]);
    let transactions = Transactions::current();
    assert!(transactions.acquire(vec![unsent(), unsent()]).is_err());
    let full = Server::answering([Err(Problem::Full)]);
    assert!(transactions.acquire(vec![full.part([0])]).is_err());
    assert!(transactions.settle(vec![unsent()]).is_err());
    let sent = Server::default();
    let parts = vec![unsent(), sent.part([1])];
    assert!(transactions.acquire(parts).unwrap().await.is_err());
    transactions.finish(RETRIED_FOR).await.unwrap();
    assert_eq!(sent.taken(), 0);
}

#[tokio::test(start_paused = true)]
async fn beyond_the_maximum_transactions_fail_before_they_send_anything() {
    let (transactions, server) = (Transactions::current(), Server::default());
    let start = || transactions.acquire(vec![server.part([0]), server.part([1])]);
    for _ in 0..MOST {
        drop(start().unwrap());
    }
    let sent = server.state().sent;
    let error = start().err().unwrap().to_string();
    let says = format!("{MOST} transactions are in progress, or `finish` waits");
    assert!(error.ends_with(&says), "{error}");
    assert_eq!(server.state().sent, sent);
    transactions.finish(RETRIED_FOR).await.unwrap();
    assert!(start().is_ok());
}
