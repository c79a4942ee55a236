use std::mem::discriminant;

use super::{Conformance, Subject, Violation, found};
use crate::conformance::ALL;

/// What the backend says it has can be built, and what it has not is rejected then and not later.
pub(in super::super) fn building(kit: &Conformance) -> Result<(), Violation> {
    for algorithm in ALL {
        let has = |one: &crate::Algorithm| discriminant(one) == discriminant(&algorithm);
        let built = Subject::frozen(kit, "building", algorithm);
        match (kit.algorithms.iter().any(has), built) {
            (true, Err(violation)) => return Err(violation),
            (false, Ok(subject)) => {
                let expected = "an error: the backend does not have the algorithm";
                return Err(subject.broken(found("register", "the answer", expected, "ids")));
            }
            _ => {}
        }
    }
    Ok(())
}
