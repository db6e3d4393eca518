//! Whose the instructions are: of the packet at hand, or of a scope that is not over yet.

use std::mem;

use netplumb_model::class::{Context, Direction};

use super::super::scope::{Event, Of, Scope, resolve};
use super::Accountant;

impl Accountant<'_> {
    pub(super) fn charge(&mut self, insns: u32, calls: u32) {
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
                last.calls += calls;
                return;
            }
            scope.events.push(Event {
                node,
                insns,
                calls,
                tag,
                packet,
            });
            return;
        }
        let context = tag.context.unwrap_or(Context::OtherTask);
        let direction = match context {
            _ if self.user.is_some() => Direction::Run,
            Context::Task => self.current.doing.unwrap_or(Direction::Other),
            _ => Direction::Other,
        };
        if let Some(window) = &mut self.window {
            window.add(direction, context, node, calls, insns);
        }
    }

    /// A scope ends, or as much of it as there is; `around` is the one that it is in.
    pub(super) fn end_scope(&mut self, scope: &Scope, around: Option<usize>) {
        let window = &mut self.window;
        let run = self.user.is_some();
        let direction = resolve(scope, self.rules, &mut |direction, context, event| {
            if let Some(window) = window {
                let direction = if run { Direction::Run } else { direction };
                window.add(direction, context, event.node, event.calls, event.insns);
            }
        });
        if let Some(outer) = around.and_then(|n| self.current.scopes.get_mut(n))
            && outer.of != Of::Softirqs
            && scope.of == Of::Softirqs
            && outer.softirq_direction.is_none()
        {
            outer.softirq_direction = Some(direction);
        }
    }

    pub(super) fn settle_scopes(&mut self) {
        // From the inside out: an interrupt is of what its softirqs were.
        for index in (0..self.current.scopes.len()).rev() {
            let scope = &mut self.current.scopes[index];
            let done = Scope {
                events: mem::take(&mut scope.events),
                ..scope.clone()
            };
            self.end_scope(&done, index.checked_sub(1));
        }
    }
}
