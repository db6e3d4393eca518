//! The costs of functions, asked of another witness than the `exact` instrument.
//!
//! In a guest whose clock counts instructions, the nanoseconds from a function's
//! entry to its exit are its inclusive instructions, and the probe's own. fentry
//! and fexit know nothing of translation blocks, symbols and shadow stacks: where
//! both agree, both are right. See the test crates/cli/tests/second_opinion.rs.

use netplumb_lab::vm::kernels::KernelStore;
use netplumb_lab::vm::process::{Extra, VmError};
use netplumb_lab::vm::trial;
use netplumb_model::message::{Reply, Request, TimedFunction};
use netplumb_model::timing::{Attached, Filter, Selection, TimingSpec, Window};

use crate::error::EngineError;
use crate::origin::Boot;
use crate::plan::Plan;
use crate::run::Options;

/// Key of [`Reply::Facts`]: instructions that passed on the clock below.
pub(crate) const CLOCK_INSNS: &str = "clock.insns";
/// Key of [`Reply::Facts`]: nanoseconds of the kernel's monotonic clock.
pub(crate) const CLOCK_NS: &str = "clock.ns";
const CLOCK_SOURCE: &str = "guest.clocksource";

/// What fentry and fexit say.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SecondOpinion {
    /// The functions, in the order asked for.
    pub functions: Vec<TimedFunction>,
    /// Instructions that passed while the functions were timed.
    pub insns: u64,
    /// Nanoseconds that passed meanwhile on the clock that timed them. The kernel
    /// measures the rate of its clock at boot, and is a little wrong.
    pub clock_ns: u64,
    /// That clock: "tsc" or "tsc-early", or it does not count instructions.
    pub clock_source: String,
    /// What the `functions` instrument says of itself, where it timed them together.
    pub attached: Attached,
    /// What it saw in each block; without functions, how long each block took.
    pub windows: Vec<Window>,
}

impl SecondOpinion {
    /// What a nanosecond is worth, close to 1.
    pub fn insns_per_ns(&self) -> f64 {
        self.insns as f64 / self.clock_ns as f64
    }
}

/// Time functions, one at a time, under the traffic of the plan's first arm: its
/// blocks are run once for each function.
///
/// # Errors
/// The guest could not be run. A function that could not be timed says so in its
/// entry.
pub fn time_functions(
    plan: &Plan,
    options: &Options,
    functions: &[&str],
) -> Result<SecondOpinion, EngineError> {
    // One request for each, so that each has its time.
    let each = functions.iter().map(|f| (vec![f.to_string()], None));
    ask(plan, options, each.collect())
}

/// Time functions all at once by the `functions` instrument, under the same traffic.
/// With none, the blocks are run without a probe.
///
/// # Errors
/// The guest could not be run, or nothing could be timed in it.
pub fn time_together(
    plan: &Plan,
    options: &Options,
    functions: &[&str],
) -> Result<SecondOpinion, EngineError> {
    let spec = (!functions.is_empty()).then(|| spec_of(functions));
    ask(plan, options, vec![(Vec::new(), spec)])
}

/// The same, by a spec of one's own.
///
/// # Errors
/// The guest could not be run, or nothing could be timed in it.
pub fn time_by(
    plan: &Plan,
    options: &Options,
    spec: TimingSpec,
) -> Result<SecondOpinion, EngineError> {
    ask(plan, options, vec![(Vec::new(), Some(spec))])
}

/// What the instrument is to do to time these functions.
pub fn spec_of(functions: &[&str]) -> TimingSpec {
    TimingSpec {
        instrument: "functions".into(),
        roles: Default::default(),
        filter: Filter::default(),
        selection: Selection {
            recorded: functions.iter().map(|f| f.to_string()).collect(),
            max_functions: functions.len() as u32,
            ..Default::default()
        },
        mechanism: None,
        one_packet: 0,
    }
}

fn ask(
    plan: &Plan,
    options: &Options,
    requests: Vec<(Vec<String>, Option<TimingSpec>)>,
) -> Result<SecondOpinion, EngineError> {
    let mut opinion = SecondOpinion::default();
    let guests = plan.guests();
    let (Some(guest), Some(arm)) = (guests.first(), plan.arms.first()) else {
        return Ok(opinion);
    };
    let qemu = trial::find_qemu().map_err(VmError::QemuMissing)?;
    let kernel = KernelStore::new(&options.cache).find(&guest.kernel)?;
    let boot = Boot {
        guest,
        kernel: &kernel,
        options,
        qemu: &qemu,
    };
    let run = plan.run_plan(arm);
    let origin = boot.origin(&run, &|_| {})?;
    let mut guest = origin.start(&[], Extra::default(), options)?;
    guest.go_on()?;
    guest.ask(&Request::Describe, options.timeout, |reply| {
        if let Reply::Facts(mut facts) = reply {
            opinion.clock_source = facts.remove(CLOCK_SOURCE).unwrap_or_default();
        }
        Ok(())
    })?;
    for (functions, spec) in requests {
        let request = Request::TimeFunctions {
            functions,
            spec: spec.map(Box::new),
            plan: run.clone(),
        };
        guest.ask(&request, options.timeout, |reply| {
            match reply {
                Reply::Timed(timed) => opinion.functions.extend(timed),
                Reply::Attached(attached) => opinion.attached = *attached,
                Reply::Window(window) => opinion.windows.push(*window),
                Reply::Facts(facts) => {
                    let number = |key| {
                        facts
                            .get(key)
                            .and_then(|v| v.parse::<u64>().ok())
                            .unwrap_or(0)
                    };
                    opinion.insns += number(CLOCK_INSNS);
                    opinion.clock_ns += number(CLOCK_NS);
                }
                _ => {}
            }
            Ok(())
        })?;
    }
    // The agent has nothing to add: there is no need to wait for it to go.
    let _ = guest.tell(&Request::PowerOff);
    Ok(opinion)
}
