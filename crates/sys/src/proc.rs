//! Parsers of files below /proc.

pub mod counters;
pub mod sockets;
pub mod stat;

/// The value of a field in a file with a name and a value per line, such as /proc/meminfo,
/// /proc/cpuinfo or /proc/self/status, without spaces around it.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    let mut found = fields.filter(|(key, _)| key.trim() == name);
    found.next().map(|(_, value)| value.trim())
}

/// The same for a number, without its unit: `MemTotal: 4000 kB`.
pub fn number(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.split_whitespace().next()?.parse().ok()
}

/// The CPU by /proc/cpuinfo: its name, or on arm64, where the kernel has none, its implementer and part.
pub fn cpu_model(cpuinfo: &str) -> Option<String> {
    /// Parts of Arm itself (arch/arm64/include/asm/cputype.h).
    const ARM: &str = "0x41";
    const PARTS: &[(&str, &str)] = &[
        ("0xd03", "Cortex-A53"),
        ("0xd04", "Cortex-A35"),
        ("0xd05", "Cortex-A55"),
        ("0xd07", "Cortex-A57"),
        ("0xd08", "Cortex-A72"),
        ("0xd09", "Cortex-A73"),
        ("0xd0a", "Cortex-A75"),
        ("0xd0b", "Cortex-A76"),
        ("0xd0c", "Neoverse-N1"),
        ("0xd0d", "Cortex-A77"),
        ("0xd40", "Neoverse-V1"),
        ("0xd41", "Cortex-A78"),
        ("0xd49", "Neoverse-N2"),
        ("0xd4f", "Neoverse-V2"),
    ];
    if let Some(name) = field(cpuinfo, "model name") {
        return Some(name.into());
    }
    let maker = field(cpuinfo, "CPU implementer")?;
    let part = field(cpuinfo, "CPU part")?;
    let known = PARTS.iter().find(|(number, _)| *number == part);
    Some(match known {
        Some((_, name)) if maker == ARM => (*name).into(),
        _ => format!("implementer {maker} part {part}"),
    })
}

/// The process of a thread, by its TID; none if the thread does not exist.
pub fn process_of(thread: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    number(&status, "Tgid")?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that fields are found by their complete names, and numbers without their units.
    #[test]
    fn fields() {
        let text = "MemTotal:  4000 kB\nmodel name\t: Some: CPU\nHugePages_Free: 2\nodd\n";
        assert_eq!(number(text, "MemTotal"), Some(4000));
        assert_eq!(number(text, "HugePages_Free"), Some(2));
        assert_eq!(field(text, "model name"), Some("Some: CPU"));
        assert_eq!(number(text, "model name"), None);
        assert_eq!(field(text, "Mem"), None);
        assert_eq!(cpu_model(text).as_deref(), Some("Some: CPU"));
        let pi = "CPU implementer\t: 0x41\nCPU variant\t: 0x0\nCPU part\t: 0xd08\n";
        assert_eq!(cpu_model(pi).as_deref(), Some("Cortex-A72"));
        let other = pi.replace("0x41", "0x61");
        assert_eq!(cpu_model(&other).as_deref(), Some("implementer 0x61 part 0xd08"));
        assert_eq!(cpu_model("processor: 0\n"), None);
    }

    /// Check that a thread belongs to its process, also where it is not the first one.
    #[test]
    fn threads() {
        let own = std::process::id();
        let thread = std::thread::spawn(|| {
            // SAFETY: the call has no arguments and can't fail.
            let thread = unsafe { libc::gettid() } as u32;
            (thread, process_of(thread))
        });
        let (thread, process) = thread.join().unwrap();
        assert_ne!(thread, own);
        assert_eq!((process, process_of(own)), (Some(own), Some(own)));
        assert_eq!(process_of(0), None);
    }
}
