use std::mem::discriminant;

use super::{Algorithm, Checked, Conformance, FROZEN, Subject};
use crate::conformance::{ALL, BUILDING};

/// The backend builds its own algorithms, and rejects the others when they are registered.
pub(in super::super) fn building(kit: &Conformance) -> Checked {
    for algorithm in ALL {
        let has = |one: &Algorithm| discriminant(one) == discriminant(&algorithm);
        let built = Subject::one(kit, BUILDING, algorithm, FROZEN, false);
        match (kit.algorithms.iter().any(has), built) {
            (true, Err(violation)) => return Err(violation),
            (false, Ok(subject)) => {
                let expected = "an error: the backend does not have the algorithm";
                return Err(subject.broken("register", "the answer", expected, "ids"));
            }
            _ => {}
        }
    }
    Ok(())
}
