use super::call::ScriptCall;

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
    /// Adds a request. A request with a call starts a new row. A request without one
    /// [follows](super::run::can_follow) the last request.
    pub(super) fn push(&mut self, first: Option<ScriptCall>) -> Place {
        self.0.extend(first.map(|call| Row { call, times: 0 }));
        let row = self.0.len() - 1;
        let rank = self.0[row].times;
        self.0[row].times += 1;
        Place { row, rank }
    }
}
