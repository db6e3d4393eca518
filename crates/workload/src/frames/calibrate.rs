//! What the generator can do by itself: no result can be faster.

use std::time::{Duration, Instant};

use netplumb_model::bench::{Generated, Offered};

use super::Generator;
use super::error::{GeneratorError, doing};
use super::layout::Mode;
use super::plan::{GeneratorPlan, Method};

/// Until it runs evenly.
const WARM_UP: Duration = Duration::from_millis(50);
/// Rates are read so often, for so long, and their median is told.
const WINDOWS: usize = 5;
const WINDOW: Duration = Duration::from_millis(50);
/// Less of a limit than this is not held back by the generator.
const BOUND: f64 = 0.95;

/// Frames a second that the generator makes at most, all CPUs together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibration {
    /// Made and dropped at once.
    pub loop_pps: f64,
    /// Sent as they lie there.
    pub redirect_pps: f64,
    /// Made and sent: the limit.
    pub full_pps: f64,
}

impl Calibration {
    /// Whether a rate is so close to the limit that it may be the generator's own.
    pub fn bounds(&self, pps: f64) -> bool {
        pps >= BOUND * self.full_pps
    }
}

/// Measure how fast the generator is, on a device at whose other end all frames are
/// dropped in the driver. It takes about a second; the plan's rate is left out of account.
///
/// # Errors
/// As [`Generator::start`]; or the device does not take frames by XDP.
pub fn calibrate(plan: &GeneratorPlan) -> Result<Calibration, GeneratorError> {
    Ok(Calibration {
        loop_pps: rate(plan, Mode::Loop)?,
        redirect_pps: rate(plan, Mode::Redirect)?,
        full_pps: rate(plan, Mode::Full)?,
    })
}

fn rate(plan: &GeneratorPlan, mode: Mode) -> Result<f64, GeneratorError> {
    let mut plan = plan.try_clone().map_err(doing("hold a namespace"))?;
    plan.offered = Offered::Most;
    plan.method = Some(Method::Xdp);
    let generator = Generator::start_as(plan, mode)?;
    std::thread::sleep(WARM_UP);
    let read = || {
        let counts = generator
            .counts()
            .map_err(doing("read the generator's counts"))?;
        let frames = |g: &Generated| if mode == Mode::Loop { g.frames } else { g.sent };
        Ok::<_, GeneratorError>((Instant::now(), counts.iter().map(frames).sum::<u64>()))
    };
    let mut rates = Vec::new();
    let mut before = read()?;
    for _ in 0..WINDOWS {
        std::thread::sleep(WINDOW);
        let after = read()?;
        rates.push((after.1 - before.1) as f64 / (after.0 - before.0).as_secs_f64());
        before = after;
    }
    let counts = generator.stop()?;
    let refused: u64 = counts.iter().flat_map(|g| g.refused.values()).sum();
    let frames: u64 = counts.iter().map(|g| g.frames).sum();
    if refused * 100 > frames {
        let causes: Vec<&str> = counts
            .iter()
            .flat_map(|g| g.refused.keys())
            .map(String::as_str)
            .collect();
        return Err(GeneratorError::CannotRun {
            reason: format!(
                "{refused} of {frames} frames were refused ({})",
                causes.join(", ")
            ),
            remedy: "calibrate on a veth pair whose other end drops by XDP in the driver".into(),
        });
    }
    rates.sort_by(f64::total_cmp);
    Ok(rates[WINDOWS / 2])
}
