//! The database: one versioned row.

use std::fmt;

/// A row that accepts a write only with its current version.
#[derive(Debug, Default)]
pub(crate) struct Row {
    version: u64,
}

/// The version at the time of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version(u64);

/// The row was written after it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conflict;

impl Row {
    pub(crate) fn read(&self) -> Version {
        Version(self.version)
    }

    /// Writes the row if its version is still `seen`.
    pub(crate) fn write(&mut self, seen: Version) -> Result<(), Conflict> {
        if seen != self.read() {
            return Err(Conflict);
        }
        self.version += 1;
        Ok(())
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the row has changed since it was read")
    }
}

impl std::error::Error for Conflict {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_of_two_writers_with_the_same_version_succeeds() {
        let mut row = Row::default();
        let (one, other) = (row.read(), row.read());
        assert_eq!(row.write(one), Ok(()));
        assert_eq!(row.write(other), Err(Conflict));
        assert_eq!(row.write(one), Err(Conflict));
        let again = row.read();
        assert_eq!(row.write(again), Ok(()));
    }
}
