//! Events as quantities.

use linux_perf_data::AttributeDescription;
use linux_perf_data::linux_perf_event_reader::{
    AttrFlags, HardwareEventId, PerfEventType, SampleFormat, SamplingPolicy, SoftwareCounterType,
};
use netplumb_model::quantity::{Calls, Kind, Quantity, Repeats};
use netplumb_model::timing::CPU_TIME;

use crate::facts::Facts;

/// The instrument of samples, whoever took them.
pub(crate) const SAMPLES: &str = CPU_TIME.instrument;
/// Maximum length of the name of an event: a probe may have a long one.
const MAX_NAME: usize = 200;
/// Nanoseconds.
const NS: &str = CPU_TIME.unit;

/// An event that was sampled.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    /// perf's name of the event.
    pub(crate) name: String,
    /// What its samples are of; none if they are not imported.
    pub(crate) quantity: Option<Quantity>,
    /// The weight of a sample that has none of its own.
    pub(crate) period: u64,
    /// Its period, if it is the same for all samples.
    pub(crate) fixed: Option<u64>,
    /// Its samples have stacks of branches, which are not imported.
    pub(crate) branches: bool,
    /// It copied stacks of user code, to be unwound later.
    pub(crate) stack_copies: bool,
}

/// The event of an attribute, by its number, and what simpleperf calls it.
pub(crate) fn event(
    description: &AttributeDescription,
    facts: &Facts,
    (number, simpleperf): (usize, Option<&String>),
) -> Event {
    let attr = &description.attr;
    let named = description.event_ids.first();
    let named = named.and_then(|id| facts.events.get(id));
    let fixed = match attr.sampling_policy {
        SamplingPolicy::Period(period) => Some(period.get()),
        _ => None,
    };
    let format = attr.sample_format;
    let flags = attr.flags;
    let modifiers = match (
        flags.contains(AttrFlags::EXCLUDE_KERNEL),
        flags.contains(AttrFlags::EXCLUDE_USER),
    ) {
        (true, false) => ":u",
        (false, true) => ":k",
        _ => "",
    };
    let known = known(attr.type_).map(|(name, _)| name);
    // In order of preference: perf's name, the kind of event, its number.
    let name = match (named, simpleperf.map(String::as_str).or(known)) {
        (Some(named), _) if !named.is_empty() => named.chars().take(MAX_NAME).collect(),
        (_, Some(known)) => format!("{known}{modifiers}"),
        _ => format!("event {number}"),
    };
    Event {
        quantity: quantity(attr.type_, &name, modifiers),
        name,
        period: fixed.unwrap_or(1),
        fixed: fixed.filter(|_| !format.contains(SampleFormat::PERIOD)),
        branches: format.contains(SampleFormat::BRANCH_STACK),
        stack_copies: format.contains(SampleFormat::STACK_USER),
    }
}

/// perf's name of an event, and what it counts, if it is one of the kernel's own.
fn known(of: PerfEventType) -> Option<(&'static str, &'static str)> {
    Some(match of {
        PerfEventType::Software(software) => match software {
            SoftwareCounterType::CpuClock => ("cpu-clock", NS),
            SoftwareCounterType::TaskClock => ("task-clock", NS),
            SoftwareCounterType::PageFaults => ("page-faults", "faults"),
            SoftwareCounterType::PageFaultsMin => ("minor-faults", "faults"),
            SoftwareCounterType::PageFaultsMaj => ("major-faults", "faults"),
            SoftwareCounterType::ContextSwitches => ("context-switches", "switches"),
            SoftwareCounterType::CpuMigrations => ("cpu-migrations", "migrations"),
            SoftwareCounterType::AlignmentFaults => ("alignment-faults", "faults"),
            SoftwareCounterType::EmulationFaults => ("emulation-faults", "faults"),
            SoftwareCounterType::CgroupSwitches => ("cgroup-switches", "switches"),
            _ => return None,
        },
        PerfEventType::Hardware(hardware, _) => match hardware {
            HardwareEventId::CpuCycles => ("cycles", "cycles"),
            HardwareEventId::RefCpuCycles => ("ref-cycles", "cycles"),
            HardwareEventId::BusCycles => ("bus-cycles", "cycles"),
            HardwareEventId::Instructions => ("instructions", "instructions"),
            HardwareEventId::BranchInstructions => ("branches", "branches"),
            HardwareEventId::BranchMisses => ("branch-misses", "misses"),
            HardwareEventId::CacheMisses => ("cache-misses", "misses"),
            HardwareEventId::CacheReferences => ("cache-references", "references"),
            HardwareEventId::StalledCyclesFrontend => ("stalled-cycles-frontend", "cycles"),
            HardwareEventId::StalledCyclesBackend => ("stalled-cycles-backend", "cycles"),
            _ => return None,
        },
        _ => return None,
    })
}

/// The quantity that an event samples. The CPU clock, of the kernel and programs alike, is the quantity of a profile of
/// this machine; other events keep perf's name, since `cycles:u` and `cycles:k`, or cycles of two kinds of cores, can't
/// be compared.
fn quantity(of: PerfEventType, name: &str, modifiers: &str) -> Option<Quantity> {
    // The output of BPF programs to perf has other contents than samples.
    if let PerfEventType::Software(SoftwareCounterType::BpfOutput | SoftwareCounterType::Dummy) = of
    {
        return None;
    }
    let is_cpu_clock = matches!(of, PerfEventType::Software(SoftwareCounterType::CpuClock));
    if is_cpu_clock && modifiers.is_empty() {
        return Some(Quantity::from(&CPU_TIME));
    }
    let unit = known(of).map_or("events", |(_, unit)| unit);
    Some(Quantity {
        instrument: SAMPLES.into(),
        name: name.into(),
        unit: unit.into(),
        kind: if unit == NS { Kind::Duration } else { Kind::Count },
        repeats: Repeats::Statistically,
        calls: Calls::Samples,
        number: None,
        label: None,
    })
}
