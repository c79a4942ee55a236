use std::io::Write;

use smallvec::SmallVec;

use super::{
    reply::{PolicyReply, Replies, parse_reply},
    rows::{Row, Rows},
    run::Run,
};

/// The arguments of a call to a script: for each row, a key and an ask per policy. A row is one request, or a run of
/// equal requests. An *ask* is the text of a row's requests to one key, see [`KeyArgs`](super::call::KeyArgs).
///
/// If there are several rows and all have the same keys in the same order, the keys are sent once. Otherwise, if all
/// asks are the same, one ask is sent.
pub(super) struct Arguments<'a> {
    rows: &'a [Row],
    one_row: bool,
    one_ask: bool,
}

impl<'a> Arguments<'a> {
    pub(super) fn of(rows: &'a Rows) -> Self {
        let rows = &rows.0;
        let first = rows.first();
        let asks = |row: &'a Row| row.call.asks.iter();
        let keys = |row: &'a Row| asks(row).map(|ask| (ask.place, &ask.tag));
        let same_keys = |row: &'a Row| first.is_some_and(|first| keys(first).eq(keys(row)));
        let one_row = rows.len() > 1 && rows.iter().all(same_keys);
        let ask = first.and_then(|first| first.call.asks.first());
        let same_ask = |row: &'a Row| {
            let as_often = first.is_some_and(|first| first.times == row.times);
            let asks_the_same = |other| ask.is_some_and(|ask| ask.asks_the_same(other));
            as_often && row.call.is_whole() && asks(row).all(asks_the_same)
        };
        let one_ask = !one_row && rows.iter().all(same_ask);
        Self {
            rows,
            one_row,
            one_ask,
        }
    }

    /// Returns the rows whose keys are sent.
    fn with_keys(&self) -> &'a [Row] {
        &self.rows[..if self.one_row { 1 } else { self.rows.len() }]
    }

    pub(super) fn number_of_keys(&self) -> usize {
        let rows = self.with_keys().iter();
        rows.map(|row| row.call.script.policies.len()).sum()
    }

    /// Passes each key to `each`. A policy that does not apply to a request has the key of another policy as a
    /// placeholder, because all keys of a call must be in one slot of a Cluster. The script ignores the placeholder.
    pub(super) fn keys(&self, mut each: impl FnMut(&[u8])) {
        let mut key = Vec::with_capacity(128);
        for Row { call, .. } in self.with_keys() {
            for number in call.by_policy() {
                if let Some(ask) = call.asks.get(number.unwrap_or(0)) {
                    call.script.policies[ask.place]
                        .keys
                        .write(&ask.tag, &mut key);
                    each(&key);
                }
            }
        }
    }

    /// Passes the asks to `each`, or only the first one if `one_ask` is set. An ask is the text of a row's requests to
    /// one policy. The ask `-` means that the policy does not apply.
    pub(super) fn asks(&self, mut each: impl FnMut(&[u8])) {
        for Row { call, times } in self.rows {
            for number in call.by_policy() {
                let Some(ask) = number.map(|number| &call.asks[number]) else {
                    each(b"-");
                    continue;
                };
                let mut text: SmallVec<[u8; 24]> = SmallVec::new();
                // Writing into memory does not fail.
                let _ = match *times {
                    1 if ask.text.is_empty() => write!(text, "{}", ask.cost),
                    1 => text.write_all(&ask.text),
                    _ => write!(text, "x{} {times}", ask.cost),
                };
                each(&text);
                if self.one_ask {
                    return;
                }
            }
        }
    }
}

/// The script's answer for a [`Row`], which is one request or a run of equal requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RowAnswer {
    One(Replies),
    Run(Run),
}

impl RowAnswer {
    /// Returns the answer to the request that has `rank` requests before it in the row.
    pub(super) fn replies(&self, rank: usize) -> Replies {
        match self {
            Self::One(replies) => replies.clone(),
            Self::Run(run) => Replies::from_iter([run.reply(rank)]),
        }
    }
}

