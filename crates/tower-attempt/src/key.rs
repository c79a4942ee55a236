use std::fmt::Display;
use std::hash::Hash;

/// Finds the entry of a request's class in a [table of a layer](PerKey). A class is a group of requests whose latencies
/// a hedge layer learns separately. The key of the entry identifies the class.
pub trait ClassOf<Req> {
    /// Returns the entry of the request's class. `None` means that the request has no key, or that the table has no
    /// room for the key.
    fn find<T: PerKey>(&self, request: &Req, table: &T) -> Option<T::Found>;
}

/// A layer's table of entries by key, limited in size.
pub trait PerKey {
    /// The type of an entry.
    type Found;

    /// Finds or adds the entry of `key`. Returns `None` if `key` has no entry and the table has no room for one.
    fn of<K: Hash + Display + ?Sized>(&self, key: &K) -> Option<Self::Found>;
}

/// Puts all requests in one class, so a hedge layer learns their latencies together.
#[derive(Clone, Copy, Debug, Default)]
pub struct OneClass;

/// Takes the key of each request's [class](ClassOf) from a closure.
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
