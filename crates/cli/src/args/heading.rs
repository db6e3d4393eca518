//! The headings of help, the same for all commands.

/// Packets, frames, requests or commands that are measured.
pub(crate) const WORKLOAD: &str = "Workload";
/// The lab, its machines, kernels and links.
pub(crate) const LAB: &str = "Lab";
/// Instruments, blocks and durations.
pub(crate) const MEASUREMENT: &str = "Measurement";
/// Events to count or to pair.
pub(crate) const EVENTS: &str = "Events";
/// Processes, packets and devices that a measurement is limited to.
pub(crate) const FILTERS: &str = "Filters";
/// Goals of `plumb tune`, and its limits.
pub(crate) const SEARCH: &str = "Search";
/// Settings of the kernel and of interfaces.
pub(crate) const SETTINGS: &str = "Settings";
/// Disks and the settings of their queues.
pub(crate) const DISK: &str = "Disk";
/// The wire between two hosts.
pub(crate) const WIRE: &str = "Wire";
/// What the report shows.
pub(crate) const REPORT: &str = "Report";
/// Recordings, and the form of the report.
pub(crate) const OUTPUT: &str = "Output";
/// Formats of other programs.
pub(crate) const FORMATS: &str = "Other formats";
/// Guests, parallel runs, timeouts, and permission to change this machine.
pub(crate) const EXECUTION: &str = "Execution";
/// Options of all commands.
pub(crate) const GLOBAL: &str = "Global options";
