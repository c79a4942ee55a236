use super::{KeyExtractor, KeySink, RequestParts};
use crate::BuildError;

/// One key, or else another, from [`KeyExtractor::or`].
#[derive(Clone, Copy, Debug)]
pub struct Or<A, B> {
    first: A,
    second: B,
}

impl<A, B> Or<A, B> {
    pub(super) fn new(first: A, second: B) -> Self {
        Self { first, second }
    }
}

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for Or<A, B> {
    fn extract(&self, head: RequestParts<'_>, sink: &mut KeySink) -> Option<()> {
        // Said first which of the two it is: what a client writes into a header cannot pose as another one's address.
        let (_, found) = sink.key(|sink| {
            sink.part(b"0");
            self.first.extract(head, sink)
        });
        if found {
            return Some(());
        }
        sink.part(b"1");
        self.second.extract(head, sink)
    }

    fn check(&self) -> Result<(), BuildError> {
        self.first.check()?;
        self.second.check()
    }

    fn hint(&self) -> Option<&'static str> {
        self.second.hint().or_else(|| self.first.hint())
    }
}

/// Both keys, as two parts of one. If one is missing, both are.
impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for (A, B) {
    fn extract(&self, head: RequestParts<'_>, sink: &mut KeySink) -> Option<()> {
        self.0.extract(head, sink)?;
        self.1.extract(head, sink)
    }

    fn check(&self) -> Result<(), BuildError> {
        self.0.check()?;
        self.1.check()
    }

    fn hint(&self) -> Option<&'static str> {
        self.0.hint().or_else(|| self.1.hint())
    }
}

#[cfg(test)]
mod tests {
    use crate::key::{self, KeyExtractor};

    #[test]
    fn what_is_missing_is_hinted_at_wherever_it_is() {
        let hint = key::peer_addr().hint();
        assert!(hint.is_some());
        assert_eq!((key::peer_addr(), key::method()).hint(), hint);
        assert_eq!((key::method(), key::peer_addr()).hint(), hint);
        assert_eq!(key::peer_addr().or(key::method()).hint(), hint);
        assert_eq!(key::method().or(key::peer_addr()).hint(), hint);
    }
}
