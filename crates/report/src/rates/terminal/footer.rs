//! How a bench was measured, and what to doubt.

use std::collections::BTreeMap;

use netplumb_model::bench::CpuUse;
use netplumb_model::bench::quantities::{LIST_UPDATES, PROGRAMS};
use netplumb_model::recording::{Recording, env};

use super::{NAME_LIMIT, names};
use crate::number::{printable, thousands};
use crate::rates::{ArmRates, bound_share};
use crate::scalars::of_run;

/// Above this the load of CPUs that have no part in a bench is told.
const ELSEWHERE: f64 = 0.05;
/// So many arms have a line of their own.
const ARMS_APART: usize = 4;

/// How it was measured, and what to doubt.
pub(in crate::rates) fn footer(
    recording: &Recording,
    shown: &[&ArmRates<'_>],
    searched: &[&ArmRates<'_>],
) -> Vec<String> {
    let arms: Vec<&ArmRates<'_>> = shown.iter().chain(searched).copied().collect();
    let fact = |key: &str| recording.environment.get(key).map(|v| printable(v, 300));
    let blocks: usize = arms.iter().map(|a| a.valid.len()).sum();
    let invalid: usize = arms.iter().flat_map(|a| a.invalid.values()).sum();
    let mut lines = vec![format!(
        "{blocks} blocks count, {invalid} don't. Of those that do, every packet is accounted for: offered = \
         delivered + dropped by cause, on every hop, from the first packet to the last."
    )];
    if arms.iter().any(|a| a.is_generator_bound()) {
        lines.push(format!(
            "generator-bound: within {} of what the generator makes by itself: the path may be faster.",
            bound_share()
        ));
    }
    let unknown: Vec<&str> = (arms.iter())
        .filter(|a| !a.valid.is_empty() && a.generator_bound().is_none())
        .map(|a| a.arm.name.as_str())
        .collect();
    if !unknown.is_empty() {
        lines.push(format!(
            "generator-bound or not is unknown of {}: what the generator makes by itself could not \
             be measured, since other work took its CPU; measure again when the machine is idle",
            names(&unknown)
        ));
    }
    if let Some(programs) = of_run(recording, &PROGRAMS) {
        let met = match invalid {
            // A packet that met none or two would be missing, or one too many.
            0 if blocks > 0 => "every packet met one of them, and only one",
            _ => "whether every packet met one of them can't be said, as blocks don't add up",
        };
        lines.push(format!(
            "{programs} programs took turns in each block, each put in the place of the one before \
             while packets ran: {met}."
        ));
    }
    lines.extend(queues(&arms));
    if let Some(updates) = of_run(recording, &LIST_UPDATES) {
        lines.push(format!(
            "the list of sources changed {updates:.0} times a second while packets ran"
        ));
    }
    let behind: u64 = (arms.iter().flat_map(|a| &a.valid))
        .flat_map(|m| &m.generated)
        .map(|g| g.behind)
        .sum();
    if behind > 0 {
        lines.push(format!(
            "the generator fell behind: {} packets that were due were never made",
            thousands(behind)
        ));
    }
    if let Some(nics) = fact(env::NICS) {
        let foreign: u64 = (arms.iter().flat_map(|a| &a.valid))
            .map(|m| m.handled.foreign)
            .sum();
        lines.push(match foreign {
            0 => format!("interfaces of this machine: {nics}"),
            _ => format!(
                "interfaces of this machine: {nics}. {} packets came in there that were not the \
                 generator's: they are in no figure, and cost time",
                thousands(foreign)
            ),
        });
    }
    if let Some(generator) = fact("generator.method") {
        lines.push(format!("generator: {generator}"));
    }
    if arms.iter().any(|a| a.cpu_ns_per_packet().is_some()) {
        let mut cpu_ns =
            "CPU ns/packet: how long CPUs were busy for each packet, all CPUs together: \
                          CPUs busy / packets/s. Wall time a packet is 1 / packets/s"
                .to_string();
        let elsewhere = (arms.iter()).filter_map(|a| Some((a.busy_elsewhere()?, a)));
        if let Some((busy, arm)) = elsewhere.max_by(|a, b| a.0.total_cmp(&b.0))
            && busy > ELSEWHERE
        {
            cpu_ns.push_str(&format!(
                ". Others' load is in it: CPUs that neither sent nor handled a packet were busy by \
                 up to {busy:.2} ({}); --explain names what ran",
                printable(&arm.arm.name, NAME_LIMIT)
            ));
        }
        lines.push(cpu_ns);
    }
    let mut cpu = "CPUs busy: 1 - (idle + iowait) / wall, all CPUs together".to_string();
    if let Some(second) = fact("cpu.second") {
        cpu.push_str(&format!("; checked by {second}"));
    }
    let doubtful = |a: &&&ArmRates<'_>| a.cpus().iter().any(CpuUse::is_doubtful);
    let doubted = arms.iter().filter(doubtful).count();
    if doubted > 0 {
        cpu.push_str(&format!(
            "; `?`: the two disagree by more than 2 points ({doubted} of {} rows)",
            arms.len()
        ));
    }
    let steal = (arms.iter().flat_map(|a| a.cpus()))
        .map(|c| c.steal)
        .fold(0.0, f64::max);
    if steal > 0.005 {
        cpu.push_str(&format!(
            "; up to {:.0} % of a CPU was stolen by the machine below",
            steal * 100.0
        ));
    }
    if let Some(accounting) = fact("cpu.accounting") {
        cpu.push_str(&format!("; accounting: {accounting}"));
    }
    lines.push(cpu);
    for loss in recording.all_losses() {
        lines.push(format!(
            "not counted well: {} {}: {}",
            thousands(loss.count),
            printable(&loss.cause, 120),
            printable(&loss.meaning, 200)
        ));
    }
    let machine: Vec<String> = [env::KERNEL, "machine.cpus", "lab"]
        .iter()
        .filter_map(|k| fact(k))
        .collect();
    if !machine.is_empty() {
        lines.push(format!("kernel, CPUs, lab: {}", machine.join(", ")));
    }
    lines
}

/// By which queues packets came: arm by arm, or where there are many, all of them.
fn queues(arms: &[&ArmRates<'_>]) -> Vec<String> {
    let several: Vec<_> = (arms.iter().map(|arm| (arm, arm.queues())))
        .filter(|(_, queues)| queues.len() > 1)
        .collect();
    let shares = |queues: &BTreeMap<u32, u64>| {
        let all = queues.values().sum::<u64>().max(1) as f64;
        let share = |n: Option<&u64>| *n.unwrap_or(&0) as f64 * 100.0 / all;
        (share(queues.values().min()), share(queues.values().max()))
    };
    if several.len() <= ARMS_APART {
        let line = |(arm, queues): &(&&ArmRates<'_>, BTreeMap<u32, u64>)| {
            let (least, most) = shares(queues);
            format!(
                "{}: packets came by {} receive queues, {least:.0} to {most:.0} % by each",
                printable(&arm.arm.name, NAME_LIMIT),
                queues.len(),
            )
        };
        return several.iter().map(line).collect();
    }
    let all = several.iter().map(|(_, queues)| shares(queues));
    let (least, most) = all.fold((f64::INFINITY, 0.0_f64), |(l, m), (least, most)| {
        (l.min(least), m.max(most))
    });
    vec![format!(
        "packets of {} arms came by several receive queues, {least:.0} to {most:.0} % by each",
        several.len()
    )]
}
