//! The search for settings that suit a goal: the settings, the goal and the result.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::class::{Link, words};
use crate::experiment::{Coalescing, Knobs, NamedArm, Offload, Ring};
use crate::hosts::{rate_of, time_of};

words! {
    /// The goal of a search.
    Goal, "goal",
    /// More bytes in a time.
    Throughput = "throughput",
    /// Less time from a request to its answer.
    Latency = "latency",
    /// Less CPU time for each byte.
    Cpu = "cpu",
}

/// A condition on settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Hold {
    /// The median time from a request to its answer is less, in nanoseconds.
    Latency(u64),
    /// The throughput is more, in bits per second.
    Throughput(u64),
    /// The CPU use of each host is less.
    Busy(f64),
}

/// What was measured with settings in a block, or the mean over blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Figures {
    /// Throughput of a stream or a command, in bits per second.
    pub throughput_bps: f64,
    /// The median time of a request alone or of an echo, or how long a command runs; in nanoseconds.
    pub latency_ns: f64,
    /// The CPU use of the sender and the receiver; of a single machine, the first is the use of all its CPUs.
    pub busy: [f64; 2],
    /// The CPUs that `busy` is a share of: one of each host.
    pub cpus: f64,
}

impl Figures {
    /// CPU time of both hosts for a KiB of the stream, in nanoseconds.
    pub fn cpu_ns_per_kib(&self) -> f64 {
        let kib = self.throughput_bps / 8.0 / 1024.0;
        (self.busy[0] + self.busy[1]) * self.cpus * 1e9 / kib
    }

    /// By goal, less is better.
    pub fn cost(&self, goal: Goal) -> f64 {
        match goal {
            Goal::Throughput => -self.throughput_bps,
            Goal::Latency => self.latency_ns,
            Goal::Cpu => self.cpu_ns_per_kib(),
        }
    }

    /// The figure that a goal is about.
    pub fn goal_value(&self, goal: Goal) -> f64 {
        match goal {
            Goal::Throughput => self.throughput_bps,
            Goal::Latency => self.latency_ns,
            Goal::Cpu => self.cpu_ns_per_kib(),
        }
    }
}

/// What was measured with settings: by block.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SettingsBlocks {
    /// The blocks: one, where every run is the same.
    pub blocks: Vec<Figures>,
}

impl SettingsBlocks {
    /// A measurement that is the same every time.
    pub fn exactly(figures: Figures) -> SettingsBlocks {
        SettingsBlocks { blocks: vec![figures] }
    }

    /// A goal's figure, by block.
    pub fn values(&self, goal: Goal) -> Vec<f64> {
        self.blocks.iter().map(|block| block.goal_value(goal)).collect()
    }

    /// The means over blocks.
    pub fn mean(&self) -> Figures {
        let count = self.blocks.len().max(1) as f64;
        let mean = |of: &dyn Fn(&Figures) -> f64| self.blocks.iter().map(of).sum::<f64>() / count;
        Figures {
            throughput_bps: mean(&|block| block.throughput_bps),
            latency_ns: mean(&|block| block.latency_ns),
            busy: [mean(&|block| block.busy[0]), mean(&|block| block.busy[1])],
            cpus: self.blocks.first().map_or(1.0, |block| block.cpus),
        }
    }

    /// By goal, less is better: of means.
    pub fn cost(&self, goal: Goal) -> f64 {
        match goal {
            Goal::Throughput | Goal::Latency => self.mean().cost(goal),
            // The mean of the blocks' own figures, not a figure of their means.
            Goal::Cpu => self.values(goal).iter().sum::<f64>() / self.blocks.len().max(1) as f64,
        }
    }
}

impl Hold {
    /// The shortfall, as a share of the limit; 0 if it holds.
    pub fn missed(&self, measured: &SettingsBlocks) -> f64 {
        let measured = measured.mean();
        let missed = match *self {
            Hold::Latency(most_ns) => measured.latency_ns / most_ns as f64 - 1.0,
            Hold::Throughput(least) => 1.0 - measured.throughput_bps / least as f64,
            Hold::Busy(most) => measured.busy[0].max(measured.busy[1]) / most - 1.0,
        };
        missed.max(0.0)
    }
}

impl FromStr for Hold {
    type Err = String;

