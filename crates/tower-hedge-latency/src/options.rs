use crate::elsewhere::Anywhere;
use crate::key::OneClass;
use crate::losers::Cancel;

/// The parts of a layer that most do without: which class a request belongs to, where hedges go, and
/// what becomes of losers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<K = OneClass, A = Anywhere, L = Cancel> {
    pub(crate) key: K,
    pub(crate) elsewhere: A,
    pub(crate) losers: L,
}
