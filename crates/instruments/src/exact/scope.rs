//! An interrupt, its handler in a thread, or a run of softirqs: its owner is known when
//! it ends.
//!
//! A softirq runs on any stack, a sender's included. Within a run, what comes before a
//! packet is charged to that packet (the poll that fetched it), and what comes after
//! the last one to the last; so each instruction belongs to one packet, whole.

use netplumb_kernel::path_rules::PathRules;
use netplumb_model::class::{Context, Direction, Softirq};
use netplumb_model::recording::NodeId;

use super::frame::Tag;
use super::sample::Drawn;

/// Instructions in a scope whose owner is not known yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    pub(super) node: NodeId,
    pub(super) insns: u32,
    /// How many of them had interrupts off, where that is followed.
    pub(super) off: u32,
    pub(super) calls: u32,
    pub(super) tag: Tag,
    /// The packet being handled, or the next one.
    pub(super) packet: u32,
}

/// What opens a scope.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ScopeKind {
    /// A run of softirqs.
    #[default]
    Softirqs,
    Interrupt,
    /// The handler of an interrupt, in a task of its own.
    Thread,
    /// The completion of a transfer that was received, in a task: of the packets of the next run of
    /// softirqs that polls.
    Completion,
}

/// An interrupt, its handler in a thread, or a run of softirqs: what it did is known
/// when it ends.
#[derive(Debug, Clone, Default)]
pub(super) struct Scope {
    pub(super) events: Vec<Event>,
    /// Samples of it, each with what was sampled.
    pub(super) samples: Vec<(Event, Drawn)>,
    /// For each packet handled, the rules it met.
    pub(super) packets: Vec<u32>,
    /// Functions that the current packet has met.
    pub(super) reached: u32,
    pub(super) of: ScopeKind,
    /// It polled a device for packets received and sent.
    pub(super) polls: bool,
    /// It took apart what was received.
    pub(super) unpacks: bool,
    /// It handed a packet to the network stack.
    pub(super) hands_up: bool,
    /// It is the timer's interrupt.
    pub(super) timer: bool,
    /// What the softirqs that ran at its end did.
    pub(super) softirq_direction: Option<Direction>,
}

/// Takes an event with its owner; for a sample, with what was sampled.
pub(super) type Add<'a> = dyn FnMut(Direction, Context, &Event, Option<&Drawn>) + 'a;

/// A scope has ended: charge what it did, and its samples. Returns the direction of its first
/// part, which an interrupt around it inherits.
pub(super) fn resolve(scope: &Scope, rules: &PathRules, add: &mut Add<'_>) -> Direction {
    let sampled = (scope.samples.iter()).map(|(event, drawn)| (event, Some(drawn)));
    let all = scope.events.iter().map(|event| (event, None)).chain(sampled);
    if scope.of != ScopeKind::Softirqs {
        let direction = match (scope.timer, scope.of) {
            (true, _) => Direction::Other,
            // Without softirqs at its end it was for no packet: a disk's, for example.
            (_, ScopeKind::Thread) => scope.softirq_direction.unwrap_or(Direction::Other),
            _ => scope.softirq_direction.unwrap_or(Direction::Rx),
        };
        for (event, drawn) in all {
            let direction = match event.tag {
                tag if tag.wire => Direction::Other,
                tag if tag.completion && !scope.timer => Direction::Tx,
                _ => direction,
            };
            let context = event.tag.context.unwrap_or(Context::Hardirq);
            add(direction, context, event, drawn);
        }
        return direction;
    }
    // What the run was for: the vector closest to packets.
    let mut vectors: Vec<Softirq> = Vec::new();
    let mut completes = false;
    for event in &scope.events {
        if let Some(Context::Softirq(vector)) = event.tag.context
            && !vectors.contains(&vector)
        {
            vectors.push(vector);
        }
        completes |= event.tag.completion;
    }
    let main = [Softirq::NetRx, Softirq::NetTx, Softirq::Tasklet, Softirq::Hi]
        .into_iter()
        .find(|v| vectors.contains(v))
        .or_else(|| vectors.first().copied())
        .unwrap_or(Softirq::Timer);
    let packets: Vec<Direction> =
        scope.packets.iter().map(|reached| rules.direction(*reached)).collect();
    let default = match scope.polls {
        true if scope.unpacks && !scope.hands_up => Direction::Drop,
        true if !scope.unpacks => Direction::Tx,
        _ if completes => Direction::Tx,
        _ => Direction::Rx,
    };
    let first = match main {
        Softirq::NetRx | Softirq::Tasklet | Softirq::Hi => {
            packets.first().copied().unwrap_or(default)
        }
        Softirq::NetTx => Direction::Tx,
        _ => Direction::Other,
    };
    for (event, drawn) in all {
        let vector = match event.tag.context {
            Some(Context::Softirq(vector)) => vector,
            _ => main,
        };
        let direction = match vector {
            _ if event.tag.wire => Direction::Other,
            _ if event.tag.context.is_none() => first,
            Softirq::NetTx => Direction::Tx,
            Softirq::NetRx | Softirq::Tasklet | Softirq::Hi if event.tag.completion => {
                Direction::Tx
            }
            Softirq::NetRx | Softirq::Tasklet | Softirq::Hi => {
                packets.get(event.packet as usize).or(packets.last()).copied().unwrap_or(default)
            }
            _ => Direction::Other,
        };
        add(direction, Context::Softirq(vector), event, drawn);
    }
    first
}