    fn from_str(text: &str) -> Result<Hold, String> {
        let why = || {
            format!(
                "invalid condition `{}`; expected latency<TIME, throughput>RATE or busy<PERCENT, like latency<200us, \
                 throughput>900M or busy<50%",
                text.chars().take(40).collect::<String>()
            )
        };
        let (name, sign, value) = (text.find(['<', '>']))
            .map(|at| (text[..at].trim(), &text[at..=at], text[at + 1..].trim()))
            .ok_or_else(why)?;
        match (name, sign) {
            ("latency", "<") => {
                let ns = time_of(value).map_err(|_| why())?;
                (ns > 0).then_some(Hold::Latency(ns)).ok_or_else(why)
            }
            ("throughput", ">") => rate_of(value).map(Hold::Throughput).map_err(|_| why()),
            ("busy", "<") => {
                let percent = value.strip_suffix('%').ok_or_else(why)?;
                let percent: f64 = percent.trim().parse().map_err(|_| why())?;
                let is_share = percent > 0.0 && percent <= 100.0;
                is_share.then_some(Hold::Busy(percent / 100.0)).ok_or_else(why)
            }
            _ => Err(why()),
        }
    }
}

/// A level of something that can be set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Setting {
    /// In words; empty for the default.
    pub name: String,
    /// Knobs with their levels.
    pub knobs: Vec<(String, String)>,
    /// The equivalent on the user's own machine: a command line in which NIC is the interface.
    pub lines: Vec<String>,
}

impl Setting {
    fn new<const K: usize, const L: usize>(
        name: impl Into<String>,
        knobs: [(&str, &str); K],
        lines: [String; L],
    ) -> Setting {
        let knobs = knobs.into_iter();
        Setting {
            name: name.into(),
            knobs: knobs.map(|(key, level)| (key.into(), level.into())).collect(),
            lines: lines.into(),
        }
    }
}

/// Something that can be set: its levels, the default first.
pub type Dimension = Vec<Setting>;

fn offload(name: &str, knob: &str, word: &str, level: &str) -> Dimension {
    let line = format!("ethtool -K NIC {word} {level}");
    vec![Setting::default(), Setting::new(name, [(knob, level)], [line])]
}

/// Interrupts that come some microseconds later, by timers of the kernel.
fn deferred(usecs: u32, more: &[(&str, &str)], first: Option<&str>) -> Setting {
    let mut setting = Setting::new(
        format!("deferred {usecs}us"),
        [("gro_flush_timeout", format!("{usecs}us").as_str()), ("napi_defer_hard_irqs", "1")],
        [
            format!("echo {} > /sys/class/net/NIC/gro_flush_timeout", usecs * 1000),
            "echo 1 > /sys/class/net/NIC/napi_defer_hard_irqs".to_string(),
        ],
    );
    let more = more.iter().map(|(key, level)| (key.to_string(), level.to_string()));
    setting.knobs = more.chain(setting.knobs).collect();
    let first = first.map(String::from).into_iter();
    setting.lines = first.chain(setting.lines).collect();
    setting
}

/// The kernel doubles what a socket asks for, so the limits of a system are twice as large.
fn buffers(kib: u32) -> Setting {
    let bytes = kib * 2048;
    Setting::new(
        format!("buffers of {kib}K"),
        [("buffer", format!("{kib}K").as_str())],
        [format!(
            "sysctl -w net.ipv4.tcp_wmem='4096 {bytes} {bytes}' net.ipv4.tcp_rmem='4096 {bytes} {bytes}'"
        )],
    )
}

fn with_default(levels: impl IntoIterator<Item = Setting>) -> Dimension {
    std::iter::once(Setting::default()).chain(levels).collect()
}

