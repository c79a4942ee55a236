/// Who made a [`Decision`](crate::Decision).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// The [`Backend`](crate::backend::Backend), which counts for all.
    #[default]
    Backend,
}
