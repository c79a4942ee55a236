//! Plots as data; `svg` draws them.

mod axis;
#[cfg(test)]
mod drawn;
mod svg;

pub(crate) use self::axis::Axis;
#[cfg(test)]
pub(crate) use self::drawn::Drawn;

/// One graph, or several above each other that share their x axis.
#[derive(Debug)]
pub(crate) struct Plot {
    /// Of its file, without the extension.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) x: Axis,
    /// Where the data leave room for the legends.
    pub(crate) legend: Corner,
    /// Of each panel, in pixels.
    pub(crate) height: u32,
    pub(crate) panels: Vec<Panel>,
}

/// At the top of a panel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Corner {
    Left,
    Right,
}

#[derive(Debug)]
pub(crate) struct Panel {
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
}

#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) name: &'static str,
    pub(crate) mark: Mark,
    pub(crate) points: Vec<(f64, f64)>,
}

/// How points are drawn, in which colour of the palette.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mark {
    /// Dots on a line.
    Line(usize),
    /// A line by itself, through many points.
    Curve(usize),
    /// A line that keeps its height from each point to the next one.
    Steps(usize),
    /// The area down to zero.
    Area(usize),
    /// Black rings by themselves, which leave visible what they are around.
    Rings,
}