/// The dimensions to search between two guests with NICs of these links, sender first: the settings that their drivers
/// accept and that have an effect there. Interrupts are deferred by the kernel's timers, since the timers of QEMU's
/// NICs have a floor of 128 us. Only e1000 can do without that floor, and not in every QEMU (`is_unthrottled`): it is a
/// level of its own then, and part of the others.
pub fn of_guests(links: [Link; 2], is_unthrottled: bool) -> Vec<Dimension> {
    const AT_ONCE: &str = "ethtool -C NIC rx-usecs 0";
    const USECS: [u32; 3] = [20, 50, 100];
    const RING: u32 = 1024;
    let moderation = match links {
        [Link::E1000, Link::E1000] if is_unthrottled => {
            let at_once =
                Setting::new("interrupts at once", [("throttle", "off")], [AT_ONCE.to_string()]);
            let later = USECS.map(|usecs| deferred(usecs, &[("throttle", "off")], Some(AT_ONCE)));
            with_default(std::iter::once(at_once).chain(later))
        }
        _ => with_default(USECS.map(|usecs| deferred(usecs, &[], None))),
    };
    let mut all = Vec::new();
    // Between guests QEMU's virtio-net lacks it, and its e1000e makes fragments.
    if links[0] == Link::E1000 {
        all.push(offload("no TSO", "offload.tso", "tso", "off"));
    }
    all.extend([
        offload("no GRO", "offload.gro", "gro", "off"),
        moderation,
        with_default([64, 256].map(buffers)),
    ]);
    let takes = |link: Link| link.declared().largest_ring >= Some(RING);
    if links.into_iter().all(takes) {
        let ring = RING.to_string();
        all.push(with_default([Setting::new(
            format!("rings of {RING}"),
            [("rings.rx", ring.as_str()), ("rings.tx", ring.as_str())],
            [format!("ethtool -G NIC rx {RING} tx {RING}")],
        )]));
    }
    all
}

/// The dimensions to search between two namespaces joined by veth, whose GRO is off by default.
pub fn of_namespaces() -> Vec<Dimension> {
    vec![
        offload("no TSO", "offload.tso", "tso", "off"),
        offload("GRO", "offload.gro", "gro", "on"),
        offload("no checksum offload", "offload.tx-checksum", "tx", "off"),
        with_default([Setting::new(
            "MTU of 9000",
            [("mtu_bytes", "9000")],
            ["ip link set NIC mtu 9000".to_string()],
        )]),
        with_default([4, 64, 256, 1024].map(buffers)),
    ]
}

/// An interface's features, and how they are set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Abilities {
    /// Offloads that can be changed, and whether they are on.
    pub offloads: BTreeMap<Offload, bool>,
    /// Coalescing.
    pub coalescing: BTreeMap<Coalescing, u32>,
    /// Rings: how many packets they hold, and at most.
    pub rings: BTreeMap<Ring, (u32, u32)>,
    /// How long interrupts are deferred, and for how many polls; none if the kernel can't.
    pub deferral: Option<(u64, u64)>,
    /// The limits of TCP's buffers, as sysctls have them: of sending and receiving.
    pub buffers: Option<[String; 2]>,
}

/// The delays that are tried of a NIC that coalesces, in microseconds.
const USECS: [u32; 6] = [0, 10, 25, 50, 100, 250];

