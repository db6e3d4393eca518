//! Whether the CPU accepts interrupts, by the instructions that run.
//!
//! The stream has no registers, and needs none: `cli` and `sti` are explicit, every gate of Linux on x86
//! clears the flag (arch/x86/kernel/idt.c has interrupt gates only), and so does `syscall`
//! (MSR_SYSCALL_MASK); `iret` restores what was before the entry that it ends, and user code runs with
//! interrupts on. So on arm64, where exceptions mask and `eret` restores (PSTATE.I); the stream reports
//! what `msr daif` does there. `popf` restores what was before the `cli` that it undoes, the last one
//! that is not undone: sections nest. Since Linux 5.12 it is rare, for local_irq_restore() is a test and
//! `sti` (ab234a260b1f).

/// What an instruction does to the flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// `cli`.
    Off,
    /// `sti`.
    On,
    /// `popf`.
    Restore,
}

/// Sections that are open at once; more come from code that never ends any.
const MAX_SECTIONS: usize = 64;

impl Change {
    /// What an instruction does, if anything.
    pub(super) fn decode(code: &[u8]) -> Option<Change> {
        let (last, prefixes) = code.split_last()?;
        let change = match last {
            0xfa => Change::Off,
            0xfb => Change::On,
            0x9d => Change::Restore,
            _ => return None,
        };
        let prefix = |byte: &u8| matches!(byte, 0x66 | 0xf2 | 0xf3 | 0x40..=0x4f);
        prefixes.iter().all(prefix).then_some(change)
    }
}

/// What it was when the kernel was entered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Before {
    on: bool,
    sections: u8,
}

/// The flag, and what it will be restored to.
#[derive(Debug, Default)]
pub(super) struct Interrupts {
    on: bool,
    /// The next instruction is the one behind `sti`.
    shadow: bool,
    /// For each `cli` that is not undone, what was before it.
    sections: Vec<bool>,
    /// `popf` that undoes no `cli`.
    pub(super) unknown: u64,
}

impl Interrupts {
    /// Whether the flag is set.
    pub(super) fn are_on(&self) -> bool {
        self.on
    }

    /// Whether a pending interrupt comes before the next instruction.
    pub(super) fn come(&self) -> bool {
        self.on && !self.shadow
    }

    /// Whether the next instruction is the one behind `sti`.
    pub(super) fn in_shadow(&self) -> bool {
        self.shadow
    }

    /// An instruction has run that leaves the flag alone.
    pub(super) fn pass(&mut self) {
        self.shadow = false;
    }

    /// An instruction has run that changes the flag.
    pub(super) fn change(&mut self, change: Change) {
        self.shadow = false;
        match change {
            Change::Off => {
                if self.sections.len() == MAX_SECTIONS {
                    self.sections.remove(0);
                }
                self.sections.push(self.on);
                self.on = false;
            }
            Change::On => {
                // If they were on, there is no shadow (Intel SDM, STI).
                self.shadow = !self.on;
                self.on = true;
                self.sections.clear();
            }
            Change::Restore => match self.sections.pop() {
                Some(before) => self.on = before,
                None => self.unknown += 1,
            },
        }
    }

    /// The flag's value is known.
    pub(super) fn set(&mut self, on: bool) {
        self.shadow = false;
        self.on = on;
    }

    /// The kernel is entered, from itself or from user mode.
    pub(super) fn enter(&mut self, from_user: bool) -> Before {
        let before = Before {
            on: self.on || from_user,
            // INVARIANT: no more than MAX_SECTIONS.
            sections: self.sections.len() as u8,
        };
        self.on = false;
        self.shadow = false;
        before
    }

    /// The kernel goes back to what was interrupted; if that is not known, to code with interrupts on.
    pub(super) fn leave(&mut self, before: Option<Before>) {
        self.shadow = false;
        match before {
            Some(before) => {
                self.on = before.on;
                self.sections.truncate(before.sections.into());
            }
            None => {
                self.on = true;
                self.sections.clear();
            }
        }
    }

    /// User code runs.
    pub(super) fn user(&mut self) {
        self.leave(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the three instructions are known by their code, and that others which end in
    /// the same byte are not taken for them.
    #[test]
    fn instructions() {
        assert_eq!(Change::decode(&[0xfa]), Some(Change::Off));
        assert_eq!(Change::decode(&[0xfb]), Some(Change::On));
        assert_eq!(Change::decode(&[0x9d]), Some(Change::Restore));
        assert_eq!(Change::decode(&[0x48, 0x9d]), Some(Change::Restore));
        // pushf, hlt, mov $0xfb,%al, sub $0x..fa,%rsp.
        for other in [&[0x9c][..], &[0xf4], &[0xb0, 0xfb], &[0x48, 0x83, 0xec, 0xfa], &[]] {
            assert_eq!(Change::decode(other), None, "{other:x?}");
        }
    }

    /// Check that sections nest: what undoes an inner one leaves them off, what undoes the
    /// outer one turns them on, and `sti` ends all.
    #[test]
    fn sections_nest() {
        let mut flag = Interrupts::default();
        flag.user();
        for change in [Change::Off, Change::Off, Change::Restore] {
            flag.change(change);
            assert!(!flag.are_on());
        }
        flag.change(Change::Restore);
        assert!(flag.come());
        flag.change(Change::Off);
        flag.change(Change::Off);
        flag.change(Change::On);
        assert!(flag.are_on() && !flag.come());
        flag.pass();
        assert!(flag.come());
        // There is nothing to undo.
        flag.change(Change::Restore);
        assert!(flag.are_on());
        assert_eq!(flag.unknown, 1);
    }

    /// Check that an interrupt gives back what it found, whatever it did.
    #[test]
    fn entries_and_their_ends() {
        let mut flag = Interrupts::default();
        let outer = flag.enter(true);
        assert!(!flag.are_on());
        flag.change(Change::On);
        flag.pass();
        flag.change(Change::Off);
        // A fault where they are off.
        let inner = flag.enter(false);
        flag.change(Change::On);
        flag.leave(Some(inner));
        assert!(!flag.are_on());
        flag.change(Change::Off);
        flag.change(Change::Restore);
        assert!(!flag.are_on());
        flag.leave(Some(outer));
        assert!(flag.come());
        flag.leave(None);
        assert!(flag.come());
    }

    /// Check that `cli` without end does not take all memory.
    #[test]
    fn endless_sections() {
        let mut flag = Interrupts::default();
        for _ in 0..10_000 {
            flag.change(Change::Off);
        }
        assert_eq!(flag.sections.len(), MAX_SECTIONS);
    }
}
