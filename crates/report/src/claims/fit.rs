//! A line through points whose coordinates are whole numbers, in integer arithmetic:
//! exact lines are distinguished from points that are only close to one.

/// The fewest points that make a line worth a claim.
pub(super) const LEAST_POINTS: usize = 3;

/// One point: a knob's level, and the instructions of `packets`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) x: i64,
    pub(super) insns: u64,
    pub(super) packets: u64,
}

/// A line, and how well it fits the points.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FittedLine {
    /// Per packet, with nothing of the knob.
    pub(super) fixed: f64,
    /// Per packet, for each unit of the knob.
    pub(super) each: f64,
    /// Whether every point is on it, to the instruction.
    pub(super) exact: bool,
    /// The largest distance of a point, per packet, with its sign.
    pub(super) worst: f64,
    /// The same as a share of the point's cost.
    pub(super) worst_share: f64,
    /// The `x` of that point.
    pub(super) worst_x: i64,
}

/// Larger than any useful common multiple of numbers of packets.
const MAX_SCALE: u64 = 1_000_000_000_000;

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// The line of least squares. None with fewer than two different levels, or if
/// numbers overflow.
pub(super) fn line(points: &[Point]) -> Option<FittedLine> {
    let scale = points.iter().try_fold(1_u64, |scale, p| {
        let packets = p.packets.max(1);
        (scale / greatest_common_divisor(scale, packets))
            .checked_mul(packets)
            .filter(|s| *s <= MAX_SCALE)
    })?;
    // Costs of `scale` packets: whole numbers.
    let points: Vec<(i128, i128)> = points
        .iter()
        .map(|p| {
            let y = i128::from(p.insns) * i128::from(scale / p.packets.max(1));
            (i128::from(p.x), y)
        })
        .collect();
    let n = points.len() as i128;
    let sum = |of: &dyn Fn(i128, i128) -> Option<i128>| {
        points.iter().try_fold(0_i128, |sum, (x, y)| sum.checked_add(of(*x, *y)?))
    };
    let (sx, sy) = (sum(&|x, _| Some(x))?, sum(&|_, y| Some(y))?);
    let sxx = sum(&|x, _| x.checked_mul(x))?;
    let sxy = sum(&|x, y| x.checked_mul(y))?;
    // The slope is `up / along`, the height at 0 `base / (n * along)`.
    let along = n.checked_mul(sxx)?.checked_sub(sx.checked_mul(sx)?)?;
    let up = n.checked_mul(sxy)?.checked_sub(sx.checked_mul(sy)?)?;
    if along == 0 {
        return None;
    }
    let base = sy.checked_mul(along)?.checked_sub(up.checked_mul(sx)?)?;
    let whole = n.checked_mul(along)?;
    let mut line = FittedLine {
        fixed: base as f64 / whole as f64 / scale as f64,
        each: up as f64 / along as f64 / scale as f64,
        exact: true,
        worst: 0.0,
        worst_share: 0.0,
        worst_x: points.first()?.0 as i64,
    };
    for (x, y) in &points {
        // y - (base / whole + up / along * x), times `whole`.
        let on_line = base.checked_add(up.checked_mul(n)?.checked_mul(*x)?)?;
        let off = y.checked_mul(whole)?.checked_sub(on_line)?;
        line.exact &= off == 0;
        let off = off as f64 / whole as f64;
        if off.abs() / scale as f64 > line.worst.abs() {
            line.worst = off / scale as f64;
            line.worst_x = *x as i64;
        }
        let share = off.abs() / (*y as f64).max(1.0);
        line.worst_share = line.worst_share.max(share);
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted_line(points: &[(i64, u64)]) -> Option<FittedLine> {
        let points: Vec<Point> =
            points.iter().map(|(x, insns)| Point { x: *x, insns: *insns, packets: 200 }).collect();
        line(&points)
    }

    /// Check that a line is found to the instruction, and its parts are per packet.
    #[test]
    fn a_line_is_exact() {
        let cost = |n: i64| (n, (4_365 * 200 + 14 * 200 * n) as u64);
        let line = fitted_line(&[0, 1, 2, 10, 100, 1_000].map(cost)).unwrap();
        assert!(line.exact);
        assert_eq!((line.fixed, line.each), (4_365.0, 14.0));
        assert_eq!(line.worst, 0.0);
    }

    /// Check that one instruction in a hundred million is seen.
    #[test]
    fn one_instruction_off() {
        let mut points = [0, 1, 2, 10, 100, 1_000].map(|n: i64| (n, (800_000 + 2_800 * n) as u64));
        points[4].1 += 1;
        let line = fitted_line(&points).unwrap();
        assert!(!line.exact);
        assert_eq!(line.worst_x, 100);
        assert!(line.worst > 0.0 && line.worst < 0.005);
    }

    /// Check a slope that is not a whole number, and different numbers of packets.
    #[test]
    fn packets_that_differ() {
        let point = |x: i64, packets: u64| Point {
            x,
            insns: packets * 100 + packets * x as u64 / 8,
            packets,
        };
        let line = line(&[point(0, 200), point(8, 50), point(800, 1_000)]).unwrap();
        assert!(line.exact);
        assert_eq!((line.fixed, line.each), (100.0, 0.125));
    }

    /// Check that a step's distance from the line is reported.
    #[test]
    fn a_step_is_no_line() {
        let line = fitted_line(&[(0, 200), (1, 200), (2, 400), (3, 400)]).unwrap();
        assert!(!line.exact);
        assert!((line.worst.abs() - 0.3).abs() < 1e-9, "{line:?}");
    }

    /// Check that there is no line through one level, and none through no point.
    #[test]
    fn no_line() {
        assert_eq!(fitted_line(&[]), None);
        assert_eq!(fitted_line(&[(5, 100), (5, 100)]), None);
    }
}
