use std::fmt::Display;
use std::hash::Hash;

/// Names the class of a request, for what a layer keeps per class.
pub trait ClassOf<Req> {
    /// Looks the request's class up. `None` without a class.
    fn find<T: PerKey>(&self, request: &Req, table: &T) -> Option<T::Found>;
}

/// A table that a layer keeps, by key.
pub trait PerKey {
    /// An entry.
    type Found;

    /// The entry of `key`; `None` if there is no room for it.
    fn of<K: Hash + Display + ?Sized>(&self, key: &K) -> Option<Self::Found>;
}

/// All requests are of one class.
#[derive(Clone, Copy, Debug, Default)]
pub struct OneClass;

/// A closure names the key of each request.
#[derive(Clone, Copy, Debug)]
pub struct ByKey<F>(pub F);

impl<Req> ClassOf<Req> for OneClass {
    #[inline]
    fn find<T: PerKey>(&self, _: &Req, _: &T) -> Option<T::Found> {
        None
    }
}

impl<F, Req, K> ClassOf<Req> for ByKey<F>
where
    F: Fn(&Req) -> K,
    K: Hash + Display,
{
    fn find<T: PerKey>(&self, request: &Req, table: &T) -> Option<T::Found> {
        table.of(&self.0(request))
    }
}
