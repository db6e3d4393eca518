//! The plugin's stream, word by word: the twin of plugins/qemu/exact.h.

use std::io::{self, Read};

use netplumb_kernel::prototype::REGISTERS;

use netplumb_model::arch::Arch;
use netplumb_model::class::Direction;

use super::interrupts::Change;

/// EXACT_STREAM_VERSION.
const VERSION: u32 = 6;
/// A block has at most 512 instructions of 15 bytes, and a size byte each.
const MAX_BLOCK_WORDS: usize = 512 * 16 / 4;
/// EXACT_USER_HALF: an address is below the kernel's half.
const USER_HALF: u32 = 0x1_0000;
/// EXACT_TEXT_BYTES: longer texts are cut.
pub(crate) const MAX_TEXT_BYTES: usize = 64;
/// EXACT_LOSS_REGISTERS.
const LOSS_REGISTERS: u32 = 2;

/// Why the rest of a stream can't be read.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The pipe failed.
    #[error("reading the plugin's stream: {0}")]
    Io(#[from] io::Error),
    /// It is not from this plugin, or of another version.
    #[error("the plugin's stream is damaged: {0}")]
    Damaged(String),
}

/// What the workload marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Counting starts.
    Arm,
    /// A window opens.
    WindowBegin,
    /// It closes.
    WindowEnd,
    /// This task sends.
    TxBegin,
    /// It has sent.
    TxEnd,
    /// This task receives.
    RxBegin,
    /// It has received.
    RxEnd,
    /// The window of a command opens, in its first task.
    RunBegin,
    /// From here on, packets and marked system calls belong to this; to their own directions if none.
    Phase(Option<Direction>),
}

impl Mark {
    fn from_number(n: u32) -> Option<Mark> {
        Some(match n {
            1 => Mark::Arm,
            2 => Mark::WindowBegin,
            3 => Mark::WindowEnd,
            4 => Mark::TxBegin,
            5 => Mark::TxEnd,
            6 => Mark::RxBegin,
            7 => Mark::RxEnd,
            8 => Mark::RunBegin,
            15 => Mark::Phase(Some(Direction::Connect)),
            16 => Mark::Phase(Some(Direction::Accept)),
            17 => Mark::Phase(Some(Direction::Close)),
            18 => Mark::Phase(Some(Direction::Reply)),
            19 => Mark::Phase(None),
            _ => return None,
        })
    }
}

/// How a block's last instruction leaves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Falls through, or jumps.
    Other,
    /// Calls.
    Call,
    /// Returns.
    Ret,
    /// Returns from an interrupt or exception.
    Iret,
    /// Returns from a system call.
    Sysret,
}

/// The stack pointer of user mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackPointer {
    /// Where a function that begins here finds its return address, or what identifies its call
    /// where calls store none.
    pub begins: u64,
    /// The same of a call that has just returned here.
    pub returned: u64,
    /// The register in which Go keeps the running goroutine's address.
    pub goroutine: u64,
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// The code of a block that is about to run for the first time.
    Block {
        /// By which [`Record::Exec`] refers to it.
        id: u32,
        /// Its first instruction.
        address: u64,
        /// How it ends.
        kind: Kind,
        /// Size of each instruction, bytes.
        sizes: Vec<u8>,
        /// The instructions, one after the other.
        code: Vec<u8>,
        /// Instructions that change whether interrupts come, by their numbers.
        changes: Vec<(u16, Change)>,
    },
    /// The code of a block of user mode.
    UserBlock {
        /// Its number, in one row with the kernel's.
        id: u32,
        /// Its first instruction.
        address: u64,
        /// How it ends.
        kind: Kind,
        /// Size of each instruction, bytes.
        sizes: Vec<u8>,
        /// The instructions, one after the other.
        code: Vec<u8>,
        /// Hash of the page that it begins in ([`crate::image::page_hash`]); 0 if
        /// that could not be read.
        page: u64,
        /// The number of that page's frame; 0 if it is not known.
        frame: u32,
    },
    /// Watched kernel code stored something there.
    Store(u64),
    /// A block runs.
    Exec(u32),
    /// Only this number of the previous block's instructions ran.
    Partial(u32),
    /// A call stored its return address at this stack address or, where calls store none, left the
    /// stack pointer there.
    Call(u64),
    /// A return read its address from there, or left it there.
    Ret(u64),
    /// The stack pointer at the beginning of the running block of user mode, where it may have moved.
    Stack(StackPointer),
    /// User mode runs.
    User,
    /// A marker was executed, with the user instructions so far.
    Mark(Mark, u64),
    /// Registers of arguments at the beginning of the running block.
    Arguments {
        /// Whether the stack pointer was where a call before it had stored its return address.
        checked: bool,
        /// Their values, in the order of arguments.
        registers: [u64; REGISTERS],
    },
    /// Whether interrupts are masked behind the block that ran, where its code does not show it.
    Masked(bool),
    /// The text that a register of arguments points to, by its number; at most 64 bytes.
    Text(u8, Vec<u8>),
    /// The return value, of the return that ends the running block.
    Returned(u64),
    /// The number of addresses that the plugin could not use.
    Loss(u32),
    /// QEMU does not export what is necessary to read registers.
    NoRegisters,
}

