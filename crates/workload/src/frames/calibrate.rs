//! The rate of the generator alone: no result can be higher.

use std::time::{Duration, Instant};

use netplumb_model::bench::{Generated, Limit, Offered};

use super::Generator;
use super::error::{GeneratorError, doing};
use super::layout::Mode;
use super::plan::{GeneratorPlan, Method};

/// Warm-up time.
const WARM_UP: Duration = Duration::from_millis(50);
/// Number of windows; the result is their median.
const WINDOWS: usize = 5;
const WINDOW: Duration = Duration::from_millis(50);
/// Maximum number of tries if rates are not plausible, each with windows longer by this factor.
const TRIES: u32 = 3;
const LONGER: u32 = 3;
/// An undisturbed generator has about the same rate in each window. A window below this share of
/// the highest was disturbed, and at most one of them may be.
const EVEN: f64 = 0.5;
const UNEVEN_MOST: usize = 1;

/// Maximum rates of the generator, all CPUs together. Unknown if no try was plausible.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibration {
    /// Frames made and dropped immediately.
    pub loop_pps: Limit,
    /// Frames sent without being made anew.
    pub redirect_pps: Limit,
    /// Frames made and sent: the limit.
    pub full_pps: Limit,
}

/// Measure the rate of the generator, on a device whose other end drops all frames in the driver.
/// Takes about a second; the plan's rate is ignored.
///
/// # Errors
/// As [`Generator::start`]; or the device does not accept frames by XDP.
pub fn calibrate(plan: &GeneratorPlan) -> Result<Calibration, GeneratorError> {
    Ok(Calibration {
        loop_pps: rate(plan, Mode::Loop)?,
        redirect_pps: rate(plan, Mode::Redirect)?,
        full_pps: rate(plan, Mode::Full)?,
    })
}

/// A rate, by windows that become longer until they are plausible.
fn settled(
    mut windows: impl FnMut(Duration) -> Result<Vec<f64>, GeneratorError>,
) -> Result<Limit, GeneratorError> {
    for tried in 0..TRIES {
        if let Some(pps) = plausible(windows(WINDOW * LONGER.pow(tried))?) {
            return Ok(Limit::at_pps(pps));
        }
    }
    Ok(Limit::Unknown)
}

/// The median, if the rates are plausible.
fn plausible(mut rates: Vec<f64>) -> Option<f64> {
    rates.sort_by(f64::total_cmp);
    let best = rates.last().copied().filter(|best| *best > 0.0)?;
    let uneven = rates.iter().filter(|rate| **rate < EVEN * best).count();
    (uneven <= UNEVEN_MOST).then(|| rates[rates.len() / 2])
}

fn rate(plan: &GeneratorPlan, mode: Mode) -> Result<Limit, GeneratorError> {
    settled(|window| read(plan, mode, window))
}

/// Rates of several windows, in frames per second.
fn read(plan: &GeneratorPlan, mode: Mode, window: Duration) -> Result<Vec<f64>, GeneratorError> {
    let mut plan = plan.try_clone().map_err(doing("open a network namespace"))?;
    plan.offered = Offered::Most;
    plan.method = Some(Method::Xdp);
    let generator = Generator::start_as(plan, mode)?;
    std::thread::sleep(WARM_UP);
    let read = || {
        let counts = generator.counts().map_err(doing("read the generator's counts"))?;
        let frames = |g: &Generated| if mode == Mode::Loop { g.frames } else { g.sent };
        Ok::<_, GeneratorError>((Instant::now(), counts.iter().map(frames).sum::<u64>()))
    };
    let mut rates = Vec::new();
    let mut before = read()?;
    for _ in 0..WINDOWS {
        std::thread::sleep(window);
        let after = read()?;
        rates.push((after.1 - before.1) as f64 / (after.0 - before.0).as_secs_f64());
        before = after;
    }
    let counts = generator.stop()?;
    let refused: u64 = counts.iter().flat_map(|g| g.refused.values()).sum();
    let frames: u64 = counts.iter().map(|g| g.frames).sum();
    if refused * 100 > frames {
        let causes: Vec<&str> =
            counts.iter().flat_map(|g| g.refused.keys()).map(String::as_str).collect();
        return Err(GeneratorError::CannotRun {
            reason: format!("{refused} of {frames} frames were refused ({})", causes.join(", ")),
            remedy: "calibrate on a veth pair whose other end drops by XDP in the driver".into(),
        });
    }
    Ok(rates)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a rate of 0, and windows that differ too much, are measured again, in longer
    /// windows; and that the rate is unknown if they stay so.
    #[test]
    fn implausible_rates_are_no_limit() {
        let even = vec![9e6, 1e7, 1.1e7, 1e7, 1e6];
        let stalled = vec![0.0, 0.0, 0.0, 1e7, 1e7];
        for (tries, wanted) in [
            (vec![even.clone()], Limit::Pps(1e7)),
            (vec![vec![0.0; 5], even.clone()], Limit::Pps(1e7)),
            (vec![stalled.clone(), vec![0.0; 5], even], Limit::Pps(1e7)),
            (vec![vec![0.0; 5], stalled, vec![0.0; 5]], Limit::Unknown),
        ] {
            let mut asked = Vec::new();
            let found = settled(|window| {
                asked.push(window);
                Ok(tries[asked.len() - 1].clone())
            });
            assert_eq!(found.unwrap(), wanted, "{tries:?}");
            assert_eq!(asked.len(), tries.len());
            assert!(asked.is_sorted_by(|a, b| a < b), "{asked:?}");
        }
    }
}