/// Parses the script's answer into one item per row. Returns `None` if there are too few or too many numbers, or if the
/// used units of a run (a row of several equal requests) are an impossible number.
pub(super) fn row_answers(rows: &Rows, numbers: &[i64]) -> Option<Vec<RowAnswer>> {
    let mut numbers = numbers.iter().copied();
    let mut row_answers = Vec::with_capacity(rows.0.len());
    for Row { call, times } in &rows.0 {
        row_answers.push(if *times == 1 {
            let mut replies = Replies::new();
            if !call.settles {
                replies.resize(call.asks.len(), PolicyReply::default());
                for number in call.by_policy().flatten() {
                    replies[number] = parse_reply(&mut numbers, call.asks[number].cost)?;
                }
            }
            RowAnswer::One(replies)
        } else {
            RowAnswer::Run(Run::new(call, numbers.next()?)?)
        });
    }
    numbers.next().is_none().then_some(row_answers)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{batch::Batch, call::ScriptCall, compiled_policy::CompiledPolicy, script::Script};
    use tower_dist_ratelimit::{Policy, Quota, backend::toolkit::Health};

    /// Requests to one token bucket, of 3 tokens a second, for these keys and costs.
    fn rows(asked: &[(&str, u64)]) -> Rows {
        let policy = Policy::new("p", Quota::per_second(3));
        let policy = Arc::new(CompiledPolicy::new("rl", &policy).unwrap());
        let script = Arc::new(Script::new(vec![policy]));
        let call = |&(key, cost): &(&str, u64)| ScriptCall::to_one(&script, key, cost);
        let batch = Arc::new(Batch::new(Arc::default(), Arc::new(Health::up())));
        let callers: Vec<_> = asked.iter().map(|ask| batch.join(call(ask))).collect();
        let rows = batch.close().rows.clone();
        drop(callers);
        rows
    }

    /// Returns the number of keys, and the text of each request.
    fn sent(asked: &[(&str, u64)]) -> (usize, Vec<String>) {
        let rows = rows(asked);
        let arguments = Arguments::of(&rows);
        let mut asks = Vec::new();
        arguments.asks(|ask| asks.push(String::from_utf8(ask.to_vec()).unwrap()));
        let mut keys = 0;
        arguments.keys(|_| keys += 1);
        assert_eq!(keys, arguments.number_of_keys());
        (keys, asks)
    }

    #[test]
    fn a_key_or_an_ask_that_all_requests_share_is_sent_once() {
        let texts = |asks: &[&str]| asks.iter().map(|ask| (*ask).to_owned()).collect();
        for (asked, keys, asks) in [
            (&[("a", 1)][..], 1, &["1"][..]),
            (&[("a", 2), ("a", 2), ("a", 2)], 1, &["x2 3"]),
            (&[("a", 1), ("b", 1)], 2, &["1"]),
            (&[("a", 1), ("b", 2)], 2, &["1", "2"]),
            (&[("a", 1), ("a", 2), ("a", 2)], 1, &["1", "x2 2"]),
            (&[("a", 1), ("a", 1), ("b", 1), ("b", 1)], 2, &["x1 2"]),
            (
                &[("a", 1), ("a", 1), ("b", 1), ("a", 1)],
                3,
                &["x1 2", "1", "1"],
            ),
            // A cost of zero makes no run, because the script divides by the cost.
            (&[("a", 0), ("a", 0)], 1, &["0", "0"]),
        ] {
            assert_eq!(sent(asked), (keys, texts(asks)), "{asked:?}");
        }
    }

    #[test]
    fn each_request_of_a_run_gets_the_answer_of_a_request_alone() {
        let one = |remaining, reset, granted, wait| {
            Replies::from_iter([PolicyReply {
                remaining,
                reset,
                granted,
                wait,
            }])
        };
        // A token is 1,000,000 units, and 3 units drain in a microsecond. 200 units were used.
        let rows = rows(&[("a", 1), ("a", 1), ("a", 1)]);
        let row_answers = |numbers: &[i64]| row_answers(&rows, numbers);
        let [run] = &row_answers(&[200]).unwrap()[..] else {
            panic!("{rows:?} is not one row");
        };
        let replies: Vec<Replies> = (0..4).map(|rank| run.replies(rank)).collect();
        assert_eq!(
            replies,
            [
                one(1, 333_400, 1, 0),
                one(0, 666_734, 1, 0),
                one(0, 666_734, -1, 67),
                one(0, 666_734, -1, 67),
            ]
        );
        for wrong in [&[][..], &[-1], &[1 << 53], &[1, 2]] {
            assert_eq!(row_answers(wrong), None, "{wrong:?}");
        }
    }
}
