//! How a bench was measured, and what to doubt.

use std::collections::BTreeMap;

use netplumb_model::bench::CpuUse;
use netplumb_model::bench::quantities::{LIST_UPDATES, PROGRAMS};
use netplumb_model::recording::{Recording, env};

use super::{ArmRates, ArmRow, NAME_LETTERS, bound_share, names};
use crate::footer::Note;
use crate::number::{printable, thousands};
use crate::scalars::of_run;
use crate::trust::common::{CUT_SHORT, lost};

/// Above this the load of CPUs that have no part in a bench is reported.
const ELSEWHERE: f64 = 0.05;
/// The most arms that have a note of their own.
const ARMS_APART: usize = 4;

/// How it was measured, and what to doubt.
pub(super) fn trust(recording: &Recording, arms: &[ArmRow<'_>]) -> Vec<Note> {
    let arms: Vec<&ArmRates<'_>> =
        arms.iter().map(|arm| &**arm).filter(|a| a.failed.is_none()).collect();
    let fact = |key: &str| recording.environment.get(key).map(|v| printable(v, 300));
    let blocks: usize = arms.iter().map(|a| a.valid.len()).sum();
    let invalid: usize = arms.iter().flat_map(|a| a.invalid.values()).sum();
    let mut notes = vec![Note::new(
        "blocks",
        format!(
            "{blocks} valid, {invalid} invalid. In valid ones every packet is accounted for: offered = delivered \
             + dropped by cause, on every hop, from the first packet to the last"
        ),
    )];
    let mut add = |topic, text: String| notes.push(Note::new(topic, text));
    if arms.iter().any(|a| a.is_generator_bound()) {
        add(
            "limit",
            format!(
                "generator-bound: within {} of the generator's own rate, so the path may be faster",
                bound_share()
            ),
        );
    }
    let unknown: Vec<&str> = (arms.iter())
        .filter(|a| !a.valid.is_empty() && a.generator_bound().is_none())
        .map(|a| a.arm.name.as_str())
        .collect();
    if !unknown.is_empty() {
        let text = format!(
            "whether these are generator-bound is unknown: {}. The generator's own rate could not be measured, \
             since other work used its CPU; measure again when the machine is idle",
            names(&unknown)
        );
        add("limit", text);
    }
    if let Some(programs) = of_run(recording, &PROGRAMS) {
        let met = match invalid {
            // A packet that met none or two would be missing, or one too many.
            0 if blocks > 0 => "every packet ran exactly one of them",
            _ => "whether every packet ran exactly one is unknown, since blocks don't add up",
        };
        let text = format!(
            "{programs} took turns in each block, each replacing the one before while packets ran: {met}"
        );
        add("programs", text);
    }
    for text in queues(&arms) {
        add("queues", text);
    }
    if let Some(updates) = of_run(recording, &LIST_UPDATES) {
        let text = format!("the list changed {updates:.0} times a second while packets ran");
        add("sources", text);
    }
    let behind: u64 =
        (arms.iter().flat_map(|a| &a.valid)).flat_map(|m| &m.generated).map(|g| g.behind).sum();
    if behind > 0 {
        let text = format!("fell behind: {} packets due were never sent", thousands(behind));
        add("generator", text);
    }
    if let Some(nics) = fact(env::NICS) {
        let foreign: u64 = (arms.iter().flat_map(|a| &a.valid)).map(|m| m.handled.foreign).sum();
        let others = match foreign {
            0 => String::new(),
            _ => format!(
                ". {} packets from elsewhere were received there: they are in no figure, and took time",
                thousands(foreign)
            ),
        };
        add("NICs", format!("{nics}{others}"));
    }
    if let Some(generator) = fact("generator.method") {
        add("generator", generator);
    }
    if arms.iter().any(|a| a.cpu_ns_per_packet().is_some()) {
        let mut cpu_ns =
            "CPU ns/packet: busy time of all CPUs for each packet, CPUs busy / packets/s. Wall time of a packet is \
             1 / packets/s"
                .to_string();
        let elsewhere = (arms.iter()).filter_map(|a| Some((a.busy_elsewhere()?, a)));
        if let Some((busy, arm)) = elsewhere.max_by(|a, b| a.0.total_cmp(&b.0))
            && busy > ELSEWHERE
        {
            cpu_ns.push_str(&format!(
                ". It includes other load: CPUs that neither sent nor handled a packet were busy by up to \
                 {busy:.2} ({}); --explain shows what ran",
                printable(&arm.arm.name, NAME_LETTERS)
            ));
        }
        add("CPU time", cpu_ns);
    }
    let mut cpu = "busy: 1 - (idle + iowait) / wall, the sum of all CPUs".to_string();
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
    let others = arms.iter().map(|a| a.cpus().iter().filter_map(|c| c.others).sum());
    let others = others.fold(0.0, f64::max);
    if others > ELSEWHERE {
        cpu.push_str(&format!(
            "; other programs had up to {others:.2} CPUs, which claims about CPU use leave out"
        ));
    }
    let steal = (arms.iter().flat_map(|a| a.cpus())).map(|c| c.steal).fold(0.0, f64::max);
    if steal > 0.005 {
        cpu.push_str(&format!(
            "; up to {:.0} % of a CPU was stolen by the hypervisor",
            steal * 100.0
        ));
    }
    if let Some(accounting) = fact("cpu.accounting") {
        cpu.push_str(&format!("; accounting: {accounting}"));
    }
    add("CPUs", cpu);
    let machine: Vec<String> =
        [env::KERNEL, "machine.cpus", "lab"].iter().filter_map(|k| fact(k)).collect();
    if !machine.is_empty() {
        add("machine", format!("kernel, CPUs, lab: {}", machine.join(", ")));
    }
    if recording.all_losses().next().is_some() || !recording.complete {
        notes.extend(lost(recording, "none", CUT_SHORT));
    }
    notes
}

/// The queues of packets: arm by arm or, where there are many, together.
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
                "{}: received by {} queues, {least:.0} to {most:.0} % of the packets by each",
                printable(&arm.arm.name, NAME_LETTERS),
                queues.len(),
            )
        };
        return several.iter().map(line).collect();
    }
    let all = several.iter().map(|(_, queues)| shares(queues));
    let (least, most) =
        all.fold((f64::INFINITY, 0.0_f64), |(l, m), (least, most)| (l.min(least), m.max(most)));
    vec![format!(
        "{} arms received by several queues, {least:.0} to {most:.0} % of the packets by each",
        several.len()
    )]
}