/// The dimensions to search on an interface of this machine: what it supports, and does not have set already.
pub fn of_nic(has: &Abilities) -> Vec<Dimension> {
    let mut all = Vec::new();
    let word = |on: bool| if on { "on" } else { "off" };
    for (which, name) in
        [(Offload::Tso, "TSO"), (Offload::Gro, "GRO"), (Offload::TxChecksum, "checksum offload")]
    {
        if let Some(on) = has.offloads.get(&which) {
            let title = if *on { format!("no {name}") } else { name.into() };
            let short = if which == Offload::TxChecksum { "tx" } else { which.as_str() };
            all.push(offload(&title, &format!("offload.{which}"), short, word(!on)));
        }
    }
    let adapts = has.coalescing.get(&Coalescing::AdaptiveRx);
    let mut moderation = Vec::new();
    if adapts == Some(&0) {
        moderation.push(Setting::new(
            "adaptive moderation",
            [("coalesce.adaptive-rx", "on")],
            ["ethtool -C NIC adaptive-rx on".to_string()],
        ));
    }
    if let Some(now) = has.coalescing.get(&Coalescing::RxUsecs) {
        let fixed = USECS.into_iter().filter(|usecs| adapts == Some(&1) || usecs != now);
        moderation.extend(fixed.map(|usecs| {
            let text = usecs.to_string();
            let mut setting = Setting::new(
                format!("rx-usecs {usecs}"),
                [("coalesce.rx-usecs", text.as_str())],
                [format!("ethtool -C NIC rx-usecs {usecs}")],
            );
            if adapts == Some(&1) {
                setting.knobs.insert(0, ("coalesce.adaptive-rx".into(), "off".into()));
                setting.lines = vec![format!("ethtool -C NIC adaptive-rx off rx-usecs {usecs}")];
            }
            setting
        }));
    } else if let Some(now) = has.coalescing.get(&Coalescing::RxFrames) {
        let fixed = [1, 8, 32].into_iter().filter(|frames| frames != now);
        moderation.extend(fixed.map(|frames: u32| {
            Setting::new(
                format!("rx-frames {frames}"),
                [("coalesce.rx-frames", frames.to_string().as_str())],
                [format!("ethtool -C NIC rx-frames {frames}")],
            )
        }));
    }
    if !moderation.is_empty() {
        all.push(with_default(moderation));
    }
    if let Some((0, _)) = has.deferral {
        all.push(with_default([20, 50, 100].map(|usecs| deferred(usecs, &[], None))));
    }
    let larger: Vec<(&Ring, u32)> = (has.rings.iter())
        .filter(|(_, (now, most))| most > now)
        .map(|(ring, (_, most))| (ring, *most))
        .collect();
    if !larger.is_empty() {
        let words: Vec<String> = larger.iter().map(|(ring, n)| format!("{ring} {n}")).collect();
        let knobs = larger.iter().map(|(ring, n)| (format!("rings.{ring}"), n.to_string()));
        all.push(with_default([Setting {
            name: "largest rings".into(),
            knobs: knobs.collect(),
            lines: vec![format!("ethtool -G NIC {}", words.join(" "))],
        }]));
    }
    if let Some(now) = &has.buffers {
        let levels = [64, 256, 1024, 8192].map(|kib: u32| {
            let limits = format!("4096 {} {}", kib * 2048, kib * 2048);
            Setting::new(
                format!("buffers of {kib}K"),
                [
                    ("sysctl.net.ipv4.tcp_wmem", limits.as_str()),
                    ("sysctl.net.ipv4.tcp_rmem", limits.as_str()),
                ],
                [format!("sysctl -w net.ipv4.tcp_wmem='{limits}' net.ipv4.tcp_rmem='{limits}'")],
            )
        });
        let same = |setting: &Setting| {
            let set = setting.knobs.iter().map(|(_, limits)| limits);
            set.eq(now.iter())
        };
        all.push(with_default(levels.into_iter().filter(|level| !same(level))));
    }
    all
}

/// Settings that were tried, by the numbers of their levels.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The level of each setting.
    pub settings: Vec<Setting>,
    /// What was measured.
    pub measured: SettingsBlocks,
}

/// A choice of levels, of these dimensions.
pub fn chosen(dimensions: &[Dimension], point: &[usize]) -> Vec<Setting> {
    let levels = dimensions.iter().zip(point);
    levels.map(|(levels, level)| levels[*level].clone()).collect()
}

/// In words: "no TSO, rings of 1024", or "default".
pub fn name_of(settings: &[Setting]) -> String {
    let names: Vec<&str> =
        settings.iter().map(|s| s.name.as_str()).filter(|n| !n.is_empty()).collect();
    match names.is_empty() {
        true => "default".into(),
        false => names.join(", "),
    }
}

/// As an arm of an experiment.
///
/// # Errors
/// A level that a knob does not take, which a test rules out.
pub fn arm_of(settings: &[Setting]) -> Result<NamedArm, String> {
    let knobs = settings.iter().flat_map(|setting| setting.knobs.clone());
    Ok(NamedArm { name: name_of(settings), knobs: Knobs::from_pairs(knobs)? })
}

/// Where settings were tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tried {
    /// Between two guests, in virtual time.
    Guests,
    /// Between two namespaces of this machine.
    Namespaces,
    /// On an interface of this machine.
    Nic {
        /// The command that was run.
        command: String,
        /// Whose echoes are the latency; without it, that is how long the command runs.
        peer: Option<String>,
    },
}

