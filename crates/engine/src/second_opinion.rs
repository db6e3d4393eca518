//! The costs of functions by another method than the `exact` instrument.
//!
//! In a guest whose clock counts instructions, the nanoseconds from a function's entry to its exit
//! are its inclusive instructions plus the probe's. fentry and fexit don't depend on translation
//! blocks, symbols or shadow stacks: where both methods agree, both are right. See the test
//! crates/cli/tests/guests/second_opinion.rs.

use netplumb_agent::guest::{CLOCK_INSNS, CLOCK_NS};
use netplumb_lab::vm::process::Extra;
use netplumb_model::message::{Reply, Request, TimedFunction};
use netplumb_model::timing::{Attached, Filter, Selection, TimingSpec, Window};

use crate::error::EngineError;
use crate::origin::Boot;
use crate::plan::Plan;
use crate::run::Options;

const CLOCK_SOURCE: &str = "guest.clocksource";

/// Results by fentry and fexit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SecondOpinion {
    /// The functions, in the requested order.
    pub functions: Vec<TimedFunction>,
    /// Instructions executed while the functions were timed.
    pub insns: u64,
    /// Nanoseconds elapsed meanwhile on the clock that timed them. The kernel measures the rate of
    /// its clock at boot, with a small error.
    pub clock_ns: u64,
    /// That clock: "tsc" or "tsc-early"; others don't count instructions.
    pub clock_source: String,
    /// Facts of the `functions` instrument, if it timed them together.
    pub attached: Attached,
    /// Its window for each block; without functions, only the duration.
    pub windows: Vec<Window>,
}

impl SecondOpinion {
    /// Instructions per nanosecond, close to 1.
    pub fn insns_per_ns(&self) -> f64 {
        self.insns as f64 / self.clock_ns as f64
    }
}

/// Time functions, one at a time, with the traffic of the plan's first arm: its blocks are run once
/// for each function.
///
/// # Errors
/// The guest could not be run. A function that could not be timed says so in its
/// entry.
pub fn time_functions(
    plan: &Plan,
    options: &Options,
    functions: &[&str],
) -> Result<SecondOpinion, EngineError> {
    // One request for each, so that each has its own timeout.
    let each = functions.iter().map(|f| (vec![f.to_string()], None));
    ask(plan, options, each.collect())
}

/// Time functions all at once by the `functions` instrument, with the same traffic. Without
/// functions, the blocks are run without probes.
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

/// The same, with given settings.
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

/// The settings of the instrument to time these functions.
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
        profile: None,
        events: None,
        spans: None,
        calls: None,
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
    let kernel = guest.kernel_in(options, &|_| {})?;
    let boot = Boot { guest, kernel: &kernel, options };
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
        let request =
            Request::TimeFunctions { functions, spec: spec.map(Box::new), plan: run.clone() };
        guest.ask(&request, options.timeout, |reply| {
            match reply {
                Reply::Timed(timed) => opinion.functions.extend(timed),
                Reply::Attached(attached) => opinion.attached = *attached,
                Reply::Window(window) => opinion.windows.push(*window),
                Reply::Facts(facts) => {
                    let number =
                        |key| facts.get(key).and_then(|v| v.parse::<u64>().ok()).unwrap_or(0);
                    opinion.insns += number(CLOCK_INSNS);
                    opinion.clock_ns += number(CLOCK_NS);
                }
                _ => {}
            }
            Ok(())
        })?;
    }
    // There is no need to wait for the agent to exit.
    let _ = guest.tell(&Request::PowerOff);
    Ok(opinion)
}
