use std::time::Duration;

use super::{LASTS, TIMEOUT, lab::Lab};
use crate::support::LONG;

/// A fault of a server.
pub(super) struct Fault {
    pub(super) name: &'static str,
    pub(super) begin: fn(&mut Lab),
    /// Repeated while the fault lasts.
    pub(super) meanwhile: fn(&mut Lab),
    pub(super) lasts: Duration,
    pub(super) end: fn(&mut Lab),
    /// Whether the server is reached through a proxy.
    pub(super) far: bool,
    pub(super) decides: Who,
    /// Whether the server loses its counts.
    pub(super) forgets: bool,
}

/// The source of decisions while a fault lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// The fault is harmless.
    Store,
    Process,
    /// The fault is too short for a fixed source.
    Either,
}

impl Fault {
    /// The timeout of a decision. It is long where the backend must decide, because a busy machine can delay the
    /// backend.
    pub(super) fn timeout(&self) -> Duration {
        match self.decides {
            Who::Store => LONG,
            Who::Process | Who::Either => TIMEOUT,
        }
    }
}

fn nothing(_: &mut Lab) {}

/// A harmless fault that does nothing.
const NONE: Fault = Fault {
    name: "none",
    begin: nothing,
    meanwhile: nothing,
    lasts: LASTS,
    end: nothing,
    far: false,
    decides: Who::Store,
    forgets: false,
};

const HARM: Fault = Fault {
    decides: Who::Process,
    ..NONE
};

pub(super) const FAULTS: [Fault; 11] = [
    NONE,
    Fault {
        name: "killed, and started again later",
        begin: |lab| lab.server.kill(),
        end: |lab| lab.server.restart(),
        forgets: true,
        ..HARM
    },
    Fault {
        name: "restarted empty",
        begin: |lab| lab.server.restart(),
        lasts: Duration::ZERO,
        decides: Who::Either,
        forgets: true,
        ..HARM
    },
    Fault {
        name: "frozen, and thawed",
        begin: |lab| lab.server.freeze(),
        end: |lab| lab.server.thaw(),
        ..HARM
    },
    Fault {
        name: "scripts flushed, again and again",
        meanwhile: |lab| {
            lab.server.call(&["SCRIPT", "FLUSH"]);
        },
        ..NONE
    },
    Fault {
        name: "out of memory",
        begin: |lab| lab.set("maxmemory", "1"),
        end: |lab| lab.set("maxmemory", "0"),
        ..HARM
    },
    Fault {
        name: "garbage or another type at all keys",
        meanwhile: Lab::litter,
        forgets: true,
        ..NONE
    },
    Fault {
        name: "a read-only replica",
        begin: Lab::replicate,
        end: |lab| {
            lab.server.call(&["REPLICAOF", "NO", "ONE"]);
        },
        ..HARM
    },
    Fault {
        name: "connections closed, and none taken",
        begin: Lab::shut_out,
        end: Lab::let_in,
        ..HARM
    },
    Fault {
        name: "slow: answers after 20 ms",
        begin: |lab| slow(lab, 20),
        end: |lab| slow(lab, 0),
        far: true,
        ..NONE
    },
    Fault {
        name: "too slow: answers after 200 ms",
        begin: |lab| slow(lab, 200),
        end: |lab| slow(lab, 0),
        far: true,
        ..HARM
    },
];

fn slow(lab: &mut Lab, millis: u64) {
    let proxy = lab.proxy.as_ref().expect("a proxy");
    proxy.delay(Duration::from_millis(millis));
}
