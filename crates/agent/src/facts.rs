//! Facts of a machine and its topology, by dotted key.

use std::collections::BTreeMap;
use std::fs;

use netplumb_kernel::config::{ConfigValue, KernelConfig};
use netplumb_lab::netns::{Topology, facts as facts_of};
use netplumb_model::hosts::Side;
use netplumb_model::recording::env;
use netplumb_sys::{clock, proc};

/// Facts of a topology's namespaces.
pub fn topology(prefix: &str, topology: &Topology) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let ends = [(Side::Tx.called(), &topology.tx), (Side::Rx.called(), &topology.rx)];
    let between = topology.between.iter().map(|(name, namespace)| (name.as_str(), namespace));
    for (end, namespace) in ends.into_iter().chain(between) {
        let of_other = |side: Side| side.called() != end;
        if topology.host.is_some_and(of_other) {
            continue;
        }
        facts.extend(facts_of(namespace, &format!("{prefix}.{end}")).unwrap_or_default());
    }
    facts
}

/// Facts of the running system.
pub fn machine() -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let mut fact = |key: &str, path: &str| {
        if let Ok(text) = fs::read_to_string(path) {
            facts.insert(key.to_string(), text.trim().chars().take(1000).collect());
        }
    };
    fact("kernel.release", "/proc/sys/kernel/osrelease");
    fact("kernel.version", "/proc/version");
    fact("kernel.cmdline", "/proc/cmdline");
    let source = clock::source();
    if !source.is_empty() {
        facts.insert("guest.clocksource".into(), source);
    }
    let mut loaded: Vec<String> = fs::read_to_string("/proc/modules")
        .unwrap_or_default()
        .lines()
        .filter_map(|l| Some(l.split_whitespace().next()?.to_string()))
        .collect();
    loaded.sort();
    facts.insert("guest.modules".into(), loaded.join(" "));
    if let Ok(entries) = fs::read_dir("/sys/devices/system/cpu/vulnerabilities") {
        for entry in entries.flatten() {
            if let Ok(text) = fs::read_to_string(entry.path()) {
                let name = entry.file_name().to_string_lossy().into_owned();
                facts.insert(format!("vulnerability.{name}"), text.trim().to_string());
            }
        }
    }
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    if let Some(model) = proc::cpu_model(&cpu) {
        facts.insert("guest.cpu".into(), model);
    }
    facts
}

/// The options of a kernel's configuration that affect the cost of a path.
pub fn config(config: &KernelConfig) -> BTreeMap<String, String> {
    const OPTIONS: &[&str] = &[
        "HZ",
        "SMP",
        "NUMA",
        "PREEMPT",
        "PREEMPT_VOLUNTARY",
        "PREEMPT_NONE",
        "PREEMPT_DYNAMIC",
        "PREEMPT_RT",
        "PREEMPT_RCU",
        "PREEMPT_COUNT",
        "PREEMPT_VOLUNTARY_BUILD",
        "PARAVIRT_XXL",
        "HAVE_STATIC_CALL_INLINE",
        "DEBUG_NET",
        "LOCKDEP",
        "KASAN",
        "NETFILTER",
        "NET_NS",
        "XFRM",
        "BPF_JIT",
        "RETPOLINE",
        "RETHUNK",
        "DYNAMIC_FTRACE",
        "DYNAMIC_FTRACE_WITH_ARGS",
        "FTRACE_MCOUNT_USE_PATCHABLE_FUNCTION_ENTRY",
        "FRAME_POINTER",
        "UNWINDER_ORC",
        "GENERIC_ENTRY",
        "SLS",
        "CPUMASK_OFFSTACK",
        "JUMP_LABEL",
        "RANDOMIZE_KSTACK_OFFSET_DEFAULT",
        "STACKPROTECTOR_STRONG",
        "STACKPROTECTOR_PER_TASK",
        "INIT_STACK_ALL_ZERO",
        "INIT_ON_ALLOC_DEFAULT_ON",
        "HARDENED_USERCOPY",
        "FORTIFY_SOURCE",
        "SLAB_FREELIST_HARDENED",
        "MEMCG",
        "CGROUP_NET_PRIO",
        "SECURITY_NETWORK",
        "SECURITY_APPARMOR",
        "SECURITY_TOMOYO",
        "RPS",
        "XPS",
        "GENERIC_CSUM",
        "INLINE_SPIN_LOCK",
        "INLINE_SPIN_LOCK_BH",
        "INLINE_SPIN_LOCK_IRQSAVE",
        "INLINE_SPIN_UNLOCK_BH",
        "INLINE_SPIN_UNLOCK_IRQRESTORE",
        "UNINLINE_SPIN_UNLOCK",
        "PAGE_TABLE_ISOLATION",
        "MITIGATION_PAGE_TABLE_ISOLATION",
        "UNMAP_KERNEL_AT_EL0",
        "PAGE_POOL_STATS",
        "ARCH_HAS_SYNC_DMA_FOR_CPU",
        "ARCH_HAS_SYNC_DMA_FOR_DEVICE",
        "ARM64_PAN",
        "ARM64_LSE_ATOMICS",
        "ARM64_PTR_AUTH_KERNEL",
        "ARM64_BTI_KERNEL",
        "CC_VERSION_TEXT",
    ];
    OPTIONS
        .iter()
        .map(|option| {
            let value = match config.get(option) {
                Some(ConfigValue::Yes) => "y".to_string(),
                Some(ConfigValue::Module) => "m".to_string(),
                Some(ConfigValue::No) => "n".to_string(),
                Some(ConfigValue::Value(text)) => text.clone(),
                // Reported, too: the kernel of another arm may have it.
                None => env::NOT_SET.to_string(),
            };
            (format!("{}{option}", env::CONFIG), value)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every option is reported, also one that only a kernel of another architecture
    /// has.
    #[test]
    fn options_that_are_not_set() {
        let text = "CONFIG_HZ=250\nCONFIG_RETHUNK=y\n# CONFIG_KASAN is not set\n";
        let facts = config(&KernelConfig::parse(text).unwrap());
        for (key, value) in [
            ("config.HZ", "250"),
            ("config.RETHUNK", "y"),
            ("config.KASAN", "n"),
            ("config.ARM64_PAN", "absent"),
        ] {
            assert_eq!(facts[key], value, "{key}");
        }
    }
}
