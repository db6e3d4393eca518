//! Traced calls: what the accounting reports to them.

use netplumb_kernel::prototype::REGISTERS;
use netplumb_model::class::{Context, Softirq};

use super::super::frame::Flow;
use super::super::trace::{Entered, TracedCalls, returned};
use super::super::tree::Symbol;
use super::super::user::{ThreadRole, User};
use super::Accountant;

impl Accountant<'_> {
    /// Registers at the beginning of the running block.
    pub(super) fn take_arguments(&mut self, checked: bool, registers: [u64; REGISTERS]) {
        self.registers.proven |= checked;
        // A jump stores no return address to check by: the first call after it proves them, too.
        if !self.registers.proven {
            self.losses.unchecked_arguments += 1;
        }
        self.registers.arguments = Some(registers);
    }

    /// How the running block ends.
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
        if part == Some(ThreadRole::Agent) && entered.context == Some(Context::OtherTask) {
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

    /// The running code goes on elsewhere, or later: its calls' ends are not seen.
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
