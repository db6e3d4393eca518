//! The rules of rules/path.toml: what a function's name says about the path.

use std::collections::BTreeMap;

use globset::{Glob, GlobSet, GlobSetBuilder};
use netplumb_model::class::{Direction, Softirq};
use serde::Deserialize;

const BUILT_IN: &str = include_str!("../rules/path.toml");
const COMMON_PATH: &str = include_str!("../rules/common-path.txt");
/// Flags of [`Role::reaches`] are bits of a u32.
const MAX_PACKET_RULES: usize = 32;

/// Functions that packets usually meet, the dearest first: rules/common-path.txt.
pub fn common_path() -> impl Iterator<Item = &'static str> {
    COMMON_PATH.lines().filter(|line| !line.starts_with('#'))
}

/// What one function means for the path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Role {
    /// An interrupt begins.
    pub interrupt: bool,
    /// ... at any of the addresses in it, not just the first.
    pub stubs: bool,
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
    /// Is the action of a vector.
    pub vector: Option<Softirq>,
    /// Bits of the packet rules that it satisfies.
    pub reaches: u32,
}

/// The rules, ready to be asked.
#[derive(Debug, Clone)]
pub struct PathRules {
    interrupt: GlobSet,
    stubs: GlobSet,
    timer: GlobSet,
    entry: GlobSet,
    softirq: GlobSet,
    task_switch: GlobSet,
    exec: GlobSet,
    new_task: GlobSet,
    packet: GlobSet,
    completion: GlobSet,
    vectors: BTreeMap<String, Softirq>,
    packet_is: Vec<(Direction, GlobSet)>,
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
    timer_interrupt: Vec<String>,
    entry: Vec<String>,
    softirq: Vec<String>,
    task_switch: Vec<String>,
    exec: Vec<String>,
    new_task: Vec<String>,
    packet: Vec<String>,
    transmit_completion: Vec<String>,
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
            return Err(PathRulesError(format!(
                "more than {MAX_PACKET_RULES} packet_is rules"
            )));
        }
        let packet_is = file
            .packet_is
            .iter()
            .map(|rule| Ok((rule.direction, globs(&rule.reaches)?)))
            .collect::<Result<_, PathRulesError>>()?;
        Ok(PathRules {
            interrupt: globs(&file.interrupt)?,
            stubs: globs(&file.stubs)?,
            timer: globs(&file.timer_interrupt)?,
            entry: globs(&file.entry)?,
            softirq: globs(&file.softirq)?,
            task_switch: globs(&file.task_switch)?,
            exec: globs(&file.exec)?,
            new_task: globs(&file.new_task)?,
            packet: globs(&file.packet)?,
            completion: globs(&file.transmit_completion)?,
            vectors: file.vectors,
            packet_is,
        })
    }

    /// What the function of this name means.
    pub fn role(&self, name: &str) -> Role {
        let mut reaches = 0;
        for (bit, (_, globs)) in self.packet_is.iter().enumerate() {
            if globs.is_match(name) {
                reaches |= 1 << bit;
            }
        }
        Role {
            interrupt: self.interrupt.is_match(name),
            stubs: self.stubs.is_match(name),
            timer: self.timer.is_match(name),
            entry: self.entry.is_match(name),
            softirq: self.softirq.is_match(name),
            task_switch: self.task_switch.is_match(name),
            exec: self.exec.is_match(name),
            new_task: self.new_task.is_match(name),
            packet: self.packet.is_match(name),
            completion: self.completion.is_match(name),
            vector: self.vectors.get(name).copied(),
            reaches,
        }
    }

    /// What a packet was whose handling reached functions with these bits.
    pub fn direction(&self, reached: u32) -> Direction {
        self.packet_is
            .iter()
            .enumerate()
            .find(|(bit, _)| reached & (1 << bit) != 0)
            .map_or(Direction::Rx, |(_, (direction, _))| *direction)
    }
}

fn globs(patterns: &[String]) -> Result<GlobSet, PathRulesError> {
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
        assert_eq!(rules.role("net_rx_action").vector, Some(Softirq::NetRx));
        assert!(rules.role("__netif_receive_skb_core.constprop.0").packet);
        assert_eq!(rules.role("udp_sendmsg"), Role::default());
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
    }
}
