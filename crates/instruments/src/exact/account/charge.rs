//! Charges instructions to the current packet, or to a scope that has not ended.

use std::mem;

use netplumb_model::class::{Context, Direction};

use netplumb_model::recording::NodeId;

use super::super::frame::Tag;
use super::super::scope::{Event, Scope, ScopeKind, resolve};
use super::Accountant;

/// The direction of a packet's work in a phase. What is forwarded remains that, whatever it is a part of.
fn in_phase(phase: Option<Direction>, direction: Direction) -> Direction {
    match direction {
        Direction::Tx | Direction::Rx | Direction::Ack | Direction::Echo => {
            phase.unwrap_or(direction)
        }
        _ => direction,
    }
}

impl Accountant<'_> {
    /// The direction and context of a frame's code outside of scopes.
    fn owner(&self, tag: Tag) -> (Direction, Context) {
        let context = tag.context.unwrap_or(Context::OtherTask);
        let direction = match context {
            _ if self.user.is_some() => Direction::Run,
            _ if tag.wire => Direction::Other,
            _ if tag.completion => Direction::Tx,
            Context::Task => self.current.doing.unwrap_or(Direction::Other),
            Context::OtherTask => tag.works_for.unwrap_or(Direction::Other),
            _ => Direction::Other,
        };
        (in_phase(self.phase, direction), context)
    }

    /// Samples were drawn in the frame at this depth, from 1.
    pub(super) fn sample(&mut self, depth: usize) {
        let frame = depth.checked_sub(1);
        let Some(frame) = frame.and_then(|n| self.current.frames.get(n)) else {
            // User code was interrupted again before it went on.
            return match self.thread_top() {
                Some(node) => self.sample_user_code(node),
                None => self.sample_user(),
            };
        };
        let (node, tag) = (frame.node, frame.tag);
        let (direction, context) = self.owner(tag);
        let Some(sampler) = &mut self.sampler else {
            return;
        };
        match (self.current.scopes.last_mut(), &mut self.window) {
            (Some(scope), Some(_)) => {
                let event = Event {
                    node,
                    insns: 0,
                    off: 0,
                    calls: 0,
                    tag,
                    packet: scope.packets.len() as u32,
                };
                sampler.take(|drawn| scope.samples.push((event, drawn)));
            }
            (None, Some(window)) => {
                sampler.take(|drawn| window.sample(direction, context, node, &drawn));
            }
            (_, None) => sampler.take(drop),
        }
    }

    /// The context of user code.
    fn user_context(&self) -> Context {
        match self.current.workload {
            true => Context::Task,
            false => Context::OtherTask,
        }
    }

    /// Samples were drawn in user code that is not counted.
    pub(super) fn sample_user(&mut self) {
        let direction = match self.user {
            Some(_) => Direction::Run,
            None => self.current.doing.unwrap_or(Direction::Other),
        };
        let context = self.user_context();
        if let Some(sampler) = &mut self.sampler {
            let window = &mut self.window;
            sampler.take(|drawn| {
                if let Some(window) = window {
                    window.sample_user(direction, context, &drawn);
                }
            });
        }
    }

    /// Samples were drawn in user code that is.
    pub(super) fn sample_user_code(&mut self, node: NodeId) {
        let context = self.user_context();
        if let (Some(sampler), Some(window)) = (&mut self.sampler, &mut self.window) {
            sampler.take(|drawn| window.sample(Direction::Run, context, node, &drawn));
        }
    }

    /// `off` of the instructions had interrupts off.
    pub(super) fn charge(&mut self, insns: u32, calls: u32, off: u32) {
        if self.window.is_none() {
            return;
        }
        let Some(top) = self.current.frames.last() else {
            return;
        };
        let (node, tag) = (top.node, top.tag);
        if let Some(scope) = self.current.scopes.last_mut() {
            let packet = scope.packets.len() as u32;
            // Runs of one function are most of the stream.
            if let Some(last) = scope.events.last_mut()
                && last.node == node
                && last.packet == packet
                && last.tag == tag
            {
                last.insns += insns;
                last.off += off;
                last.calls += calls;
                return;
            }
            scope.events.push(Event { node, insns, off, calls, tag, packet });
            return;
        }
        let (direction, context) = self.owner(tag);
        if let Some(window) = &mut self.window {
            window.add(direction, context, node, calls, insns);
            if self.sampler.is_some() {
                window.add_off(direction, off, insns);
            }
        }
    }

    /// A scope ends, or the part of it so far; `around` is its outer one.
    pub(super) fn end_scope(&mut self, scope: Scope, around: Option<usize>) {
        if scope.of == ScopeKind::Completion {
            self.completed.push(scope);
            return;
        }
        let direction = self.end_known(&scope);
        if scope.polls && scope.unpacks {
            self.end_completions(direction);
        }
        if let Some(outer) = around.and_then(|n| self.current.scopes.get_mut(n))
            && outer.of != ScopeKind::Softirqs
            && scope.of == ScopeKind::Softirqs
            && outer.softirq_direction.is_none()
        {
            outer.softirq_direction = Some(direction);
        }
    }

    /// The direction of what was received is known.
    pub(super) fn end_completions(&mut self, direction: Direction) {
        for mut scope in mem::take(&mut self.completed) {
            scope.softirq_direction = Some(direction);
            self.end_known(&scope);
        }
    }

    /// Charge what a scope did; returns the direction of its first part.
    fn end_known(&mut self, scope: &Scope) -> Direction {
        let window = &mut self.window;
        let run = self.user.is_some();
        let phase = self.phase;
        let sampling = self.sampler.is_some();
        resolve(scope, self.rules, &mut |direction, context, event, drawn| {
            let Some(window) = window else { return };
            let direction = if run { Direction::Run } else { in_phase(phase, direction) };
            match drawn {
                Some(drawn) => window.sample(direction, context, event.node, drawn),
                None => {
                    window.add(direction, context, event.node, event.calls, event.insns);
                    if sampling {
                        window.add_off(direction, event.off, event.insns);
                    }
                }
            }
        })
    }

    pub(super) fn settle_scopes(&mut self) {
        // From the inside out: an interrupt is charged like its softirqs.
        for index in (0..self.current.scopes.len()).rev() {
            let scope = &mut self.current.scopes[index];
            let done = Scope {
                events: mem::take(&mut scope.events),
                samples: mem::take(&mut scope.samples),
                ..scope.clone()
            };
            self.end_scope(done, index.checked_sub(1));
        }
    }
}
