//! The command line, as a user meets it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

fn figures(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_figures"))
        .args(arguments)
        .output()
        .expect("cargo built it for this test")
}

/// Checks that it failed with one line on stderr and nothing on stdout, and returns the line.
fn complaint(arguments: &[&str]) -> String {
    let output = figures(arguments);
    assert!(!output.status.success(), "{arguments:?}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.trim_end();
    assert_eq!(text, format!("{line}\n"));
    assert!(!line.contains('\n'), "{text}");
    assert!(line.starts_with("figures: "), "{line}");
    line.to_owned()
}

#[test]
fn a_bad_option_is_named_with_the_usage() {
    for (arguments, named) in [
        (&[] as &[&str], "<FIGURE>"),
        (&["no-such-figure"], "no-such-figure"),
        (&["contentoin"], "a similar value exists: 'contention'"),
        (&["contention", "--no-such-option"], "--no-such-option"),
        (&["contention", "--no-such-option"], "Usage: figures"),
        (&["contention", "--seed", "one"], "one"),
        (&["contention", "--seed", "-1"], "-1"),
        (&["contention", "--svg"], "--svg"),
        (&["contention", "all"], "all"),
    ] {
        let output = figures(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        for text_part in [named, "try '--help'"] {
            assert!(text.contains(text_part), "{text}");
        }
    }
}

#[test]
fn it_tells_its_version() {
    let output = figures(&["--version"]);
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(env!("CARGO_PKG_VERSION")), "{text}");
}

/// Also before the work: otherwise this test would take minutes.
#[test]
fn a_directory_that_cannot_be_written_to_is_one_line_that_names_it() {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("a-file");
    fs::write(&file, "").unwrap();
    for dir in [file.clone(), file.join("below")] {
        let dir = dir.to_str().unwrap();
        let line = complaint(&["contention", "--svg", dir]);
        assert!(line.contains(dir), "{line}");
    }
}

#[test]
fn help_names_every_figure_and_option() {
    let output = figures(&["--help"]);
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout);
    let figures = [
        "all",
        "contention",
        "hedging-demo",
        "leases",
        "metastable",
        "tail-at-scale",
        "window-accuracy",
    ];
    for word in figures.into_iter().chain(["--json", "--svg", "--seed"]) {
        assert!(text.contains(word), "{word} is missing from\n{text}");
    }
}
