//! Draws plots as SVG.

use std::collections::HashSet;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use tower::BoxError;

use super::{Axis, Mark, Panel, Plot, Series};

/// Colours that colour-blind readers can tell apart (Okabe and Ito 2008).
const PALETTE: [RGBColor; 5] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
];

/// Swaps black and white where the reader's system has a dark theme. The palette is readable on both.
const DARK_THEME: &str = r##"<style>
@media (prefers-color-scheme: dark) {
[fill="#FFFFFF"] { fill: #0D1117 }
[fill="#000000"] { fill: #E6EDF3 }
[stroke="#000000"] { stroke: #E6EDF3 }
}
</style>
"##;

// Lengths in pixels.
const WIDTH: u32 = 900;
const MARGIN: i32 = 14;
/// Height of the title and the legend.
const HEAD: u32 = 62;
const LEGEND_TOP: i32 = 44;
const LINE_HEIGHT: u32 = 19;
/// Room for the ticks of an axis.
const TICKS: u32 = 26;
/// Height of the label of the x axis.
const X_LABEL: u32 = 24;
const TITLE: (&str, i32) = ("sans-serif", 22);
const TEXT: (&str, i32) = ("sans-serif", 16);
/// Room for a character of `TEXT`, in the widest of the common fonts.
const CHARACTER: usize = 8;
const DOT: u32 = 3;
const RING: i32 = 6;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

impl Plot {
    /// Returns the text of an SVG file.
    pub(crate) fn svg(&self) -> Result<String, BoxError> {
        let caption = wrap(self.caption, (WIDTH as usize - 40) / CHARACTER);
        let panels = self.height * u32::try_from(self.panels.len())? + X_LABEL;
        let foot = LINE_HEIGHT * (u32::try_from(caption.len())? + 1);
        let mut svg = String::new();
        let size = (WIDTH, HEAD + panels + foot);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        let (head, rest) = root.split_vertically(HEAD);
        let (body, foot) = rest.split_vertically(panels);
        text(&head, self.title, (MARGIN, 10), TITLE)?;
        self.draw_legend(&head)?;
        let (mut area, mut below) = body.split_vertically(0);
        for (number, panel) in (1..).zip(&self.panels) {
            let label = X_LABEL * u32::from(number == self.panels.len());
            (area, below) = below.split_vertically(self.height + label);
            panel.draw(&area, self.x, label)?;
        }
        for (line, y) in caption.iter().zip((4..).step_by(LINE_HEIGHT as usize)) {
            text(&foot, line, (MARGIN, y), TEXT)?;
        }
        root.present()?;
        drop((head, rest, body, foot, area, below));
        drop(root);
        // An empty line would end the graph in Markdown.
        let svg = svg.replace("\n\n", "\n");
        let (start, elements) = svg.split_once('\n').ok_or("an SVG file without elements")?;
        let title = self.title;
        Ok(format!(
            "{start}\n<title>{title}</title>\n{DARK_THEME}{elements}"
        ))
    }

    /// Draws one entry for each name, from left to right.
    fn draw_legend(&self, area: &Area<'_>) -> Result<(), BoxError> {
        let mut names = HashSet::new();
        let series = self.panels.iter().flat_map(|panel| &panel.series);
        let mut x = MARGIN;
        for series in series.filter(|series| names.insert(series.name)) {
            series.draw_symbol(area, (x, LEGEND_TOP))?;
            text(area, series.name, (x + 24, LEGEND_TOP - 7), TEXT)?;
            x += i32::try_from(44 + CHARACTER * series.name.len())?;
        }
        Ok(())
    }
}

impl Panel {
    /// Draws the panel. `label` is the height of the label of the x axis, or 0 for no label.
    fn draw(&self, area: &Area<'_>, x: Axis, label: u32) -> Result<(), BoxError> {
        let (_, height) = area.dim_in_pixel();
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .margin_right(40)
            .x_label_area_size(TICKS + label)
            .y_label_area_size(84)
            .build_cartesian_2d(x, self.y)?;
        chart
            .configure_mesh()
            .label_style(TEXT)
            .x_desc(if label > 0 { x.label() } else { "" })
            .y_desc(self.y.label())
            .x_labels(11)
            .y_labels(((height - label) / TICKS).min(11) as usize)
            .light_line_style(WHITE)
            .draw()?;
        for (number, series) in self.series.iter().enumerate() {
            series.draw(&mut chart, x, self.series.len() - number)?;
        }
        let right = TextStyle::from(TEXT).pos(Pos::new(HPos::Right, VPos::Top));
        let place = (i32::try_from(WIDTH)? - 56, 14);
        area.draw(&Text::new(self.title, place, right))?;
        Ok(())
    }
}

impl Series {
    /// Draws the points. `above` is the number of series from this one to the topmost one.
    fn draw(&self, chart: &mut Chart<'_, '_>, x: Axis, above: usize) -> Result<(), BoxError> {
        let points = self.points.iter().copied();
        let points = points.filter(|&(along, _)| x.holds(along));
        match self.mark {
            Mark::Line(color) => {
                let line = LineSeries::new(points, colour(color).stroke_width(2));
                chart.draw_series(line.point_size(DOT))?;
            }
            Mark::Curve(color) => {
                chart.draw_series(LineSeries::new(points, colour(color).stroke_width(2)))?;
            }
            Mark::Steps(color) => {
                // Steps of several series share their places, so the lower ones are wider.
                let style = colour(color).stroke_width(u32::try_from(above)?);
                chart.draw_series(LineSeries::new(steps(points), style))?;
            }
            Mark::Area(color) => {
                let style = colour(color);
                let area = AreaSeries::new(points, 0.0, style.mix(0.4)).border_style(style);
                chart.draw_series(area)?;
            }
            Mark::Band => {
                chart.draw_series(AreaSeries::new(points, 0.0, BLACK.mix(0.15)))?;
            }
            Mark::Rings => {
                chart.draw_series(points.map(|point| Circle::new(point, RING, BLACK)))?;
            }
        }
        Ok(())
    }

    /// Draws the symbol of the legend.
    fn draw_symbol(&self, area: &Area<'_>, (x, y): (i32, i32)) -> Result<(), BoxError> {
        let line = [(x, y), (x + 18, y)];
        let square = [(x, y - 6), (x + 18, y + 6)];
        match self.mark {
            Mark::Line(color) | Mark::Curve(color) | Mark::Steps(color) => {
                area.draw(&PathElement::new(line, colour(color).stroke_width(3)))?;
            }
            Mark::Area(color) => {
                area.draw(&Rectangle::new(square, colour(color).mix(0.4).filled()))?;
            }
            Mark::Band => area.draw(&Rectangle::new(square, BLACK.mix(0.15).filled()))?,
            Mark::Rings => area.draw(&Circle::new((x + 9, y), RING, BLACK))?,
        }
        Ok(())
    }
}

/// Draws a line of text. `place` is its upper left corner.
fn text(
    area: &Area<'_>,
    line: &str,
    place: (i32, i32),
    font: (&'static str, i32),
) -> Result<(), BoxError> {
    area.draw(&Text::new(line, place, font))?;
    Ok(())
}

/// Breaks a text into lines of at most `width` characters.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
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

fn colour(index: usize) -> RGBColor {
    PALETTE[index % PALETTE.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::PngRenderer;

    fn plot() -> Plot {
        let series = |name, mark| Series {
            name,
            mark,
            points: vec![(1.0, 1.0), (2.0, 3.0)],
        };
        Plot {
            name: "test",
            title: "the title",
            caption: "the caption",
            x: Axis::linear("the x axis", 10.0),
            height: 300,
            panels: vec![Panel {
                title: "the panel",
                y: Axis::logarithmic("the y axis", 1.0, 10.0),
                series: vec![
                    series("a band", Mark::Band),
                    series("a line", Mark::Line(0)),
                    series("an area", Mark::Area(1)),
                    series("a curve", Mark::Curve(3)),
                    series("some steps", Mark::Steps(4)),
                    series("some rings", Mark::Rings),
                ],
            }],
        }
    }

    #[test]
    fn a_plot_has_its_title_caption_axes_and_legend() {
        let svg = plot().svg().unwrap();
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
        let texts = ["the title", "the caption", "the x axis", "the y axis"];
        let series = ["a band", "a line", "an area", "a curve", "some steps"];
        let others = ["the panel", "some rings"];
        for text in texts.iter().chain(&series).chain(&others) {
            assert!(svg.contains(&format!(">\n{text}\n<")), "{text} is missing");
        }
    }

    #[test]
    fn panels_share_the_legend_s_entries() {
        let mut plot = plot();
        plot.panels.extend(self::plot().panels);
        let svg = plot.svg().unwrap();
        assert_eq!(svg.matches("a curve").count(), 1);
        assert_eq!(svg.matches("the panel").count(), 2);
        assert_eq!(svg.matches("the x axis").count(), 1);
    }

    #[test]
    fn only_black_and_white_depend_on_the_theme() {
        let svg = plot().svg().unwrap();
        assert!(svg.contains("prefers-color-scheme: dark"));
        for colour in ["#FFFFFF", "#000000"] {
            let rule = format!("[fill=\"{colour}\"]");
            let element = format!(" fill=\"{colour}\"");
            assert!(svg.contains(&rule) && svg.contains(&element), "{colour}");
        }
    }

    #[test]
    fn a_caption_is_broken_into_lines_between_words() {
        assert_eq!(wrap("one two three  four", 9), ["one two", "three", "four"]);
        assert!(wrap("", 9).is_empty());
    }

    #[test]
    fn a_png_shows_the_drawing_and_the_texts() {
        let renderer = PngRenderer::new().unwrap();
        let svg = plot().svg().unwrap();
        let png = renderer.render(&svg).unwrap();
        let decode = |png: &[u8]| resvg::tiny_skia::Pixmap::decode_png(png).unwrap();
        let picture = decode(&png);
        assert_eq!((picture.width(), picture.height()), (1800, 848));
        let blue = picture.pixels().iter().filter(|pixel| {
            let pixel = pixel.demultiply();
            (pixel.red(), pixel.green(), pixel.blue()) == (0x00, 0x72, 0xb2)
        });
        assert!(blue.count() > 100);
        let without_title = renderer.render(&svg.replace(">\nthe title\n<", "><"));
        assert!(decode(&without_title.unwrap()) != picture);
    }
}
