//! Goroutines: which frames a thread has while one runs on it.
//!
//! `runtime.mcall` saves where its goroutine goes on, and calls a function of the scheduler on the
//! thread's own stack, which does not return; `runtime.gogo` loads the stack pointer of a goroutine,
//! and jumps to where it goes on. `runtime.morestack` saves the same for a stack that is too small,
//! which `runtime.copystack` moves, and `gogo` jumps back (Go's runtime/asm_*.s and runtime/stack.go).

use std::mem;

use super::super::block::Segment;
use super::super::frame::Why;
use super::super::stream::StackPointer;
use super::super::user::{Parked, UserFrame};
use super::Accountant;

/// The frame whose call returns to an address.
fn returning(frames: &[UserFrame], to: u64) -> Option<usize> {
    frames.iter().rposition(|f| matches!(f.why, Why::Called { returns_to, .. } if returns_to == to))
}

impl Accountant<'_> {
    /// The running goroutine is left for the scheduler, whose work is not its own.
    pub(super) fn leave_goroutine(&mut self) {
        let (Some(user), Some(thread)) = (&mut self.user, &mut self.current.thread) else {
            return;
        };
        let Some(goroutine) = thread.goroutine.take() else {
            return;
        };
        let parked = Parked { root: thread.symbol, frames: mem::take(&mut thread.frames) };
        user.parked.insert((thread.process, goroutine), parked);
        self.give_up_traces();
    }

    /// A goroutine goes on, or begins, at an address on its stack. Returns whether a function was entered.
    pub(super) fn resume_goroutine(
        &mut self,
        stack: StackPointer,
        segment: &Segment,
        address: u64,
    ) -> bool {
        let current = (self.current.thread.as_ref()).and_then(|thread| thread.goroutine);
        if current != Some(stack.goroutine) {
            // A thread's own frames are not returned to: the scheduler begins anew.
            match current {
                Some(_) => self.leave_goroutine(),
                None => self.pop_user(0),
            }
            self.take_goroutine(stack.goroutine, address);
        }
        let Some(at) = returning(self.user_frames(), address) else {
            if segment.at_entry {
                self.pop_user(0);
                let why = Why::Called { sp: stack.begins, returns_to: 0 };
                self.push_user(segment.symbol, why);
                return true;
            }
            // As after a panic.
            self.go_back_to_user(segment.symbol);
            return self.on_user(segment.symbol);
        };
        let saved = match self.user_frames()[at].why {
            Why::Called { sp, .. } => sp,
            _ => stack.returned,
        };
        self.pop_user(at);
        let moved = stack.returned.wrapping_sub(saved);
        let thread = self.current.thread.as_mut();
        for frame in thread.into_iter().flat_map(|thread| &mut thread.frames) {
            if let Why::Called { sp, .. } = &mut frame.why {
                *sp = sp.wrapping_add(moved);
            }
        }
        self.on_user(segment.symbol)
    }

    /// The running thread has the frames of this goroutine.
    fn take_goroutine(&mut self, goroutine: u64, address: u64) {
        let (Some(user), Some(thread)) = (&mut self.user, &mut self.current.thread) else {
            return;
        };
        thread.goroutine = Some(goroutine);
        let process = thread.process;
        let parked = user.parked.remove(&(process, goroutine)).or_else(|| {
            // It was preempted: the thread that ran it is in the scheduler, above its frames.
            let threads = self.others.values_mut().filter_map(|task| task.thread.as_mut());
            let mut of = threads.filter(|t| t.process == process);
            let ran = of.find(|t| t.goroutine == Some(goroutine))?;
            ran.goroutine = None;
            let above = returning(&ran.frames, address).map_or(0, |at| at + 1);
            let scheduler = ran.frames.split_off(above);
            let frames = mem::replace(&mut ran.frames, scheduler);
            let root = ran.symbol;
            Some(Parked { root, frames })
        });
        match parked {
            Some(parked) if parked.root == thread.symbol => thread.frames = parked.frames,
            Some(parked) => self.replant(parked.frames),
            None => {}
        }
    }
}
