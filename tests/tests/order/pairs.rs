use std::collections::BTreeMap;
use std::fmt::Debug;

use tower_attempt::BuildError;

/// The two setters of a pair in the order of their calls, and the builder's settings or the error of `build`.
pub(crate) type Built = BTreeMap<(&'static str, &'static str), Result<String, String>>;

pub(crate) fn result<L>(
    settings: &impl Debug,
    built: Result<L, BuildError>,
) -> Result<String, String> {
    match built {
        Ok(_) => Ok(format!("{settings:?}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Builds layers from a builder, with each two of the setters in both orders.
macro_rules! pairs {
    ($builder:expr, $setters:tt) => {{
        let mut built = $crate::pairs::Built::new();
        pairs!(@first built, $builder, $setters, $setters);
        built
    }};
    (@first $built:ident, $builder:expr, [$($name:ident $value:tt),* $(,)?], $setters:tt) => {
        $(pairs!(@second $built, $builder, $name $value, $setters);)*
    };
    (@second $built:ident, $builder:expr, $first:ident $value:tt, [$($name:ident $other:tt),* $(,)?]) => {
        $(
            let builder = $builder.$first $value.$name $other;
            let pair = (stringify!($first), stringify!($name));
            $built.insert(pair, $crate::pairs::result(&builder.clone(), builder.build()));
        )*
    };
}

#[track_caller]
pub(crate) fn check(built: &Built, contradict: impl Fn(&str, &str) -> bool) {
    for (&(first, second), result) in built {
        let other = &built[&(second, first)];
        let contradict = contradict(first, second) || contradict(second, first);
        match (result, other) {
            (Ok(settings), Ok(other)) if !contradict => {
                assert_eq!(settings, other, "{first} and {second}");
            }
            (Err(error), Err(other)) if contradict => {
                for name in [first, second] {
                    assert!(
                        error.contains(name) && other.contains(name),
                        "{error}, {other}"
                    );
                }
            }
            _ => panic!("{first} and {second}: {result:?} in one order, {other:?} in the other"),
        }
    }
}
