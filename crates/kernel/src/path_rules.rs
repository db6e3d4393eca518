//! The rules of rules/path.toml: the role of functions in the path of packets, by name.

use std::collections::BTreeMap;

use globset::{Candidate, Glob, GlobSet, GlobSetBuilder};
use netplumb_model::class::{Direction, Softirq};
use netplumb_model::symbol::base_name;
use serde::Deserialize;

const BUILT_IN: &str = include_str!("../rules/path.toml");
const COMMON_PATH: &str = include_str!("../rules/common-path.txt");
/// Flags of [`Role::reaches`] are bits of a u32.
const MAX_PACKET_RULES: usize = 32;

/// Functions that packets usually pass, the most expensive first: rules/common-path.txt.
pub fn common_path() -> impl Iterator<Item = &'static str> {
    COMMON_PATH.lines().filter(|line| !line.starts_with('#'))
}

/// The role of a function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Role {
    /// An interrupt begins.
    pub interrupt: bool,
    /// ... at any of the addresses in it, not just the first.
    pub stubs: bool,
    /// The handler of an interrupt begins, in a task of its own.
    pub threaded_interrupt: bool,
    /// The interrupt that gets here is the timer's.
    pub timer: bool,
    /// The task enters the kernel.
    pub entry: bool,
    /// Runs softirq vectors.
    pub softirq: bool,
    /// Switches stacks.
    pub task_switch: bool,
    /// Replaces a task's program.
    pub exec: bool,
    /// Prepares a new task's stack.
    pub new_task: bool,
    /// Handles one received packet.
    pub packet: bool,
    /// Finishes a transmission.
    pub completion: bool,
    /// Polls a device for packets received and packets sent.
    pub polls: bool,
    /// Takes received packets out of their queue, if there are any.
    pub unpacks: bool,
    /// Hands a packet to the network stack.
    pub hands_up: bool,
    /// Finishes a transfer that was received, before the poll that takes packets out of it.
    pub receive_completion: bool,
    /// Hands a transfer to the wire: no packet's work.
    pub wire: bool,
    /// In a thread of the kernel: what it works for.
    pub works_for: Option<Direction>,
    /// Is the action of a vector.
    pub vector: Option<Softirq>,
    /// Bits of the packet rules that it satisfies.
    pub reaches: u32,
}

/// Parsed rules.
#[derive(Debug, Clone)]
pub struct PathRules {
    /// The patterns of all roles, in one set: each of a kernel's symbols is looked up in it.
    globs: GlobSet,
    /// The meaning of each pattern for a function that it matches.
    meanings: Vec<Meaning>,
    sends: GlobSet,
    receives: GlobSet,
    vectors: BTreeMap<String, Softirq>,
    /// The direction of a packet, by the bits of [`Role::reaches`].
    packet_is: Vec<Direction>,
    needed: Vec<Needed>,
    receive_path: Vec<String>,
}

/// What a pattern says about a function that it matches.
#[derive(Debug, Clone, Copy)]
enum Meaning {
    Is(Flag),
    WorksFor(Direction),
    Reaches(u32),
}

/// A flag of a role.
type Flag = fn(&mut Role) -> &mut bool;

/// A set of functions; a kernel must have one of them.
#[derive(Debug, Clone)]
struct Needed {
    what: &'static str,
    names: Vec<String>,
    globs: GlobSet,
}

/// A kernel lacks all functions that identify something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Their common role: "where softirqs run".
    pub what: &'static str,
    /// The names that were looked for.
    pub names: Vec<String>,
}