/// Decodes a stream.
#[derive(Debug)]
pub struct StreamReader<R> {
    source: R,
    buffer: Vec<u8>,
    at: usize,
    filled: usize,
    greeted: bool,
    arch: Arch,
    /// Blocks described so far; they are numbered in turn.
    blocks: u32,
}

impl<R: Read> StreamReader<R> {
    /// A reader of what the plugin writes.
    pub fn new(source: R) -> Self {
        StreamReader {
            source,
            buffer: vec![0; 1 << 18],
            at: 0,
            filled: 0,
            greeted: false,
            arch: Arch::X86_64,
            blocks: 0,
        }
    }

    /// A word, or none at the end of the stream.
    fn word(&mut self) -> Result<Option<u32>, StreamError> {
        while self.filled - self.at < 4 {
            self.buffer.copy_within(self.at..self.filled, 0);
            self.filled -= self.at;
            self.at = 0;
            match self.source.read(&mut self.buffer[self.filled..]) {
                Ok(0) if self.filled == 0 => return Ok(None),
                Ok(0) => return Err(StreamError::Damaged("it ends within a word".into())),
                Ok(n) => self.filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        let mut four = [0; 4];
        four.copy_from_slice(&self.buffer[self.at..self.at + 4]);
        self.at += 4;
        Ok(Some(u32::from_le_bytes(four)))
    }

    fn need(&mut self) -> Result<u32, StreamError> {
        self.word()?.ok_or_else(|| StreamError::Damaged("it ends within a record".into()))
    }

    /// The next record, or none at the end of the stream.
    ///
    /// # Errors
    /// The pipe failed, or its contents are damaged.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator of results would make every caller flatten them"
    )]
    pub fn next(&mut self) -> Result<Option<Record>, StreamError> {
        loop {
            let Some(word) = self.word()? else {
                return Ok(None);
            };
            let (kind, payload) = ((word >> 24) & 0x7f, word & 0x00ff_ffff);
            let runs = word >> 31 == 0;
            if !self.greeted && (runs || kind != 1) {
                return Err(StreamError::Damaged("it does not begin with a header".into()));
            }
            if runs && word >= self.blocks {
                return Err(StreamError::Damaged(format!(
                    "block {word} ran, but was not described"
                )));
            }
            if runs {
                return Ok(Some(Record::Exec(word)));
            }
            return Ok(Some(match kind {
                1 if payload & 0xffff == VERSION => {
                    self.arch = match payload >> 16 {
                        0 => Arch::X86_64,
                        1 => Arch::Arm64,
                        other => {
                            return Err(StreamError::Damaged(format!("architecture {other}")));
                        }
                    };
                    self.greeted = true;
                    continue;
                }
                1 => {
                    return Err(StreamError::Damaged(format!(
                        "its version is {}, not {VERSION}",
                        payload & 0xffff
                    )));
                }
                2 => self.block(payload as usize, false)?,
                3 => Record::Partial(payload),
                4 => Record::Call(self.stack_address(payload)?),
                5 => Record::Ret(self.stack_address(payload)?),
                6 => Record::User,
                7 => {
                    let user_insns = self.number()?;
                    match Mark::from_number(payload) {
                        Some(mark) => Record::Mark(mark, user_insns),
                        None => continue,
                    }
                }
                8 => match (payload, self.need()?) {
                    (LOSS_REGISTERS, _) => Record::NoRegisters,
                    (_, count) => Record::Loss(count),
                },
                9 => self.block(payload as usize, true)?,
                10 => Record::Store(self.stack_address(payload)?),
                11 => {
                    let mut registers = [0; REGISTERS];
                    for register in &mut registers {
                        *register = self.number()?;
                    }
                    Record::Arguments { checked: payload != 0, registers }
                }
                13 => self.text(payload)?,
                12 => Record::Returned(self.number()?),
                14 => Record::Masked(payload != 0),
                15 => {
                    let begins = self.stack_address(payload | USER_HALF)?;
                    let stored = match self.arch {
                        Arch::X86_64 => 8,
                        Arch::Arm64 => 0,
                    };
                    Record::Stack(StackPointer {
                        begins,
                        returned: begins.wrapping_sub(stored),
                        goroutine: self.number()?,
                    })
                }
                other => return Err(StreamError::Damaged(format!("a record of type {other}"))),
            }));
        }
    }

