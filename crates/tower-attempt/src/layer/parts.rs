use std::fmt;

/// The parts that a builder, its layer and its services have in common. Only the type `S` of the settings differs.
#[derive(Clone)]
pub struct Parts<P, O, X, S> {
    /// The protocol, with the user's rules.
    pub protocol: P,
    /// The receiver of events.
    pub observer: O,
    /// The options whose types are type parameters of the layer, such as the `NoTimeLimit` of a retry layer.
    pub options: X,
    /// The settings whose types are not type parameters of the layer, such as the budget.
    pub settings: S,
}

impl<P, O, X, S> Parts<P, O, X, S> {
    /// Changes the protocol.
    pub fn protocol<T>(self, change: impl FnOnce(P) -> T) -> Parts<T, O, X, S> {
        Parts {
            protocol: change(self.protocol),
            observer: self.observer,
            options: self.options,
            settings: self.settings,
        }
    }

    /// Replaces the observer.
    pub fn observer<T>(self, observer: T) -> Parts<P, T, X, S> {
        Parts {
            protocol: self.protocol,
            observer,
            options: self.options,
            settings: self.settings,
        }
    }

    /// Changes the options.
    pub fn options<T>(self, change: impl FnOnce(X) -> T) -> Parts<P, O, T, S> {
        Parts {
            protocol: self.protocol,
            observer: self.observer,
            options: change(self.options),
            settings: self.settings,
        }
    }

    /// Converts the settings.
    pub fn settings<T>(self, change: impl FnOnce(S) -> T) -> Parts<P, O, X, T> {
        Parts {
            protocol: self.protocol,
            observer: self.observer,
            options: self.options,
            settings: change(self.settings),
        }
    }
}

/// Shows only the settings, because closures and observers need not implement `Debug`.
impl<P, O, X, S: fmt::Debug> fmt::Debug for Parts<P, O, X, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}
