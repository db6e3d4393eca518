//! The instruments of an experiment: availability, and settings.

use netplumb_instruments::instrument::Instrument;
use netplumb_instruments::registry;
use netplumb_model::experiment::{Experiment, Filter, Functions, Key, Kind, Lab, Probes};
use netplumb_model::timing::TimingSpec;

use super::spec::spec;
use crate::args::live::{CALLS, EVENTS, EXACT, FUNCTIONS, SAMPLES, SPANS, STAGES};
use crate::args::run::RunOptions;
use crate::exit::{Usage, WrongKey};

/// The default limit on the overhead of stages.
const MAX_OVERHEAD: f64 = 0.05;

/// The instruments of an experiment; none if the lab chooses.
pub(super) fn chosen(experiment: &Experiment) -> anyhow::Result<Vec<&'static dyn Instrument>> {
    let (lab, kind) = (experiment.lab, experiment.workload.kind);
    let names = experiment.instruments.as_deref().unwrap_or_default();
    // Choosing functions implies the instrument.
    let functions = [FUNCTIONS.to_string()];
    let names = match names {
        [] if !experiment.functions.is_empty() && kind != Kind::Frames => &functions,
        names => names,
    };
    let wrong = |why: String| WrongKey::usage("instruments", why);
    let mut all: Vec<&'static dyn Instrument> = Vec::new();
    for name in names {
        // Names in files have been checked, with their lines.
        let found =
            registry::find(name).ok_or_else(|| wrong(format!("invalid instrument `{name}`")))?;
        let cannot = match kind {
            Kind::Frames => {
                let looks_on = [EXACT, registry::BESIDE_RATES.name()].contains(&name.as_str());
                let why = "expected `rates` for a workload of frames, optionally with `exact` or `samples`";
                // In guests, packets that plumb sends are sampled, not frames.
                let of_guests = (lab == Lab::Vm && name == SAMPLES).then_some((
                    "it can't sample the CPUs of a guest that forwards frames",
                    "use --lab netns",
                ));
                let never = found.unavailable(lab).or(of_guests);
                match never.filter(|_| looks_on && name != EXACT) {
                    Some((why, remedy)) => Some(cannot_in(name, lab, why, remedy)),
                    None => (found.is_clock() && !looks_on).then_some(why.to_string()),
                }
            }
            Kind::Work => (![SAMPLES, EVENTS, SPANS, CALLS].contains(&name.as_str())).then(|| {
                format!(
                    "invalid instrument `{name}`; expected `samples`, `events`, `spans` or `calls` for a workload \
                     of work"
                )
            }),
            Kind::Traffic if [EVENTS, SPANS, CALLS].contains(&name.as_str()) => Some(format!(
                "instrument `{name}` is not about packets of others; use a workload of kind work, as \
                 `plumb stat`, `plumb between` and `plumb trace` do"
            )),
            _ if [EVENTS, SPANS, CALLS].contains(&name.as_str()) => {
                (found.unavailable(lab)).map(|(why, remedy)| cannot_in(name, lab, why, remedy))
            }
            _ if !found.is_clock() => Some(format!(
                "instrument `{name}` needs a workload of kind frames; this one is of kind {kind}"
            )),
            _ => (found.unavailable(lab)).map(|(why, remedy)| cannot_in(name, lab, why, remedy)),
        };
        if let Some(why) = cannot {
            return Err(WrongKey::cannot_here("instruments", why).into());
        }
        let can_choose = [EXACT, FUNCTIONS].contains(&name.as_str());
        let has_functions = names.iter().any(|one| one == FUNCTIONS);
        if !can_choose && !has_functions && !experiment.functions.is_empty() {
            let why = format!("instrument `{name}` measures no functions: use `functions`");
            return Err(wrong(why).into());
        }
        if all.iter().any(|one| one.name() == name) {
            return Err(wrong(format!("instrument `{name}` is given twice")).into());
        }
        all.push(found);
    }
    Ok(all)
}

fn cannot_in(name: &str, lab: Lab, why: &str, remedy: &str) -> String {
    format!("instrument `{name}` is unavailable in the {lab} lab: {why}; {remedy}")
}

/// The settings of each instrument.
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

/// Why a run can't be resumed.
pub(crate) const NOT_RESUMED: &str = "only counts of `exact`, samples of guests, and runs with a duration of a \
                                      minute or more can be resumed; measure again, into another file with --output";

