//! Traced calls: what of the accounting they are told.

use netplumb_kernel::prototype::REGISTERS;
use netplumb_model::class::{Context, Softirq};

use super::super::frame::Flow;
use super::super::stream::MAX_TEXT_BYTES;
use super::super::trace::{Entered, TracedCalls, returned};
use super::super::tree::Symbol;
use super::super::user::{Part, User};
use super::{Accountant, Losses};

/// What registers held at the block that runs.
#[derive(Debug, Default)]
pub(super) struct Registers {
    /// Where it began, if a call or a jump may have led there.
    arguments: Option<[u64; REGISTERS]>,
    /// What they point to, of some that are texts.
    texts: Vec<(u8, String)>,
    /// At the return that ends it.
    pub(super) returned: Option<u64>,
    /// They have been right at a call: the stack pointer was.
    proven: bool,
}

impl Registers {
    /// The next block runs.
    pub(super) fn clear(&mut self) {
        (self.arguments, self.returned) = (None, None);
        self.texts.clear();
    }

    /// Whether none of those that were read could be checked.
    pub(super) fn is_wrong(&self, losses: &Losses) -> bool {
        losses.unchecked_arguments > 0 && !self.proven
    }

    /// A register points to this text.
    pub(super) fn text(&mut self, register: u8, bytes: &[u8]) {
        let mut text = String::from_utf8_lossy(bytes).into_owned();
        if bytes.len() == MAX_TEXT_BYTES {
            text.push('\u{2026}');
        }
        self.texts.push((register, text));
    }

    /// A part of the block runs: arguments are where a function begins with the block.
    pub(super) fn at(&mut self, part: usize, at_entry: bool) {
        if part > 0 || !at_entry {
            self.arguments = None;
        }
    }
}

impl Accountant<'_> {
    /// Registers when the block that runs began.
    pub(super) fn take_arguments(&mut self, checked: bool, registers: [u64; REGISTERS]) {
        self.registers.proven |= checked;
        // A jump stores no return address to check by: the first call after it proves them as well.
        if !self.registers.proven {
            self.losses.unchecked_arguments += 1;
        }
        self.registers.arguments = Some(registers);
    }

    /// The block that runs ends like this.
    pub(super) fn trace_return(&mut self, user: bool, flow: Flow) {
        if let (Flow::Ret { .. }, Some(value)) = (flow, self.registers.returned) {
            returned(&mut self.current.traces, user, value);
        }
    }

    /// A window opens.
    pub(super) fn begin_traces(&mut self) {
        let Some(tracer) = &mut self.tracer else {
            return;
        };
        self.current.traces.clear();
        for task in self.others.values_mut() {
            task.traces.clear();
        }
        tracer.begin();
    }

    /// It closes.
    pub(super) fn end_traces(&mut self) -> Option<TracedCalls> {
        let tracer = self.tracer.as_mut()?;
        tracer.give_up(&mut self.current.traces);
        for task in self.others.values_mut() {
            tracer.give_up(&mut task.traces);
        }
        Some(tracer.end())
    }

    /// Instructions ran in the function that was entered last.
    pub(super) fn charge_traces(&mut self, insns: u32) {
        if let Some(tracer) = &mut self.tracer {
            tracer.charge(&mut self.current.traces, insns);
        }
    }

    /// The frame on top of the kernel's stack is new.
    pub(super) fn trace_kernel(
        &mut self,
        symbol: Symbol,
        jumped: bool,
        aside: bool,
        vector: Option<Softirq>,
        context: Option<Context>,
    ) {
        let level = self.current.frames.len() - 1;
        self.trace(Entered {
            symbol,
            user: false,
            level,
            jumped,
            aside,
            vector,
            context,
            thread: None,
            arguments: None,
        });
    }

    /// The function on top of the thread's user stack is new.
    pub(super) fn trace_user(&mut self, symbol: Symbol, jumped: bool) {
        let frames = self.current.thread.as_ref().map_or(0, |t| t.frames.len());
        let context = match self.current.workload {
            true => Context::Task,
            false => Context::OtherTask,
        };
        self.trace(Entered {
            symbol,
            user: true,
            level: frames.saturating_sub(1),
            jumped,
            aside: false,
            vector: None,
            context: Some(context),
            thread: None,
            arguments: None,
        });
    }

    fn trace(&mut self, entered: Entered) {
        // System calls of plumb's agent are not the command's; interrupts that come meanwhile are counted.
        let part = self.current.thread.as_ref().map(|thread| thread.part);
        if part == Some(Part::Agent) && entered.context == Some(Context::OtherTask) {
            self.registers.arguments = None;
            return;
        }
        let Some(tracer) = &mut self.tracer else {
            return;
        };
        let entered = Entered {
            thread: self.current.thread.as_ref().map(|thread| thread.symbol),
            arguments: self.registers.arguments.take(),
            ..entered
        };
        let user = self.user.as_deref().map_or(&[][..], User::symbols);
        let texts = &self.registers.texts;
        tracer.enter(&mut self.current.traces, &entered, texts, user);
    }

    /// What runs goes on elsewhere, or another time: its calls are not seen to their ends.
    pub(super) fn give_up_traces(&mut self) {
        if let Some(tracer) = &mut self.tracer {
            tracer.give_up(&mut self.current.traces);
        }
    }

    /// Frames from `level` on one of the stacks are about to end.
    pub(super) fn leave_traces(&mut self, user: bool, level: usize) {
        if let Some(tracer) = &mut self.tracer
            && !self.current.traces.is_empty()
        {
            tracer.leave(&mut self.current.traces, user, level);
        }
    }
}