/// The best's gain over the default in the goal, measured again after the choice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Confirmed {
    /// Their ratio: its value, and the ends of its 95% interval.
    pub ratio: [f64; 3],
    /// Whether it is better, and not by chance.
    pub is_better: bool,
    /// How many blocks of each.
    pub blocks: usize,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuned {
    /// What was wanted.
    pub goal: Goal,
    /// What had to hold.
    pub hold: Vec<Hold>,
    /// Where it was tried.
    pub at: Tried,
    /// As it was before.
    pub default: SettingsBlocks,
    /// The settings that suit the goal best.
    pub best: Choice,
    /// The gain of the best; none where every run is the same, so that the figures show it.
    pub confirmed: Option<Confirmed>,
    /// Those that no other beats in throughput, latency and CPU time, the best by goal first.
    pub front: Vec<Choice>,
    /// How many were tried.
    pub tried: usize,
    /// How many could be.
    pub possible: usize,
    /// Whether time ran out.
    pub ended_early: bool,
    /// The interface that lines name.
    pub nic: String,
    /// The settings that the device refused: a sentence each.
    pub left_out: Vec<String>,
    /// The lines that undo what was kept; none if nothing was.
    pub kept: Option<Vec<String>>,
}

impl Tuned {
    /// The conditions that the best does not meet.
    pub fn missed(&self) -> bool {
        self.hold.iter().any(|hold| hold.missed(&self.best.measured) > 0.0)
    }

    /// Whether the default already meets the conditions.
    pub fn default_holds(&self) -> bool {
        self.hold.iter().all(|hold| hold.missed(&self.default) == 0.0)
    }

    /// Whether the best is to be recommended: it holds all, and is better by more than chance, or the
    /// default does not hold.
    pub fn recommends(&self) -> bool {
        let is_default = self.best.settings.iter().all(|setting| setting.name.is_empty());
        let is_better = self.confirmed.is_none_or(|confirmed| confirmed.is_better);
        !self.missed() && !is_default && (is_better || !self.default_holds())
    }