/// Check for options of guests, or of counting, where there are none.
pub(super) fn check_options(
    experiment: &Experiment,
    asked: &[&'static dyn Instrument],
    options: &RunOptions,
) -> anyhow::Result<()> {
    let guests = experiment.lab == Lab::Vm;
    let asks = |name: &str| asked.iter().any(|i| i.name() == name);
    let counts = guests && (asked.is_empty() || asks(EXACT));
    let long = experiment.long().is_some();
    if long {
        check_long(experiment, options)?;
    }
    // Instruments of the plugin give the same in every run.
    let drawn = guests && asked.iter().all(|i| [EXACT, SAMPLES].contains(&i.name()));
    let counting = "it is for instrument `exact` in the vm lab";
    let wired = "a wire needs virtual time: leave it out";
    for (flag, given, why) in [
        ("--quick", options.quick && !guests, counting),
        ("--quick", options.quick && experiment.has_wire_in_guest(), wired),
        ("--cold", options.cold && !guests, counting),
        ("--jobs", options.jobs.is_some() && !guests, counting),
        ("--resume", options.resume && !long && !drawn, NOT_RESUMED),
        ("--seeds", experiment.blocks.seeds() > 1 && !counts, counting),
    ] {
        if given && flag == "--seeds" {
            let seeds = Key::new("blocks", "seeds");
            return Err(WrongKey::usage(seeds, format!("{flag}: {why}")).into());
        }
        if given {
            return Err(Usage(format!("{flag}: {why}")).into());
        }
    }
    Ok(())
}

/// Reject settings that a long run does not support.
fn check_long(experiment: &Experiment, options: &RunOptions) -> anyhow::Result<()> {
    const MOST_GUESTS: usize = 16;
    let guests = experiment.lab == Lab::Vm;
    let why = match () {
        () if guests && options.cold => "--cold: guests go on from a saved state",
        () if experiment.blocks.seeds() > 1 => "seeds: each is a run of its own",
        () if experiment.scan.is_some() => "[scan]: settings are tried in short runs",
        () if experiment.probes.one_packet => "one_packet: traces would be too many",
        () if guests && experiment.arms().len() > MOST_GUESTS => {
            "the experiment has more than 16 arms in guests, each of which has a guest all the time; leave \
             some out in a file of its own"
        }
        () => return Ok(()),
    };
    Err(Usage(format!("can't be used with a duration: {why}")).into())
}

/// Reject settings that only instruments that measure time support. Errors name flags if settings were given
/// `by_flags`, and otherwise keys of the file.
pub(super) fn check_counting(
    experiment: &Experiment,
    instrument: &str,
    by_flags: bool,
) -> anyhow::Result<()> {
    let Experiment { workload, blocks, filter, functions, probes, .. } = experiment;
    let asked = [
        ("kind = \"stream\"", Key::new("workload", "kind"), workload.kind == Kind::Stream),
        ("rate", Key::new("workload", "rate"), workload.rate.is_some()),
        ("time", Key::new("blocks", "time"), blocks.time.is_some()),
        (
            "duration",
            Key::new("workload", "duration"),
            workload.duration.is_some() && experiment.long().is_none(),
        ),
        ("[filter]", "filter".into(), *filter != Filter::default()),
        ("[functions]", "functions".into(), *functions != Functions::default()),
        ("[probes]", "probes".into(), *probes != Probes::default()),
    ];
    match asked.into_iter().find(|(.., asked)| *asked) {
        Some((said, key, _)) => {
            let why = format!(
                "is not supported by instrument `{instrument}` in the vm lab; use functions or stages"
            );
            let flag = flag_of(experiment, said).filter(|_| by_flags);
            let said = flag.unwrap_or(said);
            Err(WrongKey::usage(key, format!("{said} {why}")).into())
        }
        None => Ok(()),
    }
}

/// The flag for a key or a table of a file.
fn flag_of(experiment: &Experiment, said: &str) -> Option<&'static str> {
    let Experiment { filter, functions, probes, .. } = experiment;
    let flags: &[(&'static str, bool)] = match said {
        "[filter]" => &[
            ("--port", filter.port.is_some()),
            ("--address", filter.address.is_some()),
            ("--interface", filter.interface.is_some()),
            ("--netns", filter.netns.is_some()),
            ("--pid", filter.pid.is_some()),
            ("--cgroup", filter.cgroup.is_some()),
        ],
        "[functions]" => &[
            ("--functions", !functions.names.is_empty()),
            ("--from-recording", functions.recorded.is_some()),
            ("--discover", functions.discover),
            ("--max-functions", functions.most.is_some()),
        ],
        "[probes]" => &[
            ("--max-overhead", probes.max_overhead.is_some()),
            ("--measure-cost", probes.measure_cost),
            ("--one-packet", probes.one_packet),
        ],
        "rate" => &[("--rate", true)],
        "duration" => &[("--duration", true)],
        _ => &[("--stream", said.contains("stream"))],
    };
    let given = flags.iter().find(|(_, given)| *given);
    given.map(|(flag, _)| *flag)
}

/// The limit on the overhead of stages, if there is one.
pub(super) fn stages_share(experiment: &Experiment) -> Option<f64> {
    // Packets that plumb sends only exist to be measured; other traffic must not suffer, and with
    // --measure-cost the overhead itself is measured.
    let probes = &experiment.probes;
    let limited = experiment.lab == Lab::Host || probes.measure_cost;
    let share = probes.max_overhead.map(|share| share.0);
    let share = share.or(limited.then_some(MAX_OVERHEAD));
    share.filter(|share| *share < 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that unsupported instruments are an error before anything runs.
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
        assert!(refused("[\"stages\"]", chosen).contains("measures no functions"));
    }
}
