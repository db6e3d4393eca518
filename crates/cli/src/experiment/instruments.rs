//! The instruments of an experiment: which can measure what is asked, and what each is to do.

use netplumb_instruments::instrument::Instrument;
use netplumb_instruments::registry;
use netplumb_model::experiment::{Experiment, Filter, Functions, Kind, Lab, Probes};
use netplumb_model::timing::TimingSpec;

use super::spec::spec;
use crate::args::live::{EXACT, FUNCTIONS, STAGES};
use crate::args::run::RunOptions;
use crate::exit::{CannotHere, Usage};

/// What following packets may take of the work where nothing is said.
const MAX_OVERHEAD: f64 = 0.05;

/// The instruments that are asked for; none if it is left to the lab.
pub(super) fn chosen(experiment: &Experiment) -> anyhow::Result<Vec<&'static dyn Instrument>> {
    let (lab, kind) = (experiment.lab, experiment.workload.kind);
    let names = experiment.instruments.as_deref().unwrap_or_default();
    // Who chooses functions means that clock.
    let functions = [FUNCTIONS.to_string()];
    let names = match names {
        [] if !experiment.functions.is_empty() && kind != Kind::Frames => &functions,
        names => names,
    };
    let mut all: Vec<&'static dyn Instrument> = Vec::new();
    for name in names {
        // Files are checked for names where lines can be shown.
        let found =
            registry::find(name).ok_or_else(|| Usage(format!("`{name}` measures nothing")))?;
        let cannot = match kind {
            Kind::Frames => {
                let looks_on = [EXACT, registry::BESIDE_RATES.name()].contains(&name.as_str());
                let why = "`rates` measure frames, and `exact` and `samples` where their time goes";
                match found.unavailable(lab).filter(|_| looks_on && name != EXACT) {
                    Some((why, remedy)) => Some(cannot_in(name, lab, why, remedy)),
                    None => (found.is_clock() && !looks_on).then_some(why.to_string()),
                }
            }
            _ if !found.is_clock() => Some(format!(
                "`{name}` measures frames, and this workload is of kind {kind}"
            )),
            _ => (found.unavailable(lab)).map(|(why, remedy)| cannot_in(name, lab, why, remedy)),
        };
        if let Some(why) = cannot {
            return Err(CannotHere(why).into());
        }
        if ![EXACT, FUNCTIONS].contains(&name.as_str()) && !experiment.functions.is_empty() {
            let why = format!("{name} have no functions to choose: use --clock functions");
            return Err(Usage(why).into());
        }
        if all.iter().any(|one| one.name() == name) {
            return Err(Usage(format!("`{name}` is named twice")).into());
        }
        all.push(found);
    }
    Ok(all)
}

fn cannot_in(name: &str, lab: Lab, why: &str, remedy: &str) -> String {
    format!("`{name}` can't measure in the lab {lab}: {why}; {remedy}")
}

/// What each instrument is to do.
pub(super) fn specs(
    experiment: &Experiment,
    asked: &[&'static dyn Instrument],
) -> anyhow::Result<Vec<TimingSpec>> {
    let each = |instrument: &&'static dyn Instrument| {
        let mut spec = spec(experiment, instrument.name())?;
        if instrument.name() == STAGES {
            spec.selection.max_overhead = stages_share(experiment);
        }
        Ok(spec)
    };
    asked.iter().map(each).collect()
}

/// What is asked of guests, or of counting, where there is none.
pub(super) fn check_options(
    experiment: &Experiment,
    counts: bool,
    options: &RunOptions,
) -> anyhow::Result<()> {
    let guests = experiment.lab == Lab::Vm;
    let again = "a clock of time does not go on where it was: measure again, into another file \
                 with --output";
    let counting = "it is for instructions (exact) in the lab vm";
    for (flag, given, why) in [
        ("--quick", options.quick && !guests, counting),
        ("--cold", options.cold && !guests, counting),
        ("--jobs", options.jobs.is_some() && !guests, counting),
        ("--resume", options.resume && !counts, again),
        (
            "--seeds",
            experiment.blocks.seeds() > 1 && !counts,
            counting,
        ),
    ] {
        if given {
            return Err(Usage(format!("{flag}: {why}")).into());
        }
    }
    Ok(())
}

/// What only clocks of time take.
pub(super) fn check_exact(experiment: &Experiment) -> anyhow::Result<()> {
    let Experiment {
        workload,
        blocks,
        filter,
        functions,
        probes,
        ..
    } = experiment;
    let asked = [
        ("kind = \"stream\"", workload.kind == Kind::Stream),
        ("rate", workload.rate.is_some()),
        ("time", blocks.time.is_some()),
        ("duration", workload.duration.is_some()),
        ("[filter]", *filter != Filter::default()),
        ("[functions]", *functions != Functions::default()),
        ("[probes]", *probes != Probes::default()),
    ];
    match asked.iter().find(|(_, asked)| *asked) {
        Some((key, _)) => Err(Usage(format!(
            "{key} is for instruments that read a clock (functions, stages): `exact` counts all of \
             a guest's functions and packets, one packet at a time"
        ))
        .into()),
        None => Ok(()),
    }
}

/// The share of the work that following packets may take, if there is a limit.
pub(super) fn stages_share(experiment: &Experiment) -> Option<f64> {
    // Our own packets are there to be measured; those of others have to go on, and
    // what that costs is what is asked.
    let probes = &experiment.probes;
    let limited = experiment.lab == Lab::Host || probes.measure_cost;
    let share = probes.max_overhead.map(|share| share.0);
    let share = share.or(limited.then_some(MAX_OVERHEAD));
    share.filter(|share| *share < 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that an instrument that can't measure what is asked says so before anything runs.
    #[test]
    fn instruments_that_cannot() {
        let found = |instruments: &str, rest: &str| {
            let text = format!("name = \"x\"\ninstruments = {instruments}\n{rest}");
            let experiment = Experiment::parse(&text).unwrap();
            let found = chosen(&experiment);
            found.map(|all| all.iter().map(|i| i.name()).collect::<Vec<_>>())
        };
        let refused =
            |instruments: &str, rest: &str| found(instruments, rest).unwrap_err().to_string();
        let both = found("[\"exact\", \"functions\"]", "").unwrap();
        assert_eq!(both, ["exact", "functions"]);
        let both = found("[\"stages\", \"samples\"]", "lab = \"netns\"").unwrap();
        assert_eq!(both, ["stages", "samples"]);
        assert!(refused("[\"exact\"]", "lab = \"netns\"").contains("--lab vm"));
        assert!(refused("[\"rates\"]", "").contains("frames"));
        assert!(refused("[\"exact\", \"exact\"]", "").contains("twice"));
        let frames = "lab = \"netns\"\n[workload]\nkind = \"frames\"";
        assert!(refused("[\"stages\"]", frames).contains("`rates`"));
        assert!(found("[\"rates\", \"samples\"]", frames).is_ok());
        let chosen = "lab = \"netns\"\n[functions]\ndiscover = true";
        assert!(refused("[\"stages\"]", chosen).contains("no functions to choose"));
    }
}
