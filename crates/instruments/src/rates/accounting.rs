//! The kernel's accounting of CPU time, which determines the accuracy of /proc/stat.

use std::collections::BTreeMap;
use std::fs;

use netplumb_sys::clock;

use crate::capability::Config;

/// The method by which this kernel accounts CPU time, by dotted keys (`cpu.accounting`); `unknown`
/// if its configuration can't be read.
pub fn facts() -> BTreeMap<String, String> {
    let line = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let mut facts = accounting_facts(&Config::running(), &line("/proc/cmdline"));
    facts.insert("cpu.clocksource".into(), known(&clock::source()));
    facts
}

fn known(text: &str) -> String {
    match text {
        "" => "unknown".into(),
        text => text.into(),
    }
}

fn accounting_facts(config: &Config, command_line: &str) -> BTreeMap<String, String> {
    let is = |option: &str| config.value(option) == Some("y");
    let choice = |choices: &[(&str, &str)], otherwise: &str| {
        let found = choices.iter().find(|(option, _)| is(option));
        match found {
            Some((_, means)) => (*means).to_string(),
            None if config.is_known() => otherwise.to_string(),
            None => "unknown".to_string(),
        }
    };
    let mut facts = BTreeMap::new();
    // kernel/time/Kconfig: "Cputime accounting".
    facts.insert(
        "cpu.accounting".into(),
        choice(
            &[
                (
                    "CONFIG_VIRT_CPU_ACCOUNTING_GEN",
                    "by ticks, or at each change where nohz_full= is given",
                ),
                ("CONFIG_VIRT_CPU_ACCOUNTING_NATIVE", "at each change"),
                ("CONFIG_TICK_CPU_ACCOUNTING", "by ticks"),
            ],
            "unknown",
        ),
    );
    facts.insert(
        "cpu.irq_time".into(),
        choice(&[("CONFIG_IRQ_TIME_ACCOUNTING", "measured")], "charged by ticks"),
    );
    // Without ticks being stopped, idle time is charged by ticks too
    // (get_cpu_idle_time_us() in kernel/time/tick-sched.c).
    let off = ["nohz=off", "nohz=0", "highres=off"];
    let is_off = command_line.split_whitespace().any(|w| off.contains(&w));
    facts.insert(
        "cpu.idle_time".into(),
        match choice(&[("CONFIG_NO_HZ_COMMON", "measured")], "charged by ticks") {
            accounting if accounting == "measured" && is_off => "charged by ticks (no nohz)".into(),
            accounting => accounting,
        },
    );
    facts.insert("cpu.hz".into(), known(config.value("CONFIG_HZ").unwrap_or_default()));
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check kernels with tick-based and with precise accounting, and without a configuration.
    #[test]
    fn configurations() {
        let ticks =
            Config::parse("CONFIG_TICK_CPU_ACCOUNTING=y\nCONFIG_NO_HZ_COMMON=y\nCONFIG_HZ=250\n");
        let facts = accounting_facts(&ticks, "quiet");
        assert_eq!(facts["cpu.accounting"], "by ticks");
        assert_eq!(facts["cpu.irq_time"], "charged by ticks");
        assert_eq!(facts["cpu.idle_time"], "measured");
        assert_eq!(facts["cpu.hz"], "250");
        let facts = accounting_facts(&ticks, "ro nohz=off");
        assert_eq!(facts["cpu.idle_time"], "charged by ticks (no nohz)");

        let fine =
            Config::parse("CONFIG_VIRT_CPU_ACCOUNTING_GEN=y\nCONFIG_IRQ_TIME_ACCOUNTING=y\n");
        let facts = accounting_facts(&fine, "");
        assert!(facts["cpu.accounting"].contains("nohz_full"));
        assert_eq!(facts["cpu.irq_time"], "measured");
        assert_eq!(facts["cpu.idle_time"], "charged by ticks");

        let facts = accounting_facts(&Config::default(), "");
        assert!(facts.values().all(|v| v == "unknown"), "{facts:?}");
    }
}
