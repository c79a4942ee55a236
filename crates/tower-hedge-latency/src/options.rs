use crate::elsewhere::Anywhere;
use crate::losers::Cancel;

/// The parts of a layer that have a type of their own.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options<A = Anywhere, L = Cancel> {
    /// Where hedges go.
    pub(crate) elsewhere: A,
    /// The fate of losers.
    pub(crate) losers: L,
}
