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
        let first = &rows[0];
        let same_keys = |row: &Row<'_>| {
            let tags = first[0].asks.iter().zip(&row[0].asks);
            tags.clone().all(|(one, other)| one.tag == other.tag)
        };
        let one_row = rows.len() > 1 && rows.iter().all(same_keys);
        let text = &first[0].asks[0].text;
        let same_ask = |row: &Row<'_>| {
            row.len() == first.len() && row[0].asks.iter().all(|ask| ask.text == *text)
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
