/// What happens to a request in which a policy finds no key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingKey {
    /// All such requests share one bucket. The default: leaving the key out must not get anybody around the limit. With
    /// the `tracing` feature there is one warning, because it can mean that the server was set up wrongly.
    #[default]
    Shared,
    /// The policy does not apply to such a request.
    Skip,
    /// Such a request is answered 400 and charged nothing.
    Refuse,
}
