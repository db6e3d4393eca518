//! The constraints on an experiment: its tables, and which go together.

mod arms;

pub use arms::check_arm;

use super::error::Mistake;
use super::{Experiment, Kind, Lab};
use crate::calls::TIMED;
use crate::events;
use crate::quantity::Declared;
use crate::spans;
use crate::timing::{INSTRUCTIONS, SAMPLED};

/// Check that a recording can have this name.
fn check_name(name: &str) -> Result<(), (&'static str, String)> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 80 || !name.chars().all(fits) || name.starts_with('.') {
        return Err((
            "name",
            format!(
                "invalid name `{}`; expected 1 to 80 letters, digits, `-`, `_` or `.` (the \
                 recording is named after it)",
                name.chars().take(80).collect::<String>()
            ),
        ));
    }
    Ok(())
}

impl Experiment {
    /// All rules.
    pub(super) fn judge(&self) -> Result<(), Mistake> {
        self.check_hosts()?;
        self.workload.check(self.lab)?;
        self.blocks.check(self.lab, &self.workload)?;
        self.functions.check()?;
        self.check_duration()?;
        self.check_samples()?;
        self.check_events()?;
        self.check_trace()?;
        self.check_spans()?;
        let within = Mistake::within("build", 0);
        self.build.check().map_err(|wrong| within(wrong.into()))?;
        self.check_setup()?;
        check_name(&self.name)?;
        if self.instruments.as_ref().is_some_and(Vec::is_empty) {
            return Err((
                "instruments",
                "instruments is empty; leave it out for the default".into(),
            )
                .into());
        }
        self.check_topologies()?;
        self.check_places()?;
        self.check_settings()?;
        for (n, figure) in self.figures.iter().enumerate() {
            figure.check().map_err(Mistake::within("figure", n))?;
        }
        match self.workload.kind {
            Kind::Frames => self.check_frames()?,
            _ => self.check_arms()?,
        }
        if let Some(scan) = &self.scan {
            scan.check()?;
            if (self.lab, self.workload.kind) != (Lab::Vm, Kind::Packets) {
                let why = "scan is only supported in lab vm, with a workload of kind packets";
                return Err(("scan", why.to_string()).into());
            }
        }
        self.check_shares()?;
        self.check_claims()
    }

    /// A duration would be without effect where blocks end after a number of packets.
    fn check_duration(&self) -> Result<(), Mistake> {
        let workload = &self.workload;
        let both = workload.duration.is_some() && workload.packets.is_some();
        if both && workload.kind == Kind::Packets && self.lab != Lab::Vm {
            let why = "duration can't be combined with packets in this lab, where packets end a block; \
                       leave packets out";
            return Err(("duration", why.to_string()).into());
        }
        Ok(())
    }

    fn check_setup(&self) -> Result<(), Mistake> {
        let within = Mistake::within("setup", 0);
        self.setup.check().map_err(|wrong| within(wrong.into()))?;
        let of_command = (self.lab, self.workload.kind) == (Lab::Vm, Kind::Command);
        match self.setup.is_empty() || of_command {
            true => Ok(()),
            false => {
                let why = "[setup] is for commands in guests: it needs lab vm, and a workload of kind command";
                Err(("setup", why.to_string()).into())
            }
        }
    }

    fn check_samples(&self) -> Result<(), Mistake> {
        let within = Mistake::within("samples", 0);
        self.samples.check().map_err(|wrong| within(wrong.into()))?;
        let mut named = self.instruments.iter().flatten();
        if self.samples.is_empty() {
            return Ok(());
        }
        let of_work = self.samples.of_work();
        if self.workload.kind == Kind::Work {
            return match self.samples.of_guests() {
                None => Ok(()),
                Some(key) => {
                    let why = format!("{key} is for guests: it needs lab = \"vm\"");
                    Err(within((key, why).into()))
                }
            };
        }
        if let Some(key) = of_work {
            let why = format!("{key} needs a workload of kind work");
            return Err(within((key, why).into()));
        }
        if self.lab != Lab::Vm || self.workload.kind == Kind::Frames {
            let why = "[samples] is for guests: it needs lab = \"vm\", and is not supported by \
                       workloads of kind frames";
            return Err(("samples", why.to_string()).into());
        }
        match named.any(|name| name == SAMPLED.instrument) {
            true => Ok(()),
            false => {
                let why = "[samples] needs instrument `samples`";
                Err(("samples", why.to_string()).into())
            }
        }
    }

