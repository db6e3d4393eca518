//! Records of the programs' ring.

use netplumb_sys::plain::Plain;

use super::layout::{
    Crossed, FOREIGN, IDLE, KIND_COPY, KIND_COPY_OF_WAIT, KIND_CROSSED, KIND_STACK, KIND_TIME,
    KIND_WAIT, KIND_WAITED, Stack, Time, UserStack, Wait, Waited,
};

/// Who was on the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Who {
    /// Nobody: the idle task.
    Idle,
    /// A task of this process (thread group), by its number in our namespace.
    Process(u32),
    /// A task that has no number in our namespace.
    Foreign,
}

/// What alike samples share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// How it is counted.
    pub(super) hash: u64,
    /// When it was reported.
    pub(super) time_ns: u64,
    /// Whose task was on the CPU; an interrupt may have been on top of it.
    pub(super) who: Who,
    /// The name of that task.
    pub(super) name: String,
    /// Whether it was user code.
    pub(super) user: bool,
    /// Addresses of the kernel's code, where it was first, who called that next; empty for
    /// user code, and where the stack is not known.
    pub(super) kernel: Vec<u64>,
    /// The same of user code, if that is sampled.
    pub(super) frames: Vec<u64>,
}

/// A copy of a user stack, with the registers that are needed to unwind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Copied {
    /// How its sample is counted, or the stack that waits.
    pub(super) hash: u64,
    /// When it was taken: when the wait began.
    pub(super) time_ns: u64,
    /// The thread that waits, if the copy is a wait's.
    pub(super) waits: Option<u32>,
    pub(super) ip: u64,
    pub(super) sp: u64,
    pub(super) fp: u64,
    /// The return address that is in a register, where calls leave it in one.
    pub(super) lr: u64,
    /// The address of the first byte.
    pub(super) from: u64,
    pub(super) bytes: Vec<u8>,
}

/// All that has arrived.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Arrived {
    pub(super) places: Vec<Place>,
    pub(super) times: Vec<Time>,
    pub(super) waits: Vec<Wait>,
    pub(super) crossed: Vec<Crossed>,
    pub(super) waited: Vec<Waited>,
    pub(super) copies: Vec<Copied>,
}

impl Arrived {
    /// Add a record.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        let kind = bytes.first_chunk().map(|kind| u32::from_ne_bytes(*kind));
        match kind.unwrap_or_default() as usize {
            KIND_STACK => self.places.extend(place(bytes)),
            KIND_COPY | KIND_COPY_OF_WAIT => self.copies.extend(copied(bytes)),
            KIND_TIME => self.times.extend(Time::read(bytes)),
            KIND_WAIT => self.waits.extend(Wait::read(bytes)),
            KIND_CROSSED => self.crossed.extend(Crossed::read(bytes)),
            KIND_WAITED => self.waited.extend(Waited::read(bytes)),
            _ => {}
        }
    }
}

/// A name as the kernel has it.
pub(super) fn name(bytes: &[u8]) -> String {
    let name = bytes.split(|byte| *byte == 0).next();
    String::from_utf8_lossy(name.unwrap_or_default()).into_owned()
}

fn place(bytes: &[u8]) -> Option<Place> {
    let stack = Stack::read(bytes)?;
    let rest = bytes.get(size_of::<Stack>()..)?;
    let (kernel, user) = (usize::from(stack.kernel), usize::from(stack.user));
    let words: Vec<u64> = (rest.chunks_exact(8).take(kernel + user))
        .filter_map(|word| Some(u64::from_ne_bytes(word.try_into().ok()?)))
        .collect();
    let (kernel, frames) = words.split_at_checked(kernel)?;
    Some(Place {
        hash: stack.hash,
        time_ns: stack.time_ns,
        who: match stack.tgid {
            IDLE => Who::Idle,
            FOREIGN => Who::Foreign,
            tgid => Who::Process(tgid),
        },
        name: name(&stack.name),
        user: stack.in_user != 0,
        kernel: kernel.to_vec(),
        frames: frames.to_vec(),
    })
}

fn copied(bytes: &[u8]) -> Option<Copied> {
    let stack = UserStack::read(bytes)?;
    let rest = bytes.get(size_of::<UserStack>()..)?;
    let count = usize::try_from(stack.bytes).ok()?;
    Some(Copied {
        hash: stack.hash,
        time_ns: stack.time_ns,
        waits: (stack.kind as usize == KIND_COPY_OF_WAIT).then_some(stack.tid),
        ip: stack.ip,
        sp: stack.sp,
        fp: stack.fp,
        lr: stack.lr,
        from: stack.from,
        bytes: rest.get(..count)?.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check what a record of a stack means, and that one that is cut short means nothing.
    #[test]
    fn stacks() {
        let stack = Stack {
            kind: KIND_STACK as u32,
            tgid: 42,
            hash: 7,
            kernel: 2,
            user: 1,
            name: *b"reader-1\0garbage",
            ..Stack::default()
        };
        let mut bytes = stack.bytes().to_vec();
        for address in [0xffff_ffff_8100_0001_u64, 0xffff_ffff_8100_0002, 0x40_0000] {
            bytes.extend(address.to_ne_bytes());
        }
        let place = place(&bytes).unwrap();
        assert_eq!((place.who, place.name.as_str()), (Who::Process(42), "reader-1"));
        assert_eq!((place.kernel.len(), &place.frames[..]), (2, &[0x40_0000][..]));
        assert!(super::place(&bytes[..40]).is_none());
        let mut arrived = Arrived::default();
        arrived.take(&bytes);
        arrived.take(&bytes[..3]);
        assert_eq!(arrived.places, [place]);
        bytes[4..8].copy_from_slice(&[0xff; 4]);
        arrived.take(&bytes);
        assert_eq!(arrived.places[1].who, Who::Foreign);
    }
}
