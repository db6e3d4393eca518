//! Facts about this kernel and this process, before any trial.
//!
//! A trial that fails gives an errno and no more. The facts here turn it into a reason: which
//! privileges are missing, whether the kernel is locked down, which option it was built without.

use std::collections::HashMap;
use std::fs;
use std::io::Read;

use netplumb_model::capability::Machine;
use netplumb_sys::proc;

use super::btf::{self, Targets};
use super::mounts;

/// A privilege that the trials may need, by its bit number in `capabilities(7)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cap {
    NetAdmin = 12,
    NetRaw = 13,
    SysAdmin = 21,
    Perfmon = 38,
    Bpf = 39,
}

impl Cap {
    /// The name as `capabilities(7)` spells it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::NetRaw => "CAP_NET_RAW",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::Perfmon => "CAP_PERFMON",
            Self::Bpf => "CAP_BPF",
        }
    }
}

/// The process's own rights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Privilege {
    pub(super) uid: u32,
    pub(super) effective: u64,
    pub(super) user_namespace: bool,
    pub(super) seccomp: bool,
}

impl Privilege {
    fn read() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        Self::parse(&status, &map)
    }

    fn parse(status: &str, uid_map: &str) -> Self {
        let field = |name: &str| {
            status.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
        };
        // "real effective saved filesystem"
        let uid = field("Uid").and_then(|v| v.split_whitespace().nth(1)?.parse().ok());
        let caps = field("CapEff").and_then(|v| u64::from_str_radix(v, 16).ok());
        let whole = uid_map.split_whitespace().eq(["0", "0", "4294967295"]);
        Self {
            uid: uid.unwrap_or(u32::MAX),
            effective: caps.unwrap_or(0),
            user_namespace: !uid_map.trim().is_empty() && !whole,
            seccomp: field("Seccomp").is_some_and(|v| v != "0"),
        }
    }

    /// Whether the process holds the privilege. CAP_SYS_ADMIN covers the two that were split off
    /// from it.
    pub(super) fn has(&self, cap: Cap) -> bool {
        let bit = |c: Cap| self.effective & (1 << (c as u32)) != 0;
        bit(cap) || (matches!(cap, Cap::Bpf | Cap::Perfmon) && bit(Cap::SysAdmin))
    }

    /// A few words for the head of the report.
    pub(super) fn describe(&self) -> String {
        let who = if self.uid == 0 { "root" } else { "ordinary user" };
        let all = [Cap::NetAdmin, Cap::SysAdmin, Cap::Perfmon, Cap::Bpf];
        if self.user_namespace {
            return format!("{who} in a user namespace (a container)");
        }
        match all.iter().filter(|c| self.has(**c)).count() {
            0 if self.uid == 0 => "root without its capabilities (a container)".into(),
            0 => who.into(),
            4 if self.uid == 0 => who.into(),
            _ => {
                let held: Vec<_> = all.iter().filter(|c| self.has(**c)).map(|c| c.name()).collect();
                format!("{who} with {}", held.join(", "))
            }
        }
    }
}

/// The kernel's build options, where the machine shows them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config(Option<HashMap<String, String>>);

impl Config {
    /// The running kernel's options.
    pub(crate) fn running() -> Self {
        Self::read(&read_line("/proc/sys/kernel/osrelease").unwrap_or_default())
    }

    fn read(release: &str) -> Self {
        let zipped = fs::read("/proc/config.gz").ok().and_then(|bytes| {
            let mut text = String::new();
            flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).ok()?;
            Some(text)
        });
        let text = zipped
            .or_else(|| fs::read_to_string(format!("/boot/config-{release}")).ok())
            .or_else(|| fs::read_to_string(format!("/lib/modules/{release}/config")).ok());
        text.map_or_else(Self::default, |t| Self::parse(&t))
    }

    pub(crate) fn parse(text: &str) -> Self {
        let set = text.lines().filter_map(|l| l.strip_prefix("CONFIG_")?.split_once('='));
        Self(Some(set.map(|(k, v)| (format!("CONFIG_{k}"), v.to_owned())).collect()))
    }

    /// The value of an option: none if it is not set, or unknown.
    pub(crate) fn value(&self, option: &str) -> Option<&str> {
        self.0.as_ref()?.get(option).map(String::as_str)
    }

    /// Whether it is known at all.
    pub(crate) fn is_known(&self) -> bool {
        self.0.is_some()
    }

    /// Whether the option is known to be absent. An unreadable configuration knows nothing.
    pub(super) fn lacks(&self, option: &str) -> bool {
        self.0.as_ref().is_some_and(|set| !set.contains_key(option))
    }
}

