use tokio::task::JoinSet;

use super::{Conformance, Subject, Violation};
use crate::{Algorithm, conformance::subject::LIMIT};

/// Tasks at once.
const TASKS: u64 = 16;

/// Tasks that race for one key get exactly what there is.
pub(in super::super) async fn racing(
    kit: &Conformance,
    algorithm: Algorithm,
) -> Result<(), Violation> {
    let subject = Subject::frozen(kit, "racing", algorithm)?;
    for round in 0..8 {
        let key = subject.key(&round.to_string());
        let full = subject.look(&key).await?.remaining;
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let (subject, key) = (subject.clone(), key.clone());
            tasks.spawn(async move {
                let mut granted = 0;
                for _ in 0..2 * LIMIT / TASKS + 2 {
                    granted += subject.take(&key, 1).await?.granted;
                }
                Ok::<u64, Violation>(granted)
            });
        }
        let mut granted = 0;
        while let Some(task) = tasks.join_next().await {
            granted += task.map_err(|error| subject.broken(error))??;
        }
        subject.promise(granted == full, || {
            format!("{TASKS} tasks got {granted} of {full}")
        })?;
        let left = subject.look(&key).await?.remaining;
        subject.promise(left == 0, || format!("all was taken, but {left} is left"))?;
    }
    Ok(())
}