    /// The command lines that set the best on a machine of one's own.
    pub fn lines(&self) -> Vec<String> {
        let lines = self.best.settings.iter().flat_map(|setting| &setting.lines);
        lines.map(|line| line.replace("NIC", &self.nic)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An interface that has everything.
    fn everything() -> Abilities {
        Abilities {
            offloads: [(Offload::Tso, true), (Offload::Gro, false), (Offload::TxChecksum, true)]
                .into(),
            coalescing: [(Coalescing::AdaptiveRx, 1), (Coalescing::RxUsecs, 50)].into(),
            rings: [(Ring::Rx, (256, 4096)), (Ring::Tx, (256, 256))].into(),
            deferral: Some((0, 0)),
            buffers: Some(["4096 16384 4194304".to_string(), "4096 131072 6291456".to_string()]),
        }
    }

    /// Check that every level is valid for its knob, that the first is the default, and that names are distinct.
    #[test]
    fn levels_are_levels() {
        let of_links = [
            [Link::E1000; 2],
            [Link::E1000e; 2],
            [Link::VirtioNet; 2],
            [Link::E1000, Link::VirtioNet],
        ];
        let lists = of_links.into_iter().map(|links| of_guests(links, true));
        for all in lists.chain([of_namespaces(), of_nic(&everything())]) {
            let mut names = std::collections::BTreeSet::new();
            for dimension in &all {
                assert_eq!(dimension[0], Setting::default());
                for setting in &dimension[1..] {
                    assert!(names.insert(setting.name.clone()), "{}", setting.name);
                    let arm = arm_of(std::slice::from_ref(setting)).unwrap();
                    assert_eq!(arm.name, setting.name);
                    assert!(!setting.lines.is_empty() && !setting.knobs.is_empty());
                }
            }
        }
        let all = of_guests([Link::E1000; 2], true);
        assert_eq!(name_of(&chosen(&all, &[0, 0, 0, 0, 0])), "default");
        assert_eq!(name_of(&chosen(&all, &[1, 0, 2, 0, 0])), "no TSO, deferred 20us");
    }

    /// Check that no level of two guests is one that the driver of its NIC refuses, or that does nothing there, and
    /// that no line sets what the driver does not have.
    #[test]
    fn levels_by_link() {
        let said = |links: [Link; 2]| format!("{:?}", of_guests(links, true));
        let of_e1000 = said([Link::E1000; 2]);
        for part in ["throttle", "rings of 1024", "deferred 20us", "NIC rx-usecs 0"] {
            assert!(of_e1000.contains(part), "no `{part}` in {of_e1000}");
        }
        for links in [[Link::E1000e; 2], [Link::VirtioNet; 2], [Link::E1000, Link::E1000e]] {
            let said = said(links);
            assert!(said.contains("deferred 20us"), "{links:?}: {said}");
            for part in ["throttle", "interrupts at once", "rx-usecs"] {
                assert!(!said.contains(part), "{links:?}: {said}");
            }
            let has_tso = links[0] == Link::E1000;
            assert_eq!(said.contains("no TSO"), has_tso, "{links:?}: {said}");
            let has_virtio = links.contains(&Link::VirtioNet);
            assert_eq!(said.contains("rings"), !has_virtio, "{links:?}: {said}");
        }
        let throttled = format!("{:?}", of_guests([Link::E1000; 2], false));
        assert!(throttled.contains("deferred 20us") && throttled.contains("rings"));
        assert!(!throttled.contains("throttle") && !throttled.contains("NIC rx-usecs 0"));
        for links in [[Link::E1000; 2], [Link::E1000e; 2], [Link::VirtioNet; 2]] {
            assert!(!said(links).contains("adaptive"), "{links:?}");
        }
    }

    /// Check that the dimensions on an interface are the ones that it supports and does not have set already.
    #[test]
    fn what_an_interface_has() {
        let names = |has: &Abilities| -> Vec<String> {
            let all = of_nic(has).into_iter().flatten();
            all.map(|setting| setting.name).filter(|name| !name.is_empty()).collect()
        };
        let all = names(&everything());
        for name in ["no TSO", "GRO", "no checksum offload", "rx-usecs 50", "largest rings"] {
            assert!(all.contains(&name.to_string()), "{name}: {all:?}");
        }
        let lines: Vec<String> = (of_nic(&everything()).into_iter().flatten())
            .flat_map(|setting| setting.lines)
            .collect();
        for line in [
            "ethtool -C NIC adaptive-rx off rx-usecs 50",
            "ethtool -G NIC rx 4096",
            "ethtool -K NIC tx off",
        ] {
            assert!(lines.contains(&line.to_string()), "{line}: {lines:?}");
        }
        let fixed = Abilities {
            coalescing: [(Coalescing::AdaptiveRx, 0), (Coalescing::RxUsecs, 50)].into(),
            deferral: Some((20_000, 1)),
            ..Abilities::default()
        };
        let all = names(&fixed);
        assert_eq!(all[..2], ["adaptive moderation", "rx-usecs 0"]);
        assert!(!all.contains(&"rx-usecs 50".to_string()), "{all:?}");
        assert_eq!(names(&Abilities::default()), [""; 0]);
    }

    /// Check which conditions are understood, and their shortfalls.
    #[test]
    fn conditions() {
        let figures =
            Figures { throughput_bps: 900e6, latency_ns: 100_000.0, busy: [0.2, 0.6], cpus: 1.0 };
        let measured = SettingsBlocks::exactly(figures);
        for (text, missed) in [
            ("latency<200us", 0.0),
            ("latency < 50us", 1.0),
            ("throughput>450M", 0.0),
            ("throughput>1G", 0.1),
            ("busy<30%", 1.0),
        ] {
            let hold: Hold = text.parse().unwrap();
            assert!((hold.missed(&measured) - missed).abs() < 1e-9, "{text}");
        }
        for text in
            ["latency>1us", "latency<0us", "busy<101%", "busy<1", "cpu<3", "", "latency<", "é<1us"]
        {
            assert!(text.parse::<Hold>().is_err(), "{text}");
        }
        assert!((figures.cpu_ns_per_kib() - 7281.8).abs() < 0.1);
        let twice =
            SettingsBlocks { blocks: vec![figures, Figures { throughput_bps: 1100e6, ..figures }] };
        assert_eq!(twice.mean().throughput_bps, 1000e6);
        assert_eq!(twice.cost(Goal::Throughput), -1000e6);
        let each = twice.values(Goal::Cpu);
        assert!((twice.cost(Goal::Cpu) - (each[0] + each[1]) / 2.0).abs() < 1e-9);
    }
}