/// All the facts that the trials share.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) privilege: Privilege,
    pub(super) release: String,
    pub(super) version: (u32, u32),
    pub(super) lockdown: Option<String>,
    pub(super) config: Config,
    pub(super) perf_event_paranoid: Option<i32>,
    pub(super) targets: Result<Targets, btf::Missing>,
}

impl Context {
    /// Read all of it.
    pub(super) fn read() -> Self {
        let release = read_line("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            privilege: Privilege::read(),
            version: parse_version(&release),
            lockdown: mounts::lockdown(),
            config: Config::read(&release),
            perf_event_paranoid: read_line("/proc/sys/kernel/perf_event_paranoid")
                .and_then(|v| v.parse().ok()),
            targets: btf::find_targets(),
            release,
        }
    }

    /// Whether the kernel is locked down in any way.
    pub(super) fn locked_down(&self) -> Option<&str> {
        self.lockdown.as_deref().filter(|mode| *mode != "none")
    }

    /// The facts of the machine, for the head of the report.
    pub(super) fn machine(&self) -> Machine {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let os = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let name = os.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="));
        let name = name.map(|name| name.trim().trim_matches('"').to_owned());
        let memory = proc::number(&meminfo, "MemTotal");
        let flags = proc::field(&cpuinfo, "flags").unwrap_or_default();
        Machine {
            kernel: self.release.clone(),
            arch: std::env::consts::ARCH.to_owned(),
            os: name.unwrap_or_else(|| "unknown".into()),
            cpu: proc::cpu_model(&cpuinfo).unwrap_or_else(|| "unknown".into()),
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            memory_mib: memory.unwrap_or(0) / 1024,
            guest: flags.split_whitespace().any(|f| f == "hypervisor") || is_virtual_board(),
            lockdown: self.lockdown.clone(),
            privilege: self.privilege.describe(),
        }
    }
}

/// Whether the board of an arm64 machine is a virtual one, by its device tree (hw/arm/virt.c of QEMU).
fn is_virtual_board() -> bool {
    let compatible = fs::read("/proc/device-tree/compatible").unwrap_or_default();
    let mut boards = compatible.split(|byte| *byte == 0);
    boards.any(|board| board == b"linux,dummy-virt")
}

fn read_line(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|t| t.trim().to_owned())
}

/// The first two numbers of a release such as `6.1.0-40-amd64`.
fn parse_version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "         0          0 4294967295\n";

    /// Check that root's status gives every privilege, and an ordinary user's none.
    #[test]
    fn privileges_come_from_the_status_file() {
        let root = "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nSeccomp:\t0\n";
        let root = Privilege::parse(root, WHOLE);
        assert!(root.has(Cap::Bpf) && root.has(Cap::NetAdmin) && !root.seccomp);
        assert_eq!(root.describe(), "root");

        let user = "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\nSeccomp:\t2\n";
        let user = Privilege::parse(user, WHOLE);
        assert!(!user.has(Cap::Bpf) && user.seccomp);
        assert_eq!(user.describe(), "ordinary user");
    }

    /// Check that CAP_SYS_ADMIN stands for CAP_BPF and CAP_PERFMON, but not for CAP_NET_ADMIN.
    #[test]
    fn sys_admin_covers_its_children() {
        let p = Privilege { effective: 1 << 21, ..Privilege::default() };
        assert!(p.has(Cap::Bpf) && p.has(Cap::Perfmon) && !p.has(Cap::NetAdmin));
    }

    /// Check that a partial uid map is seen as a user namespace.
    #[test]
    fn a_mapped_root_is_no_root() {
        let p = Privilege::parse("Uid:\t0\t0\t0\t0\n", "0 1000 1\n");
        assert!(p.user_namespace);
        assert!(p.describe().contains("user namespace"));
    }

    /// Check that an option that is off is known to be absent, and that an unreadable
    /// configuration claims nothing.
    #[test]
    fn configuration_knows_what_is_off() {
        let config = Config::parse("CONFIG_BPF=y\n# CONFIG_KPROBES is not set\nCONFIG_VETH=m\n");
        assert!(config.lacks("CONFIG_KPROBES"));
        assert!(!config.lacks("CONFIG_BPF") && !config.lacks("CONFIG_VETH"));
        assert!(!Config::default().lacks("CONFIG_KPROBES"));
    }

    /// Check that distribution releases parse.
    #[test]
    fn releases_parse() {
        assert_eq!(parse_version("6.1.0-40-amd64"), (6, 1));
        assert_eq!(parse_version("5.15.167.4-microsoft-standard-WSL2"), (5, 15));
        assert_eq!(parse_version(""), (0, 0));
    }
}
