//! Plots as data; `svg` and `png` draw them.

mod axis;
#[cfg(test)]
mod drawn;
mod png;
mod svg;

pub(crate) use self::axis::Axis;
#[cfg(test)]
pub(crate) use self::drawn::{Drawn, assert_is_in_docs, assert_is_part_of_docs};
pub(crate) use self::png::PngRenderer;

/// One graph, or several graphs above each other that share the x axis and the legend.
#[derive(Debug)]
pub(crate) struct Plot {
    /// File name without the extension.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// Text below the graph: the setting, and how to read the graph.
    pub(crate) caption: &'static str,
    pub(crate) x: Axis,
    /// Height of each panel in pixels.
    pub(crate) height: u32,
    pub(crate) panels: Vec<Panel>,
}

#[derive(Debug)]
pub(crate) struct Panel {
    /// Text in the upper right corner. Empty if the plot has one panel.
    pub(crate) title: &'static str,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
}

#[derive(Debug)]
pub(crate) struct Series {
    /// Name in the legend. Series of the same name share one entry.
    pub(crate) name: &'static str,
    pub(crate) mark: Mark,
    pub(crate) points: Vec<(f64, f64)>,
}

/// How points are drawn. The number is the colour's index in the palette.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mark {
    /// A line with a dot at each point.
    Line(usize),
    /// A line without dots.
    Curve(usize),
    /// A line that is horizontal from each point to the next.
    Steps(usize),
    /// The area between the points and zero.
    Area(usize),
    /// A grey area in the background.
    Band,
    /// Black rings, which leave the marks below them visible.
    Rings,
}
