use std::io::Write;

use smallvec::SmallVec;

use super::{
    call::Call,
    combiner::MOST,
    reply::{Words, word},
    run,
};

/// The arguments of calls to one script that go out as one: for each row a key and an ask per policy. What is the same for
/// all rows is there once: the keys, or else the ask, which nearly always is for one token.
pub(super) struct Arguments<'a> {
    rows: SmallVec<[Row<'a>; MOST]>,
    one_row: bool,
    one_ask: bool,
}

/// A call, or several in a row that are decided as one.
type Row<'a> = &'a [Call];

fn rows(calls: &[Call]) -> impl Iterator<Item = Row<'_>> {
    calls.chunk_by(run::may_follow)
}

impl<'a> Arguments<'a> {
    pub(super) fn of(calls: &'a [Call]) -> Self {
        let rows: SmallVec<[Row<'a>; MOST]> = rows(calls).collect();
        // No row is empty.
        let asks = |row: Row<'a>| row.iter().take(1).flat_map(|call| &call.asks);
        let first = rows.first().copied().unwrap_or_default();
        let same_keys = |row: &Row<'a>| {
            let mut tags = asks(first).zip(asks(row));
            tags.all(|(one, other)| one.tag == other.tag)
        };
        let one_row = rows.len() > 1 && rows.iter().all(same_keys);
        let text = asks(first).next().map(|ask| &ask.text);
        let same_ask = |row: &Row<'a>| {
            row.len() == first.len() && asks(row).all(|ask| Some(&ask.text) == text)
        };
        let one_ask = !one_row && rows.iter().all(same_ask);
        Self {
            rows,
            one_row,
            one_ask,
        }
    }

    /// The rows whose keys are there.
    fn with_keys(&self) -> &[Row<'a>] {
        &self.rows[..if self.one_row { 1 } else { self.rows.len() }]
    }

    pub(super) fn number_of_keys(&self) -> usize {
        self.with_keys().iter().map(|row| row[0].asks.len()).sum()
    }

    /// Hands each key over.
    pub(super) fn keys(&self, mut each: impl FnMut(&[u8])) {
        let mut key = Vec::with_capacity(128);
        for row in self.with_keys() {
            let call = &row[0];
            for (ask, rule) in call.asks.iter().zip(&call.script.rules) {
                rule.keys.write(&ask.tag, &mut key);
                each(&key);
            }
        }
    }

    /// Hands each ask over.
    pub(super) fn asks(&self, mut each: impl FnMut(&[u8])) {
        for row in &self.rows {
            for ask in &row[0].asks {
                if row.len() == 1 {
                    each(&ask.text);
                } else {
                    let mut text: SmallVec<[u8; 24]> = SmallVec::new();
                    // Writing into memory does not fail.
                    let _ = write!(text, "x{} {}", ask.cost, row.len());
                    each(&text);
                }
                if self.one_ask {
                    return;
                }
            }
        }
    }
}

/// What the script says on each call; none if that is not what such calls are answered.
pub(super) fn words(calls: &[Call], numbers: &[i64]) -> Option<Vec<Words>> {
    let mut numbers = numbers.iter().copied();
    let mut words = Vec::with_capacity(calls.len());
    for row in rows(calls) {
        match row {
            [call] => {
                let mut said = SmallVec::new();
                if !call.settles {
                    for ask in &call.asks {
                        said.push(word(&mut numbers, ask.cost)?);
                    }
                }
                words.push(said);
            }
            run => words.extend(run::said(run, numbers.next()?)?),
        }
    }
    numbers.next().is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        Policy, Quota,
        backend::{
            Charge, PolicyId,
            redis::{
                call::{Asked, Verb},
                reply::Said,
                script::{Rule, Script},
            },
        },
    };

    /// Calls of one token bucket, of 3 tokens a second, for these keys and costs.
    fn calls(asked: &[(&str, u64)]) -> Vec<Call> {
        let policy = Policy::new("p", Quota::per_second(3));
        let rule = Arc::new(Rule::new("rl", &policy).unwrap());
        let script = Arc::new(Script::new(vec![Arc::clone(&rule)]));
        let call = |&(key, cost): &(&str, u64)| {
            let charge = Charge::new(PolicyId::new(0), key.as_bytes(), cost);
            let ask = Asked::new(&charge, &rule, Verb::Acquire).unwrap();
            Call {
                script: Arc::clone(&script),
                asks: SmallVec::from_iter([ask]),
                settles: false,
            }
        };
        asked.iter().map(call).collect()
    }

    /// The number of keys, and the asks.
    fn sent(asked: &[(&str, u64)]) -> (usize, Vec<String>) {
        let calls = calls(asked);
        let arguments = Arguments::of(&calls);
        let mut asks = Vec::new();
        arguments.asks(|ask| asks.push(String::from_utf8(ask.to_vec()).unwrap()));
        let mut keys = 0;
        arguments.keys(|_| keys += 1);
        assert_eq!(keys, arguments.number_of_keys());
        (keys, asks)
    }

    #[test]
    fn what_is_the_same_for_all_is_sent_once() {
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
            // Nothing to take, nothing to divide by.
            (&[("a", 0), ("a", 0)], 1, &["0", "0"]),
        ] {
            assert_eq!(sent(asked), (keys, texts(asks)), "{asked:?}");
        }
    }

    #[test]
    fn a_run_is_told_what_each_request_would_be_alone() {
        let said = |remaining, reset, granted, wait| {
            Words::from_iter([Said {
                remaining,
                reset,
                granted,
                wait,
            }])
        };
        // A token is 1,000,000 units of which 3 drain in a microsecond; 200 units were used.
        let calls = calls(&[("a", 1), ("a", 1), ("a", 1)]);
        assert_eq!(
            words(&calls, &[200]).unwrap(),
            [
                said(1, 333_400, 1, 0),
                said(0, 666_734, 1, 0),
                said(0, 666_734, -1, 67),
            ]
        );
        for wrong in [&[][..], &[-1], &[1 << 53], &[1, 2]] {
            assert_eq!(words(&calls, wrong), None, "{wrong:?}");
        }
    }
}