/// The rules don't parse.
#[derive(Debug, thiserror::Error)]
#[error("path rules: {0}")]
pub struct PathRulesError(String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    interrupt: Vec<String>,
    stubs: Vec<String>,
    threaded_interrupt: Vec<String>,
    timer_interrupt: Vec<String>,
    entry: Vec<String>,
    sends: Vec<String>,
    receives: Vec<String>,
    softirq: Vec<String>,
    task_switch: Vec<String>,
    exec: Vec<String>,
    new_task: Vec<String>,
    packet: Vec<String>,
    transmit_completion: Vec<String>,
    polls: Vec<String>,
    unpacks: Vec<String>,
    hands_up: Vec<String>,
    receive_completion: Vec<String>,
    wire: Vec<String>,
    thread_sends: Vec<String>,
    thread_receives: Vec<String>,
    vectors: BTreeMap<String, Softirq>,
    packet_is: Vec<PacketRule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PacketRule {
    direction: Direction,
    reaches: Vec<String>,
}

impl PathRules {
    /// The rules that come with the program.
    pub fn built_in() -> PathRules {
        // INVARIANT: the file is part of the binary, and a test parses it.
        #[allow(clippy::unwrap_used)]
        PathRules::parse(BUILT_IN).unwrap()
    }

    /// Rules from a file's text.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<PathRules, PathRulesError> {
        let file: File = toml::from_str(text).map_err(|e| PathRulesError(e.to_string()))?;
        if file.packet_is.len() > MAX_PACKET_RULES {
            return Err(PathRulesError(format!("more than {MAX_PACKET_RULES} packet_is rules")));
        }
        let receives: Vec<String> = file
            .vectors
            .iter()
            .filter(|(_, vector)| **vector == Softirq::NetRx)
            .map(|(name, _)| name.clone())
            .collect();
        let needed = [
            ("where a system call enters the kernel", &file.entry),
            ("where an interrupt begins", &file.interrupt),
            ("where tasks are switched", &file.task_switch),
            ("where softirqs run", &file.softirq),
            ("where the softirq NET_RX begins", &receives),
            ("where a received packet is handled", &file.packet),
        ]
        .into_iter()
        .map(|(what, names)| Ok(Needed { what, names: names.clone(), globs: globs(names)? }))
        .collect::<Result<_, PathRulesError>>()?;
        let flags: [(&[String], Flag); 16] = [
            (&file.interrupt, |role| &mut role.interrupt),
            (&file.stubs, |role| &mut role.stubs),
            (&file.threaded_interrupt, |role| &mut role.threaded_interrupt),
            (&file.timer_interrupt, |role| &mut role.timer),
            (&file.entry, |role| &mut role.entry),
            (&file.softirq, |role| &mut role.softirq),
            (&file.task_switch, |role| &mut role.task_switch),
            (&file.exec, |role| &mut role.exec),
            (&file.new_task, |role| &mut role.new_task),
            (&file.packet, |role| &mut role.packet),
            (&file.transmit_completion, |role| &mut role.completion),
            (&file.polls, |role| &mut role.polls),
            (&file.unpacks, |role| &mut role.unpacks),
            (&file.hands_up, |role| &mut role.hands_up),
            (&file.receive_completion, |role| &mut role.receive_completion),
            (&file.wire, |role| &mut role.wire),
        ];
        let flags = flags.into_iter().map(|(patterns, flag)| (patterns, Meaning::Is(flag)));
        let workers = [
            (&file.thread_sends[..], Meaning::WorksFor(Direction::Tx)),
            (&file.thread_receives[..], Meaning::WorksFor(Direction::Rx)),
        ];
        let flags = flags.chain(workers);
        let reaches = file.packet_is.iter().enumerate();
        let reaches = reaches.map(|(bit, rule)| (&rule.reaches[..], Meaning::Reaches(1 << bit)));
        let (patterns, meanings): (Vec<&String>, _) = flags
            .chain(reaches)
            .flat_map(|(patterns, meaning)| patterns.iter().map(move |p| (p, meaning)))
            .unzip();
        Ok(PathRules {
            globs: globs(patterns)?,
            meanings,
            sends: globs(&file.sends)?,
            receives: globs(&file.receives)?,
            vectors: file.vectors,
            packet_is: file.packet_is.iter().map(|rule| rule.direction).collect(),
            needed,
            receive_path: [file.softirq, receives].concat(),
        })
    }

    /// The role of a function; clones and parts have the same one.
    pub fn role(&self, symbol: &str) -> Role {
        let name = base_name(symbol);
        let mut role = Role { vector: self.vectors.get(name).copied(), ..Role::default() };
        for pattern in self.globs.matches(name) {
            match self.meanings[pattern] {
                Meaning::Is(flag) => *flag(&mut role) = true,
                Meaning::WorksFor(direction) => role.works_for = Some(direction),
                Meaning::Reaches(bits) => role.reaches |= bits,
            }
        }
        role
    }

    /// What a kernel with only these functions lacks to identify paths.
    pub fn missing<'n>(&self, symbols: impl IntoIterator<Item = &'n str>) -> Option<Missing> {
        let mut left: Vec<&Needed> = self.needed.iter().collect();
        for symbol in symbols {
            if left.is_empty() {
                break;
            }
            let name = Candidate::new(base_name(symbol));
            left.retain(|needed| !needed.globs.is_match_candidate(&name));
        }
        left.first().map(|needed| Missing { what: needed.what, names: needed.names.clone() })
    }

    /// The functions below which packets are received: those that run softirqs, and the entry of
    /// NET_RX.
    pub fn receive_path(&self) -> &[String] {
        &self.receive_path
    }

    /// Whether a task sends or receives below this function. Separate from its role, which is
    /// looked up for every function of a kernel.
    pub fn call(&self, symbol: &str) -> Option<Direction> {
        let name = base_name(symbol);
        match (self.sends.is_match(name), self.receives.is_match(name)) {
            (true, _) => Some(Direction::Tx),
            (_, true) => Some(Direction::Rx),
            _ => None,
        }
    }

    /// The direction of a packet that reached functions with these bits.
    pub fn direction(&self, reached: u32) -> Direction {
        self.packet_is
            .iter()
            .enumerate()
            .find(|(bit, _)| reached & (1 << bit) != 0)
            .map_or(Direction::Rx, |(_, direction)| *direction)
    }
}

