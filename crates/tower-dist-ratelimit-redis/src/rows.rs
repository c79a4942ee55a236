use super::{call::ScriptCall, run::can_follow};

/// Requests to one script that one command sends to the server.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows(pub(super) Vec<Row>);

/// One request, or a run of equal requests to one bucket.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) call: ScriptCall,
    /// Number of consecutive equal requests. The script decides on them in one step.
    pub(super) times: usize,
}

/// The position of a request among the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) row: usize,
    /// Number of earlier requests in this row.
    pub(super) rank: usize,
}

impl Rows {
    /// Adds a request. If it can follow the requests of the last row, it joins that row. Otherwise it gets a new row.
    pub(super) fn push(&mut self, call: ScriptCall) -> Place {
        match self.0.last_mut() {
            Some(last) if can_follow(&last.call, &call) => last.times += 1,
            _ => self.0.push(Row { call, times: 1 }),
        }
        let rank = self.0.last().map_or(0, |row| row.times - 1);
        let row = self.0.len() - 1;
        Place { row, rank }
    }
}
