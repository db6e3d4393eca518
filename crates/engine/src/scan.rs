//! The arms of a scan: a guest first lists the settings that it has and other values that it
//! accepts.

use std::borrow::Cow;

use netplumb_lab::vm::process::Extra;
use netplumb_model::experiment::Scan;
use netplumb_model::message::{Reply, Request, Sysctl};
use netplumb_model::recording::{Arm, Derivation, MadeBy, Recording};

use crate::error::EngineError;
use crate::origin::Boot;
use crate::plan::Plan;
use crate::run::{Options, Progress};

/// Number of settings that are written with their current value, to measure the effect of writing
/// alone.
const CONTROLS: usize = 3;

/// The plan with the arms of its scan, if it has one. Settings that are not tried are noted in the
/// recording.
pub(crate) fn planned<'p>(
    plan: &'p Plan,
    options: &Options,
    recording: &mut Recording,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Cow<'p, Plan>, EngineError> {
    let Some(scan) = &plan.scan else {
        return Ok(Cow::Borrowed(plan));
    };
    let settings = settings(plan, scan, options, progress)?;
    recording.not_tried.extend(skipped(scan, &settings));
    let mut plan = plan.clone();
    plan.arms = arms(&plan.arms, scan, &settings);
    Ok(Cow::Owned(plan))
}

/// List the settings in a guest like the first arm's.
fn settings(
    plan: &Plan,
    scan: &Scan,
    options: &Options,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Vec<Sysctl>, EngineError> {
    let guests = plan.guests();
    let (Some(guest), Some(arm)) = (guests.first(), plan.arms.first()) else {
        return Ok(Vec::new());
    };
    let kernel = guest.kernel_in(options, progress)?;
    let boot = Boot { guest, kernel: &kernel, options };
    let run = plan.run_plan(arm);
    let origin = boot.origin(&run, &|event| progress(event))?;
    progress(Progress::Arm("listing sysctls".into()));
    let request =
        Request::ListSysctls { prefixes: scan.sysctl.clone(), skip: scan.skip.clone(), plan: run };
    let mut guest = origin.start(&[request], Extra::default(), options)?;
    guest.go_on()?;
    let mut settings = Vec::new();
    guest.answers(options.timeout, |reply| {
        if let Reply::Sysctls(chunk) = reply {
            settings.extend(chunk);
        }
        Ok(())
    })?;
    Ok(settings)
}

/// The settings to try, each with its new value.
fn tried<'s>(
    scan: &Scan,
    settings: &'s [Sysctl],
) -> impl Iterator<Item = (&'s Sysctl, &'s String)> {
    settings
        .iter()
        .filter_map(|s| Some((s, s.other.as_ref().ok()?)))
        .take(scan.limit.unwrap_or(usize::MAX))
}

/// Settings that are not tried, with the reason.
fn skipped(scan: &Scan, settings: &[Sysctl]) -> Vec<(String, String)> {
    let limit = scan.limit.unwrap_or(usize::MAX);
    let mut not_tried = settings.iter().filter(|s| s.other.is_ok()).skip(limit);
    let refused =
        settings.iter().filter_map(|s| Some((s.key.clone(), s.other.as_ref().err()?.clone())));
    let mut skipped: Vec<(String, String)> = refused.collect();
    skipped.extend(not_tried.by_ref().map(|s| {
        let why = format!("beyond the limit of {limit}");
        (s.key.clone(), why)
    }));
    skipped
}

/// The arms of the experiment, controls, and every arm with every setting.
fn arms(base: &[Arm], scan: &Scan, settings: &[Sysctl]) -> Vec<Arm> {
    let mut arms = base.to_vec();
    let changed = |arm: &Arm, setting: &Sysctl, value: &str, control: bool| {
        let mut new = arm.clone();
        let label = if control {
            format!("{}={value} (as it was)", setting.key)
        } else {
            format!("{}: {} to {value}", setting.key, setting.value)
        };
        new.name = format!("{}, {label}", arm.name);
        let knob = format!("sysctl.{}", setting.key);
        new.knobs.insert(knob, value.into());
        new.made = Some(Derivation {
            from: arm.name.clone(),
            by: MadeBy::Scan { setting: label, control },
        });
        new
    };
    for arm in base {
        // Don't override knobs of the experiment.
        let free = |setting: &Sysctl| !arm.knobs.contains_key(&format!("sysctl.{}", setting.key));
        let controls = tried(scan, settings).filter(|(s, _)| free(s)).take(CONTROLS);
        arms.extend(controls.map(|(s, _)| changed(arm, s, &s.value, true)));
        let all = tried(scan, settings).filter(|(s, _)| free(s));
        arms.extend(all.map(|(s, other)| changed(arm, s, other, false)));
    }
    arms
}

#[cfg(test)]
mod tests {
    use super::*;
    use netplumb_model::experiment::Experiment;

    fn setting(key: &str, value: &str, other: Result<&str, &str>) -> Sysctl {
        Sysctl {
            key: key.into(),
            value: value.into(),
            other: other.map(String::from).map_err(String::from),
        }
    }

    /// Check that every setting that accepts another value makes an arm for each of the
    /// experiment's, with controls, and that the others are listed with the reason.
    #[test]
    fn arms_of_a_scan() {
        let text = "name = \"x\"\n[vary]\nproto = [\"udp\", \"tcp\"]\n[scan]\nsysctl = [\"net.\"]\n\
                    limit = 2\n";
        let experiment = Experiment::parse(text).unwrap();
        let scan = experiment.scan.clone().unwrap();
        let settings = [
            setting("net.a", "0", Ok("1")),
            setting("net.b", "cubic", Err("its value is a word")),
            setting("net.c", "300", Ok("600")),
            setting("net.d", "1", Ok("0")),
        ];
        let arms = arms(&experiment.arms(), &scan, &settings);
        let names: Vec<&str> = arms.iter().map(|a| a.name.as_str()).collect();
        assert_eq!(
            names[..6],
            [
                "udp",
                "tcp",
                "udp, net.a=0 (as it was)",
                "udp, net.c=300 (as it was)",
                "udp, net.a: 0 to 1",
                "udp, net.c: 300 to 600"
            ]
        );
        assert_eq!(arms.len(), 2 + 2 * 4);
        assert_eq!(arms[5].knobs["sysctl.net.c"], "600");
        assert_eq!(arms[5].scanned().map(|(base, ..)| base), Some("udp"));
        assert_eq!(
            skipped(&scan, &settings),
            [
                ("net.b".to_string(), "its value is a word".to_string()),
                ("net.d".to_string(), "beyond the limit of 2".to_string())
            ]
        );
    }

    /// Check that settings of the experiment are not overridden.
    #[test]
    fn held_settings_stay() {
        let text = "name = \"x\"\n[knobs]\nsysctl.\"net.a\" = \"1\"\n[scan]\nsysctl = [\"net.\"]\n";
        let experiment = Experiment::parse(text).unwrap();
        let scan = experiment.scan.clone().unwrap();
        let settings = [setting("net.a", "1", Ok("0"))];
        assert_eq!(arms(&experiment.arms(), &scan, &settings).len(), 1);
    }
}