    fn text(&mut self, payload: u32) -> Result<Record, StreamError> {
        let (register, length) = (payload >> 16, (payload & 0xffff) as usize);
        if register as usize >= REGISTERS || length > MAX_TEXT_BYTES {
            return Err(StreamError::Damaged(format!(
                "a text of {length} bytes in register {register}"
            )));
        }
        let mut bytes = Vec::with_capacity(MAX_TEXT_BYTES);
        while bytes.len() < length {
            bytes.extend(self.need()?.to_le_bytes());
        }
        bytes.truncate(length);
        Ok(Record::Text(register as u8, bytes))
    }

    /// A number of two words.
    fn number(&mut self) -> Result<u64, StreamError> {
        Ok(u64::from(self.need()?) | u64::from(self.need()?) << 32)
    }

    fn stack_address(&mut self, high: u32) -> Result<u64, StreamError> {
        let low = u64::from(self.need()?);
        let half = if high & USER_HALF == 0 { 0xffff << 48 } else { 0 };
        Ok(half | u64::from(high & 0xffff) << 32 | low)
    }

    fn block(&mut self, words: usize, user: bool) -> Result<Record, StreamError> {
        let before = if user { 7 } else { 4 };
        if !(before..=before + MAX_BLOCK_WORDS).contains(&words) {
            return Err(StreamError::Damaged(format!("a block of {words} words")));
        }
        let id = self.need()?;
        if id != self.blocks {
            return Err(StreamError::Damaged(format!("block {id} where {} was next", self.blocks)));
        }
        let address = self.number()?;
        let shape = self.need()?;
        let count = (shape & 0xffff) as usize;
        let page = if user { self.number()? } else { 0 };
        let frame = if user { self.need()? } else { 0 };
        let mut bytes = Vec::with_capacity((words - before) * 4);
        for _ in before..words {
            bytes.extend_from_slice(&self.need()?.to_le_bytes());
        }
        let kind = match shape >> 16 {
            0 => Kind::Other,
            1 => Kind::Call,
            2 => Kind::Ret,
            3 => Kind::Iret,
            4 => Kind::Sysret,
            other => {
                return Err(StreamError::Damaged(format!("an instruction of kind {other}")));
            }
        };
        if count == 0 || count > bytes.len() {
            return Err(StreamError::Damaged(format!("a block of {count} instructions")));
        }
        let mut code = bytes.split_off(count);
        let sizes = bytes;
        let length: usize = sizes.iter().copied().map(usize::from).sum();
        if code.len() < length {
            return Err(StreamError::Damaged(format!(
                "a block of {length} bytes with {} of them",
                code.len()
            )));
        }
        code.truncate(length);
        self.blocks += 1;
        Ok(if user {
            Record::UserBlock { id, address, kind, sizes, code, page, frame }
        } else {
            Record::Block {
                id,
                address,
                kind,
                changes: changes(self.arch, &sizes, &code),
                sizes,
                code,
            }
        })
    }
}

/// The instructions of a block that change whether interrupts come. On arm64 the plugin reports it,
/// in [`Record::Masked`]: what is restored there is in a register.
fn changes(arch: Arch, sizes: &[u8], code: &[u8]) -> Vec<(u16, Change)> {
    if arch != Arch::X86_64 {
        return Vec::new();
    }
    let mut rest = code;
    let mut changes = Vec::new();
    // A block has at most 512 instructions.
    for (number, size) in (0..).zip(sizes) {
        let Some((insn, after)) = rest.split_at_checked(usize::from(*size)) else {
            break;
        };
        changes.extend(Change::decode(insn).map(|change| (number, change)));
        rest = after;
    }
    changes
}
