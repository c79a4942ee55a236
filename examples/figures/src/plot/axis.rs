//! Scales and ticks of axes.

use std::ops::Range;

use plotters::coord::ranged1d::{
    KeyPointHint, KeyPointWeight, NoDefaultFormatting, Ranged, ValueFormatter,
};

/// An axis that ends at `end`. Values outside of its range are drawn at its ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    /// Text with the unit.
    label: &'static str,
    scale: Scale,
    end: f64,
}

#[derive(Clone, Copy, Debug)]
enum Scale {
    /// Starts at 0.
    Linear,
    /// Starts at this value. Each factor of 10 has the same length.
    Logarithmic(f64),
    /// Shares of calls as the number of nines, from 0: 1 is 90 %, 2 is 99 %.
    Nines,
}

impl Axis {
    pub(crate) const fn linear(label: &'static str, end: f64) -> Self {
        let scale = Scale::Linear;
        Self { label, scale, end }
    }

    pub(crate) const fn logarithmic(label: &'static str, start: f64, end: f64) -> Self {
        let scale = Scale::Logarithmic(start);
        Self { label, scale, end }
    }

    pub(crate) const fn nines(label: &'static str, end: f64) -> Self {
        let scale = Scale::Nines;
        Self { label, scale, end }
    }

    pub(super) fn label(self) -> &'static str {
        self.label
    }

    fn start(self) -> f64 {
        match self.scale {
            Scale::Linear | Scale::Nines => 0.0,
            Scale::Logarithmic(start) => start,
        }
    }

    pub(crate) fn holds(self, value: f64) -> bool {
        (self.start()..=self.end).contains(&value)
    }

    /// Returns the position of a value on the axis, from 0 to 1.
    fn fraction(self, value: f64) -> f64 {
        let place = |value: f64| match self.scale {
            Scale::Linear | Scale::Nines => value,
            Scale::Logarithmic(_) => value.log10(),
        };
        let (start, end) = (place(self.start()), place(self.end));
        (place(value.clamp(self.start(), self.end)) - start) / (end - start)
    }

    /// Returns round values. On a linear axis there are at most `most`.
    fn ticks(self, most: usize) -> Vec<f64> {
        let round = || (-9..9).flat_map(|power| [1.0, 2.0, 5.0].map(|n| n * 10_f64.powi(power)));
        let values: Vec<f64> = match self.scale {
            Scale::Linear => {
                let step = round().find(|step| self.end / step < most as f64 - 0.5);
                let step = step.unwrap_or(self.end);
                (0..most).map(|n| n as f64 * step).collect()
            }
            Scale::Logarithmic(_) => round().collect(),
            Scale::Nines => (0..=9).map(f64::from).collect(),
        };
        values
            .into_iter()
            .filter(|value| self.holds(*value))
            .collect()
    }
}

impl Ranged for Axis {
    type ValueType = f64;
    type FormatOption = NoDefaultFormatting;

    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        let along = f64::from(last - first) * self.fraction(*value);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a fraction of a number of pixels is one"
        )]
        let along = along.round() as i32;
        first + along
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match hint.weight() {
            KeyPointWeight::Bold => self.ticks(hint.max_num_points()),
            KeyPointWeight::Any => Vec::new(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.start()..self.end
    }
}

/// Formats a tick.
impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        // 3 times a tenth is 0.30000000000000004 in binary.
        let rounded = |value: f64| ((value * 1e6).round() / 1e6).to_string();
        match self.scale {
            Scale::Linear | Scale::Logarithmic(_) => rounded(*value),
            Scale::Nines => format!("{} %", rounded(100.0 - 10_f64.powf(2.0 - value))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(axis: Axis) -> Vec<String> {
        let ticks = axis.ticks(11).into_iter();
        ticks.map(|value| axis.format_ext(&value)).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        let tenths = ticks(Axis::linear("", 1.0));
        let expected = [
            "0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1",
        ];
        assert_eq!(tenths, expected);
        let expected = ["0", "20", "40", "60", "80", "100", "120", "140"];
        assert_eq!(ticks(Axis::linear("", 140.0)), expected);
        let few = Axis::linear("", 4000.0).ticks(5);
        assert!(few.is_sorted() && few.len() == 5, "{few:?}");
        let expected = ["10", "20", "50", "100", "200", "500"];
        assert_eq!(ticks(Axis::logarithmic("", 10.0, 600.0)), expected);
        let expected = ["0 %", "90 %", "99 %", "99.9 %", "99.99 %"];
        assert_eq!(ticks(Axis::nines("", 4.0)), expected);
    }

    #[test]
    fn each_factor_of_a_logarithmic_axis_has_the_same_length() {
        let axis = Axis::logarithmic("", 10.0, 1000.0);
        let pixels = [1.0, 10.0, 100.0, 1000.0, 5000.0].map(|value| axis.map(&value, (400, 0)));
        assert_eq!(
            pixels,
            [400, 400, 200, 0, 0],
            "values outside of the axis are drawn at its ends"
        );
    }
}
