use crate::BuildError;

/// The value given by one of several setters that exclude each other.
#[derive(Clone, Debug)]
pub struct OneOf<T> {
    given: Option<(&'static str, T)>,
    /// A setter that was called besides the one in `given`, if any.
    other: Option<&'static str>,
}

impl<T> OneOf<T> {
    /// Records a call of `setter`. `value` replaces the value of an earlier call.
    pub fn set(&mut self, setter: &'static str, value: T) {
        if let Some((first, _)) = self.given
            && first != setter
        {
            self.other = Some(first);
        }
        self.given = Some((setter, value));
    }

    /// The value that the last call of a setter gave. `None` if no setter was called.
    pub fn get(&self) -> Option<&T> {
        self.given.as_ref().map(|(_, value)| value)
    }

    /// The name of the setter that was called last. `None` if no setter was called.
    pub fn setter(&self) -> Option<&'static str> {
        self.given.as_ref().map(|(setter, _)| *setter)
    }

    /// Checks that at most one of the setters that exclude each other was called.
    ///
    /// # Errors
    ///
    /// Returns an error that names two of the setters.
    pub fn validate(&self) -> Result<(), BuildError> {
        match (&self.given, self.other) {
            (Some((setter, _)), Some(other)) => Err(BuildError::besides(setter, other)),
            _ => Ok(()),
        }
    }
}

impl<T> Default for OneOf<T> {
    fn default() -> Self {
        Self {
            given: None,
            other: None,
        }
    }
}
