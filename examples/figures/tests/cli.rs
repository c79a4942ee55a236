//! Tests of the command line.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

fn figures(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_figures"))
        .args(arguments)
        .output()
        .expect("cargo builds the program for this test")
}

/// Checks that the program fails with one line on stderr and nothing on stdout, and returns the line.
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
fn the_version_is_printed() {
    let output = figures(&["--version"]);
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(env!("CARGO_PKG_VERSION")), "{text}");
}

/// The error also comes before the work, or this test would take minutes.
#[test]
fn a_directory_that_cannot_be_written_to_is_one_line_that_names_it() {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("a-file");
    fs::write(&file, "").unwrap();
    for dir in [file.clone(), file.join("below")] {
        let dir = dir.to_str().unwrap();
        for option in ["--svg", "--png"] {
            let line = complaint(&["contention", option, dir]);
            assert!(line.contains(dir), "{line}");
        }
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
    for word in figures
        .into_iter()
        .chain(["--json", "--svg", "--png", "--seed"])
    {
        assert!(text.contains(word), "{word} is missing from\n{text}");
    }
}

#[test]
fn graphs_are_written_as_svg_and_png() {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("graphs/new");
    let path = dir.to_str().unwrap();
    let output = figures(&["window-accuracy", "--json", "--svg", path, "--png", path]);
    assert!(output.status.success());
    let log = String::from_utf8_lossy(&output.stderr);
    for name in ["fixed", "two", "sub"] {
        for (extension, start) in [("svg", &b"<svg "[..]), ("png", &b"\x89PNG"[..])] {
            let file = dir.join(format!("window-accuracy-{name}.{extension}"));
            assert!(fs::read(&file).unwrap().starts_with(start));
            assert!(log.contains(file.to_str().unwrap()), "{log}");
        }
    }
}
