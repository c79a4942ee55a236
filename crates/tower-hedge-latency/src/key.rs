//! Which class a request belongs to.

use std::fmt::Display;
use std::hash::Hash;
use std::sync::Arc;

use crate::class::{Class, Classes};

/// Sorts requests into classes.
pub trait Sort<Req> {
    /// The key's class; `None` without keys.
    fn class(&self, request: &Req, classes: &Classes) -> Option<Arc<Class>>;
}

/// All requests are alike.
#[derive(Clone, Copy, Debug, Default)]
pub struct OneClass;

/// A closure says which key a request has.
#[derive(Clone, Copy, Debug)]
pub struct ByKey<F>(pub(crate) F);

impl<Req> Sort<Req> for OneClass {
    fn class(&self, _: &Req, _: &Classes) -> Option<Arc<Class>> {
        None
    }
}

impl<F, Req, K> Sort<Req> for ByKey<F>
where
    F: Fn(&Req) -> K,
    K: Hash + Display,
{
    fn class(&self, request: &Req, classes: &Classes) -> Option<Arc<Class>> {
        classes.of(&self.0(request))
    }
}
