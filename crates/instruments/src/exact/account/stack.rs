//! Where control goes in the kernel: frames pushed and popped, and tasks switched.

use std::mem;

use netplumb_model::class::Context;

use super::super::block::Segment;
use super::super::frame::{Flow, Frame, Tag, Why, jumped_from};
use super::super::interrupts::Before;
use super::super::scope::{Scope, ScopeKind};
use super::super::stack::{Task, stack_id};
use super::super::trace::switched;
use super::super::tree::Symbol;
use super::{Accountant, MAX_DEPTH};

impl Accountant<'_> {
    /// Bring the stack to where control is now. Returns whether a function was entered.
    pub(super) fn arrive(&mut self, flow: Flow, segment: &Segment, address: u64) -> bool {
        // First, for the next interrupt may come before anything else runs.
        let flow = if flow == Flow::Iret { self.iret() } else { flow };
        let symbol = segment.symbol;
        let role = self.role(symbol);
        // A return to the middle of an entry stub is not a new entry.
        if (role.interrupt || role.entry) && (segment.at_entry || role.stubs) {
            // A stub of the entry code that runs on into the next one.
            let within = flow == Flow::Sequential
                && self.current.frames.last().is_some_and(|top| {
                    let top_role = self.role(top.symbol);
                    top_role.interrupt || top_role.entry
                });
            if !within {
                if flow == Flow::User {
                    self.pop_to(0, true);
                }
                self.enter(symbol, flow);
                return true;
            }
        }
        match flow {
            Flow::User => {
                self.pop_to(0, true);
                self.enter(symbol, flow);
                true
            }
            Flow::Call { sp, returns_to } => {
                // A call within it (to fill the return buffer) is not a switch.
                if role.exec
                    && let Some(thread) = &mut self.current.thread
                {
                    thread.exec = true;
                }
                if role.task_switch && segment.at_entry {
                    self.current.id = Some(stack_id(sp));
                    self.switching = true;
                }
                self.push(symbol, Why::Called { sp, returns_to });
                true
            }
            Flow::Ret { sp } => {
                self.ret(sp, address);
                self.on(symbol)
            }
            Flow::Sequential | Flow::Iret => self.on(symbol),
        }
    }

    /// Enter the kernel, or an interrupt of it.
    fn enter(&mut self, symbol: Symbol, flow: Flow) {
        let mut before = Before::default();
        if let Some(sampler) = &mut self.sampler {
            let lands = sampler.lands_before_entry();
            before = sampler.enter(flow == Flow::User);
            if lands {
                let frames = &self.current.frames;
                // What has returned, and is not popped yet.
                let returned = frames.iter().rposition(
                    |f| matches!((f.why, flow), (Why::Called { sp, .. }, Flow::Ret { sp: read }) if sp == read),
                );
                self.sample(returned.unwrap_or(frames.len()));
            }
        }
        if let (Flow::User, Some(doing)) = (flow, self.serving) {
            self.current.workload = true;
            self.current.doing.get_or_insert(doing);
        }
        let interrupted = flow;
        self.push(symbol, Why::Entered { interrupted, before });
    }

    /// Without a call: the same function, the one that jumped here, or a jump.
    fn on(&mut self, symbol: Symbol) -> bool {
        let frames = &self.current.frames;
        let Some(top) = frames.last() else {
            self.push(symbol, Why::Found);
            return true;
        };
        if top.symbol == symbol {
            return false;
        }
        match jumped_from(frames, |f| (f.symbol, f.why), symbol) {
            Some(depth) => self.pop_to(depth, true),
            None => {
                self.push(symbol, Why::Jumped);
                return true;
            }
        }
        false
    }

    /// End an interrupt or exception; returns the flow that it interrupted.
    fn iret(&mut self) -> Flow {
        let entered =
            self.current.frames.iter().rposition(|f| matches!(f.why, Why::Entered { .. }));
        let found = entered.and_then(|at| match self.current.frames[at].why {
            Why::Entered { interrupted, before } => Some((at, interrupted, before)),
            _ => None,
        });
        if let Some(sampler) = &mut self.sampler {
            let before = found.map(|(_, _, before)| before);
            sampler.interrupts.leave(before);
        }
        let Some((at, interrupted, _)) = found else {
            self.pop_to(0, false);
            return Flow::Sequential;
        };
        self.pop_to(at, true);
        interrupted
    }

    fn ret(&mut self, sp: u64, address: u64) {
        let frames = &self.current.frames;
        let floor = frames
            .iter()
            .rposition(|f| matches!(f.why, Why::Entered { .. }))
            .map_or(0, |entry| entry + 1);
        let is_called = |f: &Frame, at: Option<u64>, to: Option<u64>| match f.why {
            Why::Called { sp, returns_to } => {
                at.is_none_or(|at| at == sp) && to.is_none_or(|to| to == returns_to)
            }
            _ => false,
        };
        let last = |at, to| {
            let mut frames = frames[floor..].iter();
            frames.rposition(|f| is_called(f, at, to))
        };
        // Where calls store nothing, a frameless function's calls leave the stack pointer alike.
        let found = last(Some(sp), Some(address))
            .or_else(|| last(Some(sp), None))
            // error_entry moves its own return address before it returns.
            .or_else(|| last(None, Some(address)));
        match found {
            Some(at) => self.pop_to(floor + at, true),
            None => {
                // What was called further down the same stack is left behind by
                // the return: calls that fill the return buffer.
                let live = |s: u64| stack_id(s) != stack_id(sp) || s > sp;
                if frames[floor..]
                    .iter()
                    .any(|f| matches!(f.why, Why::Called { sp: s, .. } if live(s)))
                {
                    self.losses.unmatched_returns += 1;
                }
                self.pop_to(floor, false);
            }
        }
    }

    fn push(&mut self, symbol: Symbol, why: Why) {
        if self.current.frames.len() >= MAX_DEPTH {
            self.losses.stacks_given_up += 1;
            self.pop_to(0, false);
        }
        let role = self.role(symbol);
        let below = self.current.frames.last().copied();
        let task = if self.current.workload { Context::Task } else { Context::OtherTask };
        let base = Tag { context: Some(task), ..Tag::default() };
        let mut tag = below.map_or(base, |f| f.tag);
        let mut parent = match below {
            Some(below) => Some(below.node),
            None => self.thread_top(),
        };
        let mut opens_scope = false;
        let mut opens_packet = false;

        if role.interrupt && matches!(why, Why::Entered { .. }) {
            opens_scope = true;
            parent = None;
            tag = Tag { context: Some(Context::Hardirq), ..Tag::default() };
            self.current.scopes.push(Scope { of: ScopeKind::Interrupt, ..Scope::default() });
        } else if matches!(why, Why::Entered { .. }) {
            // A fault within the kernel stays what it interrupted, a child of it.
        } else if role.softirq && below.is_none_or(|f| f.tag.context.is_some()) {
            opens_scope = true;
            parent = None;
            tag = Tag::default();
            self.current.scopes.push(Scope::default());
        } else if role.threaded_interrupt && self.current.scopes.is_empty() {
            // It stays the thread's time, of the packet whose softirq it raises.
            opens_scope = true;
            self.current.scopes.push(Scope { of: ScopeKind::Thread, ..Scope::default() });
        } else if role.receive_completion && self.current.scopes.is_empty() {
            opens_scope = true;
            self.current.scopes.push(Scope { of: ScopeKind::Completion, ..Scope::default() });
        } else if let (Some(vector), None) = (role.vector, tag.context) {
            tag.context = Some(Context::Softirq(vector));
        }
        if let Some(scope) = self.current.scopes.last_mut() {
            if role.packet && !tag.in_packet && scope.of == ScopeKind::Softirqs {
                opens_packet = true;
                tag.in_packet = true;
                scope.reached = 0;
            }
            if tag.in_packet {
                scope.reached |= role.reaches;
            }
            scope.polls |= role.polls;
            scope.unpacks |= role.unpacks;
            scope.hands_up |= role.hands_up;
            scope.timer |= scope.of == ScopeKind::Interrupt && role.timer;
        }
        tag.completion |= role.completion;
        tag.wire |= role.wire;
        tag.works_for = tag.works_for.or(role.works_for);
        let node = self.node(parent, symbol, why == Why::Jumped);
        let mut window = 0;
        if let Some(open) = &mut self.window {
            open.entered += 1;
            window = self.window_number;
        }
        self.current.frames.push(Frame {
            symbol,
            node,
            why,
            tag,
            opens_scope,
            opens_packet,
            window,
        });
        if self.tracer.is_some() {
            let aside = opens_scope && parent.is_none();
            self.trace_kernel(symbol, why == Why::Jumped, aside, role.vector, tag.context);
        }
    }

    /// End all frames from `depth` up; `returned` if they ended as they should.
    pub(super) fn pop_to(&mut self, depth: usize, returned: bool) {
        if self.current.frames.len() > depth {
            self.leave_traces(false, depth);
        }
        while self.current.frames.len() > depth {
            let Some(frame) = self.current.frames.pop() else {
                return;
            };
            if let Some(open) = &mut self.window
                && returned
                && frame.window == self.window_number
            {
                open.returned += 1;
            }
            if frame.opens_packet
                && let Some(scope) = self.current.scopes.last_mut()
            {
                let reached = scope.reached;
                scope.packets.push(reached);
            }
            if frame.opens_scope
                && let Some(scope) = self.current.scopes.pop()
            {
                let around = self.current.scopes.len().checked_sub(1);
                self.end_scope(scope, around);
            }
        }
    }

    /// The stack changed: go on with the task that it belongs to.
    pub(super) fn switch_to(&mut self, id: u64) {
        self.switching = false;
        // A task can be switched from at the end of an interrupt; what that did
        // so far is accounted for now, the rest when the task comes back.
        self.settle_scopes();
        switched(&mut self.current.traces);
        let next = self.newborn(id).or_else(|| self.others.remove(&id));
        let next = next.unwrap_or_else(|| Task { id: Some(id), ..Task::default() });
        let before = mem::replace(&mut self.current, next);
        if let Some(id) = before.id {
            self.others.insert(id, before);
        }
    }
}
