//! Student's distribution, for all arguments: meaningless ones give a neutral result, not NaN or a panic.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// With more degrees of freedom it is the normal distribution, to ten digits; series for gamma functions lose theirs.
const MOST_FREEDOM: f64 = 1e8;
/// With fewer, nothing is known.
const LEAST_FREEDOM: f64 = 1e-3;

fn student(freedom: f64) -> Option<StudentsT> {
    let freedom = if freedom > MOST_FREEDOM { f64::INFINITY } else { freedom };
    // Not NaN either.
    (freedom >= LEAST_FREEDOM).then(|| StudentsT::new(0.0, 1.0, freedom).ok())?
}

/// The two-sided p-value of a difference with a standard error: 1 where it is undefined.
pub(crate) fn tails(value: f64, error: f64, freedom: f64) -> f64 {
    if value == 0.0 || !value.is_finite() || !error.is_finite() {
        return 1.0;
    }
    let Some(student) = student(freedom) else {
        return 1.0;
    };
    let distance = (value / error).abs();
    match distance.is_finite() {
        true => (2.0 * student.sf(distance)).clamp(0.0, 1.0),
        false => 0.0,
    }
}

/// The number of standard errors that a share of the distribution is below; none where it is undefined.
pub(crate) fn quantile(share: f64, freedom: f64) -> Option<f64> {
    let found = match student(freedom)? {
        normal if normal.freedom().is_infinite() => {
            statrs::distribution::Normal::standard().inverse_cdf(share)
        }
        student => student.inverse_cdf(share),
    };
    found.is_finite().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check against tables, and that the ends of the known range are continuous.
    #[test]
    fn as_in_tables() {
        assert!((quantile(0.975, 2.0).unwrap() - 4.302_652_73).abs() < 1e-7);
        assert!((quantile(0.975, f64::INFINITY).unwrap() - 1.959_963_98).abs() < 1e-7);
        assert!((tails(4.302_652_73, 1.0, 2.0) - 0.05).abs() < 1e-9);
        let [below, above] = [0.99, 1.01].map(|part| tails(2.0, 1.0, MOST_FREEDOM * part));
        assert!((below - above).abs() < 1e-6, "{below} {above}");
    }

    /// Check that meaningless arguments give no difference and no interval.
    #[test]
    fn what_says_nothing() {
        let (nan, infinite) = (f64::NAN, f64::INFINITY);
        for (value, error, freedom) in [
            (nan, 1.0, 3.0),
            (1.0, nan, 3.0),
            (1.0, infinite, 3.0),
            (infinite, 1.0, 3.0),
            (1.0, 1.0, nan),
            (1.0, 1.0, 0.0),
            (1.0, 1.0, -2.0),
            (0.0, 0.0, 3.0),
        ] {
            assert_eq!(tails(value, error, freedom), 1.0, "{value} {error} {freedom}");
        }
        assert_eq!(tails(1.0, 0.0, 3.0), 0.0);
        for freedom in [nan, 0.0, -1.0, 1e-300] {
            assert_eq!(quantile(0.975, freedom), None);
        }
    }
}
