//! Parses drawn plots, for tests.

use super::Plot;

/// The elements of an SVG file.
pub(crate) struct Drawn(String);

/// A text and its position.
struct Text<'a> {
    text: &'a str,
    x: f64,
    y: f64,
    /// `start`, `middle` or `end`.
    anchor: &'a str,
}

impl Drawn {
    pub(crate) fn new(svg: String) -> Self {
        Self(svg)
    }

    fn elements<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        let begin = format!("<{name} ");
        let elements: Vec<&str> = self.0.split(&begin).skip(1).collect();
        elements.into_iter()
    }

    fn texts(&self) -> Vec<Text<'_>> {
        self.elements("text")
            .map(|element| {
                let (head, rest) = element.split_once('>').unwrap();
                Text {
                    text: rest.split('<').next().unwrap().trim(),
                    x: attribute(head, "x").unwrap().parse().unwrap(),
                    y: attribute(head, "y").unwrap().parse().unwrap(),
                    anchor: attribute(head, "text-anchor").unwrap_or("start"),
                }
            })
            .collect()
    }

    pub(crate) fn has_text(&self, text: &str) -> bool {
        self.texts().iter().any(|one| one.text == text)
    }

    /// Returns the distance of a text from the top.
    fn height(&self, text: &str) -> Option<f64> {
        let texts = self.texts();
        texts.iter().find(|one| one.text == text).map(|one| one.y)
    }

    /// Returns the corners of each line.
    fn lines(&self) -> Vec<Vec<(f64, f64)>> {
        self.elements("polyline")
            .map(|element| {
                let points = attribute(element, "points").unwrap().split_whitespace();
                points
                    .map(|point| {
                        let (x, y) = point.split_once(',').unwrap();
                        (x.parse().unwrap(), y.parse().unwrap())
                    })
                    .collect()
            })
            .collect()
    }

    /// Counts circles that are not filled, in the plot and in the legend.
    fn rings(&self) -> usize {
        let circles = self.elements("circle");
        circles
            .filter(|circle| attribute(circle, "fill") == Some("none"))
            .count()
    }

    /// Fails unless this is a tail in steps over percentiles, with this number of published points and a logarithmic
    /// axis.
    pub(crate) fn assert_is_a_tail_with(&self, published: usize) {
        for tick in ["90 %", "99 %", "99.9 %", "99.99 %", "10", "100"] {
            assert!(self.has_text(tick), "{tick}");
        }
        // 100 and 1000 are as far apart as 10 and 100.
        let ticks = ["10", "100", "1000"].iter();
        let heights: Vec<f64> = ticks.filter_map(|tick| self.height(tick)).collect();
        for three in heights.windows(3) {
            let uneven = 2.0 * three[1] - three[0] - three[2];
            assert!(uneven.abs() < 2.0, "{heights:?}");
        }
        assert!(self.has_text("published"));
        // The legend has one more ring.
        assert_eq!(self.rings(), published + 1);
        self.assert_curves_are_steps();
        self.assert_ticks_are_short_and_whole();
    }

    /// Fails if a tick exceeds the image or shows rounding errors.
    pub(crate) fn assert_ticks_are_short_and_whole(&self) {
        for Text {
            text, x, anchor, ..
        } in self.texts()
        {
            if text.trim_end_matches(" %").parse::<f64>().is_ok() {
                assert!(text.len() <= 7, "{text}");
                // An upper bound of the width of a digit.
                let width = 9.0 * text.len() as f64;
                let (left, right) = match anchor {
                    "end" => (x - width, x),
                    "middle" => (x - width / 2.0, x + width / 2.0),
                    _ => (x, x + width),
                };
                assert!(
                    left >= 0.0 && right <= 900.0,
                    "{text} from {left} to {right}"
                );
            }
        }
    }

    /// Fails if a curve has a slanted part.
    fn assert_curves_are_steps(&self) {
        let curves = self.lines().into_iter().filter(|line| line.len() > 2);
        for curve in curves {
            for pair in curve.windows(2) {
                let [(x, y), (next_x, next_y)] = *pair else {
                    panic!("windows of two");
                };
                let is_level = (y - next_y).abs() < 0.5;
                let is_upright = (x - next_x).abs() < 0.5;
                assert!(is_level || is_upright, "{pair:?}");
            }
        }
    }
}

fn attribute<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = element.split_once(&format!("{name}=\""))?;
    rest.split('"').next()
}

/// Fails unless the documentation has exactly this plot.
pub(crate) fn assert_is_in_docs(plot: &Plot) {
    let is_same = in_docs(plot) == plot.svg().unwrap();
    assert!(is_same, "{}.svg {OUT_OF_DATE}", plot.name);
}

/// Fails unless the plot in the documentation has every element of this one, which is drawn from a part of the data.
pub(crate) fn assert_is_part_of_docs(plot: &Plot) {
    let (whole, part) = (in_docs(plot), plot.svg().unwrap());
    let missing = part.lines().find(|element| {
        let corners = attribute(element, "points");
        let has_corners = |line: &str| {
            let (all, some) = (attribute(line, "points"), corners);
            all.zip(some)
                .is_some_and(|(all, some)| all.contains(some.trim()))
        };
        !whole
            .lines()
            .any(|line| line == *element || has_corners(line))
    });
    assert_eq!(missing, None, "{}.svg {OUT_OF_DATE}", plot.name);
}

const OUT_OF_DATE: &str = "in docs/figures is out of date; scripts/figures draws it";

fn in_docs(plot: &Plot) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/figures");
    let file = format!("{folder}/{}.svg", plot.name);
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"))
}
