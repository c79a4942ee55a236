//! The checks, one file each.

mod all_or_nothing;
mod building;
mod decisions;
mod dynamic_quotas;
mod expiry;
mod keys;
mod nothing_written;
mod racing;
mod refunds;
mod reset;
mod retry;

pub(super) use self::{
    all_or_nothing::all_or_nothing, building::building, decisions::decisions,
    dynamic_quotas::dynamic_quotas, expiry::expiry, keys::keys, nothing_written::nothing_written,
    racing::racing, refunds::refunds, reset::reset, retry::retry,
};
use super::{
    Checked, Conformance, Numbers, Violation,
    subject::{FROZEN, LIMIT, QUICK, Subject, Subjects},
};
use crate::{Algorithm, Decision, Quota};
