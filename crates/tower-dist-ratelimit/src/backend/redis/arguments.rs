use smallvec::SmallVec;

use super::{
    call::Call,
    reply::{Words, word},
};

/// The arguments of calls to one script that go out as one: for each call a key and an ask per policy. What is the same
/// for all calls is there once: the keys, or else the ask, which nearly always is for one token.
pub(super) struct Arguments<'a> {
    calls: &'a [Call],
    one_row: bool,
    one_ask: bool,
}

impl<'a> Arguments<'a> {
    pub(super) fn of(calls: &'a [Call]) -> Self {
        let [first, others @ ..] = calls else {
            return Self {
                calls,
                one_row: false,
                one_ask: false,
            };
        };
        let same_keys = |call: &Call| {
            let tags = first.asks.iter().zip(&call.asks);
            tags.clone().all(|(one, other)| one.tag == other.tag)
        };
        let one_row = !others.is_empty() && others.iter().all(same_keys);
        let mut asks = calls.iter().flat_map(|call| &call.asks);
        let ask = asks.next();
        let same = ask.is_some_and(|ask| asks.all(|other| other.text == ask.text));
        Self {
            calls,
            one_row,
            one_ask: same && !one_row,
        }
    }

    fn rows(&self) -> &'a [Call] {
        match self.calls {
            [first, ..] if self.one_row => std::slice::from_ref(first),
            calls => calls,
        }
    }

    pub(super) fn number_of_keys(&self) -> usize {
        self.rows().iter().map(|call| call.asks.len()).sum()
    }

    /// Hands each key over.
    pub(super) fn keys(&self, mut each: impl FnMut(&[u8])) {
        let mut key = Vec::with_capacity(128);
        for call in self.rows() {
            for (ask, rule) in call.asks.iter().zip(&call.script.rules) {
                rule.keys.write(&ask.tag, &mut key);
                each(&key);
            }
        }
    }

    pub(super) fn asks(&self) -> impl Iterator<Item = &'a [u8]> {
        let asks = self.calls.iter().flat_map(|call| &call.asks);
        let most = if self.one_ask { 1 } else { usize::MAX };
        asks.map(|ask| &ask.text[..]).take(most)
    }
}

/// What the script says on each call; none if that is not what such calls are answered.
pub(super) fn words(calls: &[Call], numbers: &[i64]) -> Option<Vec<Words>> {
    let mut numbers = numbers.iter().copied();
    let mut words = Vec::with_capacity(calls.len());
    for call in calls {
        let mut said = SmallVec::new();
        if !call.settles {
            for ask in &call.asks {
                said.push(word(&mut numbers, ask.cost)?);
            }
        }
        words.push(said);
    }
    numbers.next().is_none().then_some(words)
}
