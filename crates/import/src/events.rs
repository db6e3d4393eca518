//! What events are as quantities.

use linux_perf_data::AttributeDescription;
use linux_perf_data::linux_perf_event_reader::{
    HardwareEventId, PerfEventType, SampleFormat, SamplingPolicy, SoftwareCounterType,
};
use netplumb_model::quantity::{Calls, Kind, Quantity, Repeats};
use netplumb_model::timing::CPU_TIME;

use crate::facts::Facts;

/// The instrument of samples, whoever took them.
pub(crate) const SAMPLES: &str = CPU_TIME.instrument;
/// Maximum length of the name of an event: a probe may have a long one.
const MAX_NAME: usize = 200;

/// An event that was sampled.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    /// What perf calls it.
    pub(crate) name: String,
    /// What its samples are of; none if they are not imported.
    pub(crate) quantity: Option<Quantity>,
    /// What a sample stands for if it doesn't say.
    pub(crate) period: u64,
    /// Its period, if it is the same for all samples.
    pub(crate) fixed: Option<u64>,
    /// Its samples have stacks of branches, which are not imported.
    pub(crate) branches: bool,
    /// It copied stacks of user code, to be unwound later.
    pub(crate) stack_copies: bool,
}

/// The event of an attribute.
pub(crate) fn event(description: &AttributeDescription, facts: &Facts, number: usize) -> Event {
    let attr = &description.attr;
    let named = description.event_ids.first();
    let named = named.and_then(|id| facts.events.get(id)).cloned();
    let fixed = match attr.sampling_policy {
        SamplingPolicy::Period(period) => Some(period.get()),
        _ => None,
    };
    let format = attr.sample_format;
    let quantity = quantity(attr.type_, named.clone(), number);
    let known = || quantity.as_ref().map(|quantity| quantity.name.clone());
    Event {
        name: named.or_else(known).unwrap_or_default(),
        quantity,
        period: fixed.unwrap_or(1),
        fixed: fixed.filter(|_| !format.contains(SampleFormat::PERIOD)),
        branches: format.contains(SampleFormat::BRANCH_STACK),
        stack_copies: format.contains(SampleFormat::STACK_USER),
    }
}

fn quantity(of: PerfEventType, named: Option<String>, number: usize) -> Option<Quantity> {
    let (name, unit) = match of {
        PerfEventType::Software(software) => match software {
            SoftwareCounterType::CpuClock | SoftwareCounterType::TaskClock => {
                return Some(Quantity::from(&CPU_TIME));
            }
            // What BPF programs of perf say by it has other contents than samples.
            SoftwareCounterType::BpfOutput | SoftwareCounterType::Dummy => return None,
            SoftwareCounterType::PageFaults => ("page-faults", "faults"),
            SoftwareCounterType::PageFaultsMin => ("minor-faults", "faults"),
            SoftwareCounterType::PageFaultsMaj => ("major-faults", "faults"),
            SoftwareCounterType::ContextSwitches => ("context-switches", "switches"),
            SoftwareCounterType::CpuMigrations => ("cpu-migrations", "migrations"),
            SoftwareCounterType::AlignmentFaults => ("alignment-faults", "faults"),
            SoftwareCounterType::EmulationFaults => ("emulation-faults", "faults"),
            SoftwareCounterType::CgroupSwitches => ("cgroup-switches", "switches"),
            _ => ("", "events"),
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
            _ => ("", "events"),
        },
        _ => ("", "events"),
    };
    // In order of preference: what is known, what perf called it, its number.
    let name = match (name, named) {
        ("", Some(named)) if !named.is_empty() => named.chars().take(MAX_NAME).collect(),
        ("", _) => format!("event {number}"),
        (known, _) => known.into(),
    };
    Some(Quantity {
        instrument: SAMPLES.into(),
        name,
        unit: unit.into(),
        kind: Kind::Count,
        repeats: Repeats::Statistically,
        calls: Calls::Samples,
        number: None,
        label: None,
    })
}
