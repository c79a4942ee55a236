//! Renders SVG as PNG.

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};
use tower::BoxError;

/// Common sans-serif fonts, the preferred one first.
const SANS_SERIF: [&str; 5] = [
    "Helvetica",
    "Arial",
    "Liberation Sans",
    "Noto Sans",
    "DejaVu Sans",
];
/// Pixels of the PNG per pixel of the SVG.
const SCALE: u16 = 2;

/// A renderer with the fonts of this machine.
pub(crate) struct PngRenderer(Options<'static>);

impl PngRenderer {
    pub(crate) fn new() -> Result<Self, BoxError> {
        let mut options = Options::default();
        let fonts = options.fontdb_mut();
        fonts.load_system_fonts();
        let family = sans_serif(fonts).ok_or("cannot draw PNG files: no font is installed")?;
        fonts.set_sans_serif_family(family);
        Ok(Self(options))
    }

    /// Returns the bytes of a PNG file, in the light theme.
    pub(crate) fn render(&self, svg: &str) -> Result<Vec<u8>, BoxError> {
        let tree = Tree::from_str(svg, &self.0)?;
        let scale = f32::from(SCALE);
        let size = tree.size().to_int_size();
        let size = size.scale_by(scale).ok_or("a plot without a size")?;
        let mut pixels = Pixmap::new(size.width(), size.height()).ok_or("a plot without a size")?;
        let transform = Transform::from_scale(scale, scale);
        resvg::render(&tree, transform, &mut pixels.as_mut());
        Ok(pixels.encode_png()?)
    }
}

/// Returns an installed sans-serif font, or any font.
fn sans_serif(fonts: &fontdb::Database) -> Option<String> {
    let families = fonts.faces().flat_map(|face| &face.families);
    let names = families.map(|(name, _)| name);
    let rank = |name: &&String| {
        let rank = SANS_SERIF.iter().position(|known| known == name);
        rank.unwrap_or(SANS_SERIF.len())
    };
    names.min_by_key(rank).cloned()
}
