use std::panic::resume_unwind;

use tokio::task::JoinSet;

use super::{Algorithm, Checked, Conformance, FROZEN, LIMIT, Subject, Violation};

/// Number of concurrent tasks.
const TASKS: u64 = 16;

/// Tasks that race for one key get exactly its tokens.
pub(in super::super) async fn racing(kit: &Conformance, algorithm: Algorithm) -> Checked {
    let subject = Subject::one(kit, "racing", algorithm, FROZEN, false)?;
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
            granted += task.unwrap_or_else(|error| resume_unwind(error.into_panic()))?;
        }
        let operation = format!("acquire by {TASKS} tasks");
        subject.equal(operation, "granted", full, granted)?;
        let seen = subject.look(&key).await?;
        subject.remains("a look after all tokens were taken", 0, seen)?;
    }
    Ok(())
}
