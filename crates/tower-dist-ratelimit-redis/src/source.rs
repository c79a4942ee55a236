//! The parts of the scripts, in Lua, with placeholders like `$RATE` in place of numbers.

pub(super) const CLOCK: &str = include_str!("lua/clock.lua");
pub(super) const COMMON: &str = include_str!("lua/common.lua");
pub(super) const DECIDE: &str = include_str!("lua/decide.lua");
pub(super) const BUCKET_ALONE: &str = include_str!("lua/bucket_alone.lua");
pub(super) const COUNTER: &str = include_str!("lua/counter.lua");
pub(super) const WINDOW: &str = include_str!("lua/window.lua");
pub(super) const FULL_AT: &str = include_str!("lua/full_at.lua");
pub(super) const USED: &str = include_str!("lua/used.lua");
pub(super) const DRAINED: &str = include_str!("lua/drained.lua");
pub(super) const TOKEN_BUCKET: &str = include_str!("lua/token_bucket.lua");
pub(super) const LEAKY_QUEUE: &str = include_str!("lua/leaky_queue.lua");
pub(super) const SLIDING_WINDOW: &str = include_str!("lua/sliding_window.lua");
pub(super) const SLIDING_LOG: &str = include_str!("lua/sliding_log.lua");

/// Replaces each placeholder `$NAME` whose name is in `numbers` by its number.
pub(super) fn fill(lua: &str, numbers: &[(&str, u64)]) -> String {
    numbers.iter().fold(lua.to_owned(), |lua, (name, value)| {
        lua.replace(&format!("${name}"), &value.to_string())
    })
}