    fn check_events(&self) -> Result<(), Mistake> {
        let within = Mistake::within("events", 0);
        self.events.check().map_err(|wrong| within(wrong.into()))?;
        let is_work = self.workload.kind == Kind::Work && !self.runs_command();
        let is_of_all = is_work && self.filter.pid.is_none();
        if self.events.by == Some(events::By::Task) && !is_of_all {
            return Err(within(("by", events::NOT_BY_TASK.to_string()).into()));
        }
        let mut named = self.instruments.iter().flatten();
        match self.events.is_empty() || named.any(|name| name == events::INSTRUMENT) {
            true => Ok(()),
            false => {
                let why = "[events] needs instrument `events`";
                Err(("events", why.to_string()).into())
            }
        }
    }

    fn check_trace(&self) -> Result<(), Mistake> {
        let Some(trace) = &self.trace else {
            return match self.times_calls() {
                true => {
                    let why =
                        "instrument `calls` needs [trace], with the function whose calls are timed";
                    Err(("instruments", why.to_string()).into())
                }
                false => Ok(()),
            };
        };
        let within = Mistake::within("trace", 0);
        trace.check().map_err(|wrong| within(wrong.into()))?;
        let only = |of: &Declared| {
            let mut named = self.instruments.iter().flatten();
            named.all(|name| name == of.instrument)
        };
        let timed = self.times_calls();
        let kind = self.workload.kind;
        trace.check_clock(timed).map_err(|wrong| within(wrong.into()))?;
        let why = match () {
            () if timed && !only(&TIMED.step) => {
                "calls are timed by instrument `calls`, and no other"
            }
            () if timed && !matches!(kind, Kind::Packets | Kind::Command | Kind::Work) => {
                "it is not supported by this kind of workload, only by packets, commands and work"
            }
            () if timed && kind != Kind::Work && self.long().is_some() => {
                "a run with a duration would have too many of them"
            }
            () if timed && self.scan.is_some() => "a scan has too many arms",
            () if timed && !self.filter.is_of_process() => {
                "calls are timed of all tasks, a process or a command: leave out the other keys of [filter]"
            }
            () if timed => return Ok(()),
            () if self.lab != Lab::Vm => {
                "instructions are counted in guests (lab = \"vm\"); elsewhere calls are timed, by instruments = [\"calls\"]"
            }
            () if !matches!(kind, Kind::Packets | Kind::Command) => {
                "it is not supported by this kind of workload, only by packets and commands"
            }
            () if !only(&INSTRUCTIONS) => "it needs instrument `exact` or `calls`, and no other",
            () if self.long().is_some() => "a run with a duration would have too many of them",
            () if self.scan.is_some() => "a scan has too many arms",
            () => return Ok(()),
        };
        Err(("trace", format!("[trace]: {why}")).into())
    }

    fn check_spans(&self) -> Result<(), Mistake> {
        let within = Mistake::within("spans", 0);
        let mut named = self.instruments.iter().flatten();
        match (self.spans.is_empty(), named.any(|name| name == spans::INSTRUMENT)) {
            (true, false) => Ok(()),
            (_, true) => self.spans.check().map_err(|wrong| within(wrong.into())),
            (false, false) => {
                let why = "[spans] needs instrument `spans`";
                Err(("spans", why.to_string()).into())
            }
        }
    }
}
