//! Constructors of charts.

use crate::number::printable;
use crate::page::{PageAxis, PageChart, PagePoint, PageSeries, PageSeriesKind};

const NAME_LETTERS: usize = 80;
const TEXT_LETTERS: usize = 600;

/// An axis on a plain scale.
pub(crate) fn axis(label: &str, unit: &str) -> PageAxis {
    PageAxis {
        label: printable(label, NAME_LETTERS),
        unit: printable(unit, NAME_LETTERS),
        log: false,
        names: Vec::new(),
    }
}

/// The same on a logarithmic scale.
pub(crate) fn log_axis(label: &str, unit: &str) -> PageAxis {
    PageAxis { log: true, ..axis(label, unit) }
}

/// A chart with an x and a y axis.
pub(crate) fn chart(
    title: &str,
    note: &str,
    axes: [PageAxis; 2],
    series: Vec<PageSeries>,
) -> PageChart {
    let [x, y] = axes;
    PageChart {
        title: printable(title, TEXT_LETTERS),
        note: printable(note, TEXT_LETTERS),
        x,
        y,
        series,
    }
}

/// A series. Points that are not numbers are left out: they have no place.
pub(crate) fn series(
    name: &str,
    kind: PageSeriesKind,
    points: impl IntoIterator<Item = PagePoint>,
) -> PageSeries {
    let mut points: Vec<PagePoint> = points
        .into_iter()
        .filter(|p| p.x.is_finite() && p.y.is_finite())
        .map(|p| PagePoint {
            low: p.low.filter(|low| low.is_finite()),
            high: p.high.filter(|high| high.is_finite()),
            label: printable(&p.label, NAME_LETTERS),
            ..p
        })
        .collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    PageSeries { name: printable(name, NAME_LETTERS), kind, points }
}

/// A point with its interval.
pub(crate) fn point(x: f64, y: f64, interval: Option<(f64, f64)>) -> PagePoint {
    PagePoint {
        x,
        y,
        low: interval.map(|(low, _)| low),
        high: interval.map(|(_, high)| high),
        label: String::new(),
    }
}

/// A published point, with its label.
pub(crate) fn published(x: f64, y: f64, label: &str) -> PagePoint {
    PagePoint { label: label.into(), ..point(x, y, None) }
}

/// Ideal scaling of a rate at one core to other numbers of cores.
pub(crate) fn ideal(name: &str, at_one: f64, cores: &[u32]) -> PageSeries {
    let points = cores.iter().map(|cores| {
        let cores = f64::from(*cores);
        point(cores, at_one * cores, None)
    });
    series(name, PageSeriesKind::Ideal, points)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a series is in the order of its axis, and has no point that can't be drawn.
    #[test]
    fn points() {
        let all = [
            point(2.0, 5.0, Some((4.0, f64::INFINITY))),
            point(f64::NAN, 1.0, None),
            point(1.0, f64::INFINITY, None),
            published(1.0, 3.0, &"x".repeat(500)),
        ];
        let made = series("a\nb", PageSeriesKind::Points, all);
        assert_eq!(made.name, "a?b");
        let at: Vec<_> = made.points.iter().map(|p| (p.x, p.low, p.high)).collect();
        assert_eq!(at, [(1.0, None, None), (2.0, Some(4.0), None)]);
        assert!(made.points[0].label.chars().count() <= NAME_LETTERS);
        assert_eq!(ideal("i", 3.0, &[1, 4]).points[1].y, 12.0);
    }
}
