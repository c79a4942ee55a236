/// Who made a [`Decision`](crate::Decision).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
// As wide as this, moving a decision takes no loads that have to wait for two stores.
#[repr(u32)]
#[non_exhaustive]
pub enum Source {
    /// The [`Backend`](crate::backend::Backend), which counts for all.
    #[default]
    Backend,
}
