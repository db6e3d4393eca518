//! The part of the accounting that only commands need: user code and threads.

use std::mem;

use netplumb_model::class::{Context, Direction};
use netplumb_model::recording::NodeId;

use super::super::block::{Block, Segment};
use super::super::frame::{Flow, Why, jumped_from};
use super::super::stack::{Task, stack_id};
use super::super::stream::{Kind, StackPointer};
use super::super::tree::Symbol;
use super::super::user::{
    Go, MAX_DEPTH, MAX_FRAMES, Thread, UserCode, UserFrame, is_forked, is_over,
};
use super::super::window::{RanCode, Window};
use super::{Accountant, Birth, Maker, Running, ThreadRole};

/// Nodes of the tree, beyond which new paths to a function are not distinguished.
const MAX_NODES: usize = 1 << 20;
/// Minimum distance of coroutines' stacks.
const COROUTINE_BYTES: u64 = 4 << 10;

impl Accountant<'_> {
    /// The stream has ended: the window that was open, as far as it got.
    pub fn finish(&mut self) -> Option<Window> {
        self.settle();
        self.settle_scopes();
        let open = self.window.take()?;
        if let Some(sampler) = &mut self.sampler {
            sampler.close();
        }
        self.losses.windows_cut += 1;
        let user_insns = open.user_insns_before + open.user_insns;
        let code = self.take_user_code();
        let traced = self.end_traces();
        Some(open.close(user_insns, code, traced))
    }

    /// The instructions of a block of user code, if it is in a file.
    pub fn user_code(&self, block: u32) -> Option<UserCode> {
        self.blocks.get(block as usize)?.as_ref()?.user_code()
    }

    /// Which blocks of the command's code ran since this was asked last.
    pub(super) fn take_user_code(&mut self) -> Vec<RanCode> {
        let Some(user) = &mut self.user else {
            return Vec::new();
        };
        let mut ran: Vec<RanCode> = user
            .cut
            .drain()
            .map(|((block, insns), times)| RanCode { block, insns, times })
            .collect();
        for (id, block) in (0..).zip(&mut self.blocks) {
            let Some(block) = block else { continue };
            let times = block.code.as_mut().map_or(0, |c| mem::take(&mut c.times));
            if times > 0 {
                ran.push(RanCode { block: id, insns: block.insns, times });
            }
        }
        ran.sort_unstable();
        ran
    }

    /// This task is the command, as yet without its program.
    pub(super) fn begin_run(&mut self) {
        let Some(user) = &mut self.user else { return };
        user.numbered = 1;
        self.current.thread = Some(user.thread(ThreadRole::Command(1), 0, None));
    }

    /// Watched code prepares a new task's stack.
    pub(super) fn store(&mut self, address: u64) {
        let Some(user) = &mut self.user else { return };
        // What lies on the running task's stack is its own.
        let own = self.current.frames.iter().rev().find_map(|f| match f.why {
            Why::Called { sp, .. } => Some(stack_id(sp)),
            _ => None,
        });
        let id = stack_id(address);
        if own.is_none_or(|own| own == id) {
            return;
        }
        let birth = Birth {
            workload: self.current.workload,
            maker: self.current.thread.as_ref().map(|thread| Maker {
                part: thread.part,
                root: thread.symbol,
                process: thread.process,
                frames: thread.frames.clone(),
            }),
        };
        user.born.insert(id, birth);
    }

    /// The new task of this stack, if it has not run yet.
    pub(super) fn newborn(&mut self, id: u64) -> Option<Task> {
        let user = self.user.as_mut()?;
        let birth = user.born.remove(&id)?;
        // What lived here before has ended.
        if let (Some(mut gone), Some(tracer)) = (self.others.remove(&id), &mut self.tracer) {
            tracer.give_up(&mut gone.traces);
        }
        // A task that the kernel made for itself has no user half.
        let thread = birth.maker.map(|maker| {
            let part = match maker.part {
                ThreadRole::Command(_) => {
                    user.numbered += 1;
                    ThreadRole::Command(user.numbered)
                }
                other => other,
            };
            Thread {
                process: maker.process,
                inherited: maker.frames,
                ..user.thread(part, 0, Some(maker.root))
            }
        });
        Some(Task { id: Some(id), workload: birth.workload, thread, ..Task::default() })
    }

    /// What the kernel's code is below where it was entered from user mode.
    pub(super) fn thread_top(&mut self) -> Option<NodeId> {
        self.user.as_ref()?;
        self.root()?;
        self.current.thread.as_ref()?.top()
    }

    /// The running thread's root.
    pub(super) fn root(&mut self) -> Option<NodeId> {
        let thread = self.current.thread.as_mut()?;
        if thread.root.is_none() {
            let node = self.tree.child(None, thread.symbol, false);
            thread.root = Some(node);
        }
        thread.root
    }

    /// The node of a function, where there is room for it.
    pub(super) fn node(&mut self, parent: Option<NodeId>, symbol: Symbol, tail: bool) -> NodeId {
        if self.user.is_none() {
            return self.tree.child(parent, symbol, tail);
        }
        let deep = self.current.thread.as_ref().is_some_and(|t| t.frames.len() >= MAX_DEPTH);
        let full = self.tree.nodes().len() >= MAX_NODES;
        if !deep && !full {
            return self.tree.child(parent, symbol, tail);
        }
        if let Some(known) = self.tree.known(parent, symbol, tail) {
            return known;
        }
        self.losses.ways_cut += 1;
        let root = match parent {
            Some(_) => self.root(),
            None => None,
        };
        self.tree.child(root, symbol, false)
    }

    /// A block of user code ran.
    pub(super) fn enter_user_block(&mut self, block: &mut Block, running: &Running) {
        if !self.current.frames.is_empty() {
            self.pop_to(0, true);
        }
        self.flow = Flow::User;
        if let Some(sampler) = &mut self.sampler {
            sampler.user();
        }
        self.begin_program(block);
        self.inherit(running.stack);
        let insns = running.ran.unwrap_or(block.insns);
        if let Some(window) = &mut self.window {
            window.user_insns += u64::from(insns);
        }
        let Some(thread) = &mut self.current.thread else {
            return;
        };
        let flow = thread.flow;
        if !matches!(thread.part, ThreadRole::Command(_)) {
            // Others' code is one cost.
            if let Some(root) = self.root() {
                self.charge_user(root, insns, 0);
            }
            return;
        }
        let mut left = insns;
        for (n, segment) in block.segments.iter().enumerate() {
            if n > 0 && left == 0 {
                break;
            }
            let flow = if n == 0 { flow } else { Flow::Sequential };
            if n == 0 && self.switches_stack(flow, running.stack, segment) {
                self.losses.stack_switches += u64::from(self.window.is_some());
            }
            self.registers.at(n, segment.at_entry);
            let entered = match (running.stack, self.user_top()) {
                (Some(stack), Go::Resumes)
                    if n == 0
                        && flow == Flow::Sequential
                        && self.go(segment.symbol) != Go::Resumes =>
                {
                    self.resume_goroutine(stack, segment, block.start)
                }
                (_, Go::Leaves) if matches!(flow, Flow::Call { .. }) => {
                    self.leave_goroutine();
                    self.arrive_user(flow, segment)
                }
                _ => self.arrive_user(flow, segment),
            };
            let last = n + 1 == block.segments.len();
            let insns = if last { left } else { left.min(segment.insns) };
            left -= insns;
            if let Some(node) = self.current.thread.as_ref().and_then(Thread::top) {
                self.charge_user(node, insns, u32::from(entered));
            }
        }
        if self.window.is_some()
            && let Some(code) = &mut block.code
        {
            match &mut self.user {
                Some(user) if insns != block.insns => {
                    *user.cut.entry((running.id, insns)).or_default() += 1;
                }
                _ => code.times += 1,
            }
            self.count_run(block, running);
        }
        // Between the marker and its program a command is the agent's code.
        let begun = self.current.thread.as_ref().is_some_and(|t| t.named);
        if block.nowhere && begun && self.window.is_some() {
            self.losses.insns_without_file += u64::from(insns);
        }
        if block.guessed && self.window.is_some() {
            self.losses.insns_of_equal_files += u64::from(insns);
        }
        // A call or return without an address has faulted, and is tried again.
        let flow = match (block.kind, running.call, running.ret) {
            (Kind::Call, None, _) | (Kind::Ret, _, None) => Flow::Sequential,
            _ => self.flow_after(block, running),
        };
        self.trace_return(true, flow);
        if let Some(thread) = &mut self.current.thread {
            thread.flow = flow;
        }
    }

    /// A thread that comes to user mode for the first time, or with a new program.
    fn begin_program(&mut self, block: &Block) {
        let Some(user) = &mut self.user else { return };
        let current = &mut self.current;
        // The task from before the stream is the agent.
        if current.thread.is_none() {
            current.thread = Some(user.thread(ThreadRole::Agent, 0, None));
        }
        let Some(thread) = &mut current.thread else {
            return;
        };
        // What runs first may be the loader. After that a library's code is not a program,
        // wherever it begins.
        let fresh = thread.exec;
        if thread.exec {
            // The first program of a command goes on from what started it.
            let first =
                thread.part == ThreadRole::Command(1) && thread.programs == 0 && !thread.named;
            if first {
                thread.frames.clear();
                if let Some(tracer) = &mut self.tracer {
                    tracer.leave(&mut current.traces, true, 0);
                }
                thread.flow = Flow::Sequential;
                thread.exec = false;
            } else {
                // What the agent starts, but for the command, is the peer.
                let part = match thread.part {
                    ThreadRole::Agent => ThreadRole::Peer,
                    other => other,
                };
                *thread = user.thread(part, thread.programs + 1, Some(thread.symbol));
                if let Some(tracer) = &mut self.tracer {
                    tracer.give_up(&mut current.traces);
                }
            }
        }
        if let Some(image) = block.starts {
            user.rename(thread, image, fresh);
        }
    }

    /// A task that has been made begins: with the frames of its maker if it is on the same stack.
    fn inherit(&mut self, stack: Option<StackPointer>) {
        let (Some(user), Some(thread)) = (&mut self.user, &mut self.current.thread) else {
            return;
        };
        let frames = mem::take(&mut thread.inherited);
        if stack.is_some_and(|stack| is_forked(&frames, stack.begins)) {
            thread.process = user.process();
            self.replant(frames);
        }
    }

    /// Give the running thread these frames, below its own root; nothing is called.
    pub(super) fn replant(&mut self, frames: Vec<UserFrame>) {
        let mut parent = self.root();
        if let Some(thread) = &mut self.current.thread {
            thread.frames.clear();
        }
        for frame in frames {
            let node = self.node(parent, frame.symbol, frame.why == Why::Jumped);
            if let Some(thread) = &mut self.current.thread {
                thread.frames.push(UserFrame { node, window: 0, ..frame });
            }
            parent = Some(node);
        }
    }

    /// What code does to goroutines.
    pub(super) fn go(&self, symbol: Symbol) -> Go {
        self.user.as_ref().map_or(Go::No, |user| user.go(symbol))
    }

    /// The same for the running function.
    fn user_top(&self) -> Go {
        self.user_frames().last().map_or(Go::No, |f| self.go(f.symbol))
    }

    fn arrive_user(&mut self, flow: Flow, segment: &Segment) -> bool {
        match flow {
            Flow::Call { sp, returns_to } => {
                // Whatever was called further down this stack has been left. Go's stacks are so small
                // that one may be just below another, and it leaves none without a return or a switch.
                let go = self.go(segment.symbol) != Go::No;
                self.drop_user_frames(|s| s == sp || (!go && is_over(s, sp)));
                self.push_user(segment.symbol, Why::Called { sp, returns_to });
                true
            }
            Flow::Ret { sp } => {
                let frames = self.user_frames();
                let found = frames
                    .iter()
                    .rposition(|f| matches!(f.why, Why::Called { sp: s, .. } if s == sp));
                match found {
                    Some(at) => self.pop_user(at),
                    None => self.leave_user(sp, self.go(segment.symbol) != Go::No),
                }
                self.on_user(segment.symbol)
            }
            _ => {
                if !segment.at_entry {
                    self.go_back_to_user(segment.symbol);
                }
                self.on_user(segment.symbol)
            }
        }
    }

    /// Into the middle of a function, by a jump: if it has been called and has not returned, what it called is over, by
    /// `longjmp` or as the handler of a signal.
    pub(super) fn go_back_to_user(&mut self, symbol: Symbol) {
        let frames = self.user_frames();
        let jumped = jumped_from(frames, |f| (f.symbol, f.why), symbol);
        if jumped.is_none()
            && let Some(at) = frames.iter().rposition(|f| f.symbol == symbol)
            && at + 1 < frames.len()
        {
            self.pop_user(at + 1);
        }
    }

    /// Whether code goes on in the middle of a function that is not on the shadow stack, far from what is: a
    /// coroutine that was left before.
    fn switches_stack(&self, flow: Flow, stack: Option<StackPointer>, segment: &Segment) -> bool {
        let frames = self.user_frames();
        if frames.is_empty() || segment.at_entry || self.go(segment.symbol) != Go::No {
            return false;
        }
        let (sp, jumps) = match (flow, stack) {
            (Flow::Ret { sp }, Some(_)) => (sp, false),
            (Flow::Sequential, Some(stack)) => (stack.begins, true),
            _ => return false,
        };
        let is_near = |f: &UserFrame| match f.why {
            Why::Called { sp: at, .. } if at.abs_diff(sp) < COROUTINE_BYTES => true,
            Why::Called { .. } => jumps && f.symbol == segment.symbol,
            _ => f.symbol == segment.symbol,
        };
        !frames.iter().any(is_near)
    }

    /// A return without a call: from a signal's handler, or to an earlier frame.
    fn leave_user(&mut self, sp: u64, go: bool) {
        self.drop_user_frames(|s| !go && is_over(s, sp));
        let frames = self.user_frames();
        let called = frames.iter().rposition(|f| matches!(f.why, Why::Called { .. }));
        self.pop_user(called.map_or(0, |at| at + 1));
    }

    pub(super) fn user_frames(&self) -> &[UserFrame] {
        self.current.thread.as_ref().map_or(&[], |t| t.frames.as_slice())
    }

    /// Without a call: the same function, one that jumped here, or a jump.
    pub(super) fn on_user(&mut self, symbol: Symbol) -> bool {
        let frames = self.user_frames();
        let Some(top) = frames.last() else {
            self.push_user(symbol, Why::Found);
            return true;
        };
        if top.symbol == symbol {
            return false;
        }
        match jumped_from(frames, |f| (f.symbol, f.why), symbol) {
            Some(depth) => self.pop_user(depth),
            None => {
                self.push_user(symbol, Why::Jumped);
                return true;
            }
        }
        false
    }

    /// End frames from the top, down to the lowest for whose call `over` is true.
    fn drop_user_frames(&mut self, over: impl Fn(u64) -> bool) {
        loop {
            let frames = self.user_frames();
            let called = frames.iter().rposition(|f| matches!(f.why, Why::Called { .. }));
            let Some(at) = called else { return };
            match frames[at].why {
                Why::Called { sp, .. } if over(sp) => self.pop_user(at),
                _ => return,
            }
        }
    }

    pub(super) fn push_user(&mut self, symbol: Symbol, why: Why) {
        if self.user_frames().len() >= MAX_FRAMES {
            self.losses.stacks_given_up += 1;
            self.pop_user(0);
        }
        let _ = self.root();
        let parent = self.current.thread.as_ref().and_then(Thread::top);
        let node = self.node(parent, symbol, why == Why::Jumped);
        let mut window = 0;
        if let Some(open) = &mut self.window {
            open.entered += 1;
            window = self.window_number;
        }
        if let Some(thread) = &mut self.current.thread {
            thread.frames.push(UserFrame { symbol, node, why, window });
        }
        if self.tracer.is_some() {
            self.trace_user(symbol, why == Why::Jumped);
        }
    }

    pub(super) fn pop_user(&mut self, depth: usize) {
        self.leave_traces(true, depth);
        let Some(thread) = &mut self.current.thread else {
            return;
        };
        if let Some(open) = &mut self.window {
            let number = self.window_number;
            let ended = thread.frames[depth..].iter().filter(|f| f.window == number);
            open.returned += ended.count() as u64;
        }
        thread.frames.truncate(depth);
    }

    fn charge_user(&mut self, node: NodeId, insns: u32, calls: u32) {
        let context = if self.current.workload { Context::Task } else { Context::OtherTask };
        if let Some(window) = &mut self.window {
            window.add(Direction::Run, context, node, calls, insns);
        }
        self.charge_traces(insns);
        if let Some(sampler) = &mut self.sampler {
            sampler.run(0, insns, &[]);
            if sampler.has_drawn() {
                self.sample_user_code(node);
            }
        }
    }
}
