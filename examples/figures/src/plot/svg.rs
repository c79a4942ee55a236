//! Draws plots as SVG.

use plotters::coord::Shift;
use plotters::prelude::*;
use tower::BoxError;

use super::{Axis, Corner, Mark, Panel, Plot, Series};

/// Colours that stay apart for colour-blind readers too (Okabe and Ito 2008).
const PALETTE: [RGBColor; 5] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
];
/// In pixels, like all that follows.
const WIDTH: u32 = 900;
const TITLE: (&str, i32) = ("sans-serif", 20);
const TEXT: (&str, i32) = ("sans-serif", 14);
const DOT: u32 = 3;
const RING: i32 = 6;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

impl Plot {
    /// The text of an SVG file.
    pub(crate) fn svg(&self) -> Result<String, BoxError> {
        let panels = self.panels.len();
        let height = self.height * u32::try_from(panels)?;
        let mut svg = String::new();
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        root.fill(&WHITE)?;
        let areas = root.titled(self.title, TITLE)?.split_evenly((panels, 1));
        for (area, panel) in areas.iter().zip(&self.panels) {
            panel.draw(area, self.x, self.legend)?;
        }
        root.present()?;
        drop(areas);
        drop(root);
        Ok(svg)
    }
}

impl Panel {
    fn draw(&self, area: &Area<'_>, x: Axis, legend: Corner) -> Result<(), BoxError> {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .margin_right(40)
            .x_label_area_size(46)
            .y_label_area_size(76)
            .build_cartesian_2d(x, self.y)?;
        chart
            .configure_mesh()
            .label_style(TEXT)
            .x_desc(x.label())
            .y_desc(self.y.label())
            .light_line_style(WHITE)
            .draw()?;
        for series in &self.series {
            series.draw(&mut chart, x)?;
        }
        chart
            .configure_series_labels()
            .label_font(TEXT)
            .position(legend.into())
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        Ok(())
    }
}

impl Series {
    fn draw(&self, chart: &mut Chart<'_, '_>, x: Axis) -> Result<(), BoxError> {
        let points = self.points.iter().copied();
        let points = points.filter(|&(along, _)| x.holds(along));
        let points: Vec<(f64, f64)> = match self.mark {
            Mark::Steps(_) => steps(points),
            _ => points.collect(),
        };
        let points = points.into_iter();
        match self.mark {
            Mark::Line(color) | Mark::Curve(color) | Mark::Steps(color) => {
                let style = colour(color).stroke_width(2);
                let dot = match self.mark {
                    Mark::Line(_) => DOT,
                    _ => 0,
                };
                let line = LineSeries::new(points, style).point_size(dot);
                let drawn = chart.draw_series(line)?;
                drawn
                    .label(self.name)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
            }
            Mark::Area(color) => {
                let style = colour(color);
                let area = AreaSeries::new(points, 0.0, style.mix(0.4)).border_style(style);
                let drawn = chart.draw_series(area)?;
                drawn.label(self.name).legend(move |(x, y)| {
                    Rectangle::new([(x, y - 5), (x + 18, y + 5)], style.filled())
                });
            }
            Mark::Rings => {
                let rings = points.map(|point| Circle::new(point, RING, BLACK));
                let drawn = chart.draw_series(rings)?;
                drawn
                    .label(self.name)
                    .legend(|(x, y)| Circle::new((x + 9, y), RING, BLACK));
            }
        }
        Ok(())
    }
}

/// Returns the corners of steps through these points.
fn steps(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut corners: Vec<(f64, f64)> = Vec::new();
    for (x, y) in points {
        let before = corners.last().map(|(_, before)| (x, *before));
        corners.extend(before.into_iter().chain([(x, y)]));
    }
    corners
}

impl From<Corner> for SeriesLabelPosition {
    fn from(corner: Corner) -> Self {
        match corner {
            Corner::Left => Self::UpperLeft,
            Corner::Right => Self::UpperRight,
        }
    }
}

fn colour(index: usize) -> RGBColor {
    PALETTE[index % PALETTE.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_says_what_it_shows() {
        let series = |name, mark| Series {
            name,
            mark,
            points: vec![(1.0, 1.0), (2.0, 3.0)],
        };
        let plot = Plot {
            name: "test",
            title: "the title",
            x: Axis::linear("the x axis", 10.0),
            legend: Corner::Right,
            height: 300,
            panels: vec![Panel {
                y: Axis::logarithmic("the y axis", 1.0, 10.0),
                series: vec![
                    series("a line", Mark::Line(0)),
                    series("an area", Mark::Area(1)),
                    series("a curve", Mark::Curve(3)),
                    series("some steps", Mark::Steps(4)),
                    series("some rings", Mark::Rings),
                ],
            }],
        };
        let svg = plot.svg().unwrap();
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
        let texts = ["the title", "the x axis", "the y axis"];
        for text in texts
            .into_iter()
            .chain(["a line", "an area", "a curve", "some steps"])
            .chain(["some rings"])
        {
            assert!(svg.contains(text), "{text} is missing");
        }
    }
}
