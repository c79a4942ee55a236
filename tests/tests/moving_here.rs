//! The names of these crates in `docs/moving-here.md` exist. `scripts/release` compares `docs/public-api` with the code, and
//! `benches/tests/moving_here.rs` compares behaviour with the peers.

use std::{collections::BTreeSet, fs, path::Path};

/// Methods of tower, of reqwest and of the standard library.
const FOREIGN: [&str; 12] = [
    "Duration::from_nanos",
    "Duration::from_secs",
    "ServiceBuilder::new",
    "build",
    "get",
    "layer",
    "max",
    "oneshot",
    "reqwest::Client",
    "service",
    "tower::balance",
    "u32::MAX",
];

/// The methods and the paths of two segments in a piece of code: `.burst(8)` is `burst`, `Quota::new(1, d)` is
/// `Quota::new`.
fn names(code: &str) -> impl Iterator<Item = &str> {
    let is_part = |letter: char| !(letter.is_alphanumeric() || letter == '_' || letter == ':');
    let words = code.split(is_part).filter(|word| !word.is_empty());
    words.filter(move |word| {
        let end = word.as_ptr() as usize - code.as_ptr() as usize + word.len();
        let is_name = word.starts_with(|first: char| first.is_alphabetic());
        is_name && (word.contains("::") || code[end..].starts_with('('))
    })
}

/// Whether a line has this part of a path, after a `::`.
fn has_part(line: &str, part: &str) -> bool {
    line.match_indices(part).any(|(at, _)| {
        let after = line[at + part.len()..].chars().next();
        line[..at].ends_with("::")
            && !after.is_some_and(|next| next.is_alphanumeric() || next == '_')
    })
}

#[test]
fn every_name_of_these_crates_on_the_page_for_newcomers_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut api = String::new();
    for file in fs::read_dir(root.join("docs/public-api")).unwrap() {
        api += &fs::read_to_string(file.unwrap().path()).unwrap();
    }
    // A line names a method after its type, which can have parameters: `Type<P>::method`.
    let exists = |name: &str| {
        let mut lines = api.lines();
        lines.any(|line| name.split("::").all(|part| has_part(line, part)))
    };
    let page = fs::read_to_string(root.join("docs/moving-here.md")).unwrap();
    let rows = page
        .lines()
        .filter(|line| line.starts_with('|') && !line.starts_with("|--"));
    let ours = rows.filter_map(|row| row.trim_end_matches('|').rsplit_once(" | "));
    let code = ours.flat_map(|(_, right)| right.split('`').skip(1).step_by(2));
    let found: BTreeSet<&str> = code
        .flat_map(names)
        .filter(|name| !FOREIGN.contains(name))
        .collect();
    assert!(found.len() > 60, "{found:?}");
    let missing: Vec<_> = found.into_iter().filter(|name| !exists(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