fn globs<'p>(patterns: impl IntoIterator<Item = &'p String>) -> Result<GlobSet, PathRulesError> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(Glob::new(pattern).map_err(|e| PathRulesError(e.to_string()))?);
    }
    set.build().map_err(|e| PathRulesError(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the built-in rules parse and name what they are to name.
    #[test]
    fn built_in_rules() {
        let rules = PathRules::built_in();
        assert!(rules.role("asm_sysvec_apic_timer_interrupt").timer);
        assert!(rules.role("asm_exc_page_fault").entry);
        assert_eq!(rules.call("__x64_sys_sendto"), Some(Direction::Tx));
        assert_eq!(rules.call("sock_recvmsg_nosec"), Some(Direction::Rx));
        assert_eq!(rules.call("vfs_write"), None);
        assert_eq!(rules.role("net_rx_action").vector, Some(Softirq::NetRx));
        assert!(rules.role("__netif_receive_skb_core.constprop.0").packet);
        assert_eq!(rules.role("udp_sendmsg"), Role::default());
    }

    /// Check that a clone of a function, under any name from the compiler, has the function's role.
    #[test]
    fn clones_have_their_functions_role() {
        let rules = PathRules::built_in();
        for name in [
            "handle_softirqs",
            "net_rx_action",
            "run_timer_softirq",
            "__netif_receive_skb_one_core",
            "irq_forced_thread_fn",
            "tcp_ack",
            "begin_new_exec",
            "copy_thread",
            "free_old_xmit_skbs",
            "usbnet_bh",
            "smsc95xx_rx_fixup",
            "rx_complete",
            "netif_rx_internal",
            "vhci_urb_enqueue",
        ] {
            let role = rules.role(name);
            assert_ne!(role, Role::default(), "{name}");
            for suffix in [".constprop.0", ".isra.0", ".part.0", ".cold", ".llvm.4711"] {
                assert_eq!(rules.role(&format!("{name}{suffix}")), role, "{name}{suffix}");
            }
        }
    }

    /// Check that missing functions are reported with their names.
    #[test]
    fn what_is_missing() {
        let rules = PathRules::built_in();
        let kernel = [
            "entry_SYSCALL_64",
            "asm_common_interrupt",
            "__switch_to_asm",
            "handle_softirqs.constprop.0",
            "net_rx_action",
            "__netif_receive_skb_core.constprop.0",
        ];
        assert_eq!(rules.missing(kernel), None);
        for (n, name) in (0..).zip(kernel) {
            let others = (0..).zip(kernel).filter(|(m, _)| *m != n);
            let missing = rules.missing(others.map(|(_, name)| name)).unwrap();
            let glob = globs(&missing.names).unwrap();
            assert!(glob.is_match(base_name(name)), "{missing:?}");
        }
        assert_eq!(rules.receive_path(), ["__do_softirq", "handle_softirqs", "net_rx_action"]);
    }

    /// Check that forwarding is recognised on every path: routing, a bridge, a flowtable.
    #[test]
    fn ways_to_forward() {
        let rules = PathRules::built_in();
        for name in [
            "ip_forward",
            "br_forward",
            "neigh_xmit",
            "nf_flow_queue_xmit",
            "skb_do_redirect",
            "xdp_do_redirect",
            "ip_vs_nat_xmit_v6",
        ] {
            let reached = rules.role(name).reaches | rules.role("tcp_queue_rcv").reaches;
            assert_eq!(rules.direction(reached), Direction::Forward, "{name}");
        }
    }

    /// Check that a packet that is acknowledged and carries data was received,
    /// and one that only acknowledges was not.
    #[test]
    fn first_rule_wins() {
        let rules = PathRules::built_in();
        let ack = rules.role("tcp_ack").reaches;
        let data = rules.role("tcp_queue_rcv").reaches;
        assert_eq!(rules.direction(ack), Direction::Ack);
        assert_eq!(rules.direction(ack | data), Direction::Rx);
        assert_eq!(rules.direction(0), Direction::Rx);
        // It returns at once for a bare acknowledgement.
        assert_eq!(rules.role("tcp_data_queue").reaches, 0);
    }

    /// Check which workers of the kernel send packets, which receive them, and which do neither.
    #[test]
    fn workers() {
        let rules = PathRules::built_in();
        for (name, direction) in [
            ("wg_packet_tx_worker", Some(Direction::Tx)),
            ("wg_packet_decrypt_worker", Some(Direction::Rx)),
            ("wg_packet_handshake_send_worker", None),
            ("process_one_work", None),
        ] {
            assert_eq!(rules.role(name).works_for, direction, "{name}");
        }
    }
}
