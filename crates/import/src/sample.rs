//! Samples, as the kernel lays them out (`perf_output_sample` in kernel/events/core.c).
//!
//! They are not left to `linux-perf-event-reader`: version 0.10.2 takes a group's values for a single event's and vice
//! versa, and does not know PERF_FORMAT_LOST, so whatever follows them in a sample is read from the wrong place.

use linux_perf_data::linux_perf_event_reader::CpuMode;

use crate::bytes::{u32_at, u64_at};

/// Bits of `sample_type` (enum perf_event_sample_format).
const IP: u64 = 1;
const TID: u64 = 1 << 1;
const TIME: u64 = 1 << 2;
const ADDR: u64 = 1 << 3;
const READ: u64 = 1 << 4;
const CALLCHAIN: u64 = 1 << 5;
const ID: u64 = 1 << 6;
const CPU: u64 = 1 << 7;
const PERIOD: u64 = 1 << 8;
const STREAM_ID: u64 = 1 << 9;
const RAW: u64 = 1 << 10;
const BRANCH_STACK: u64 = 1 << 11;
const IDENTIFIER: u64 = 1 << 16;
/// Bits of `read_format` (enum perf_event_read_format).
const TIME_ENABLED: u64 = 1;
const TIME_RUNNING: u64 = 1 << 1;
const READ_ID: u64 = 1 << 2;
const GROUP: u64 = 1 << 3;
const LOST: u64 = 1 << 4;
/// Bits of `branch_sample_type` (enum perf_branch_sample_type).
const CALL_STACK: u64 = 1 << 11;
const HW_INDEX: u64 = 1 << 17;
/// The bit of an attribute's flags for measuring new threads, too.
const INHERIT: u64 = 1 << 1;
/// The most frames of a stack, if the attribute has none (`sysctl kernel.perf_event_max_stack`).
const MAX_STACK: u16 = 127;
/// From where a branch was taken, where to, and how it was predicted.
const BRANCH_WORDS: usize = 3;
const WORD: usize = 8;

/// What samples of an event have, by its attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    kind: u32,
    config: u64,
    sample_type: u64,
    read_format: u64,
    branch_type: u64,
    flags: u64,
    max_stack: u16,
}

impl Layout {
    /// By a `struct perf_event_attr`; missing fields are zero.
    pub(crate) fn from_attr(attr: &[u8]) -> Layout {
        let max_stack = attr.get(108..).and_then(|rest| rest.first_chunk());
        let max_stack = max_stack.map_or(0, |bytes| u16::from_le_bytes(*bytes));
        Layout {
            kind: u32_at(attr, 0),
            config: u64_at(attr, 8),
            sample_type: u64_at(attr, 24),
            read_format: u64_at(attr, 32),
            flags: u64_at(attr, 40),
            branch_type: u64_at(attr, 72),
            max_stack: if max_stack == 0 { MAX_STACK } else { max_stack },
        }
    }

    /// The type and configuration of the event.
    pub(crate) fn event(&self) -> (u32, u64) {
        (self.kind, self.config)
    }

    /// The most frames that the kernel takes of a stack.
    pub(crate) fn max_stack(&self) -> usize {
        self.max_stack.into()
    }

    /// Whether each thread has counters of its own.
    pub(crate) fn is_inherited(&self) -> bool {
        self.flags & INHERIT != 0
    }

    /// Whether the branches are callers in user code (`--call-graph lbr`).
    pub(crate) fn branches_are_callers(&self) -> bool {
        self.sample_type & BRANCH_STACK != 0 && self.branch_type & CALL_STACK != 0
    }

    /// A sample; none if it is shorter than its fields require.
    pub(crate) fn parse<'a>(&self, misc: u16, body: &'a [u8]) -> Option<Sample<'a>> {
        let has = |bit: u64| self.sample_type & bit != 0;
        let mut rest = Rest(body);
        rest.word_if(has(IDENTIFIER))?;
        let ip = rest.word_if(has(IP))?;
        let task = match has(TID) {
            true => rest.take(WORD)?,
            false => &[0xff; WORD],
        };
        let time_ns = rest.word_if(has(TIME))?;
        rest.word_if(has(ADDR))?;
        rest.word_if(has(ID))?;
        rest.word_if(has(STREAM_ID))?;
        let cpu = rest.word_if(has(CPU))?;
        let period = rest.word_if(has(PERIOD))?;
        let mut values = Values::default();
        if has(READ) {
            values = self.values(&mut rest)?;
        }
        let mut chain = Words(&[]);
        if has(CALLCHAIN) {
            let words = rest.word()?;
            chain = rest.words(words)?;
        }
        if has(RAW) {
            let bytes = u32_at(rest.0, 0) as usize;
            rest.take(bytes.checked_add(4)?)?;
        }
        let mut branches = Words(&[]);
        if has(BRANCH_STACK) {
            let count = rest.word()?;
            rest.word_if(self.branch_type & HW_INDEX != 0)?;
            branches = rest.words(count.checked_mul(BRANCH_WORDS as u64)?)?;
        }
        Some(Sample {
            mode: CpuMode::from_misc(misc),
            ip,
            pid: u32_at(task, 0) as i32,
            tid: u32_at(task, 4) as i32,
            time_ns,
            cpu: cpu.map(|cpu| cpu as u32),
            period,
            values,
            chain: has(CALLCHAIN).then_some(chain),
            branches,
        })
    }

    /// The values of counters (`perf_output_read`).
    fn values<'a>(&self, rest: &mut Rest<'a>) -> Option<Values<'a>> {
        let has = |bit: u64| self.read_format & bit != 0;
        let words = 1 + usize::from(has(READ_ID)) + usize::from(has(LOST));
        let times = u64::from(has(TIME_ENABLED)) + u64::from(has(TIME_RUNNING));
        // A group begins with its number of values, and one value has its times in its middle.
        let first = rest.word()?;
        rest.words(times)?;
        let (group, single) = match has(GROUP) {
            true => (rest.words(first.checked_mul(words as u64)?)?, None),
            false => {
                let id = rest.words(words as u64 - 1)?;
                (Words(&[]), Some((id.get(0), first)))
            }
        };
        let known = has(READ_ID);
        Some(Values {
            group: if known { group } else { Words(&[]) },
            words,
            single: single.filter(|_| known),
        })
    }
}

/// A decoded PERF_RECORD_SAMPLE.
#[derive(Debug)]
pub(crate) struct Sample<'a> {
    pub(crate) mode: CpuMode,
    pub(crate) ip: Option<u64>,
    pub(crate) pid: i32,
    pub(crate) tid: i32,
    pub(crate) time_ns: Option<u64>,
    pub(crate) cpu: Option<u32>,
    pub(crate) period: Option<u64>,
    pub(crate) values: Values<'a>,
    /// Its stack, the innermost first, with marks where the kernel's part begins.
    pub(crate) chain: Option<Words<'a>>,
    branches: Words<'a>,
}

impl Sample<'_> {
    /// The instructions that branched, the last first.
    pub(crate) fn branches(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.branches.len() / BRANCH_WORDS).map(|n| self.branches.get(n * BRANCH_WORDS))
    }
}

/// Values of counters, with the IDs of their events.
#[derive(Debug, Default)]
pub(crate) struct Values<'a> {
    group: Words<'a>,
    /// Words of each of a group.
    words: usize,
    single: Option<(u64, u64)>,
}

impl Values<'_> {
    /// Event and value.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let count = self.group.len().checked_div(self.words).unwrap_or_default();
        let at = |n: usize| (self.group.get(n * self.words + 1), self.group.get(n * self.words));
        self.single.into_iter().chain((0..count).map(at))
    }
}

/// Numbers of 64 bits.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Words<'a>(&'a [u8]);

impl Words<'_> {
    pub(crate) fn len(&self) -> usize {
        self.0.len() / WORD
    }

    fn get(&self, n: usize) -> u64 {
        u64_at(self.0, n * WORD)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.len()).map(|n| self.get(n))
    }
}

/// The unread rest of a record.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn word(&mut self) -> Option<u64> {
        self.take(WORD).map(|word| u64_at(word, 0))
    }

    /// A word that is there or not; none if it is missing.
    fn word_if(&mut self, there: bool) -> Option<Option<u64>> {
        match there {
            true => self.word().map(Some),
            false => Some(None),
        }
    }

    fn words(&mut self, count: u64) -> Option<Words<'a>> {
        let bytes = usize::try_from(count).ok()?.checked_mul(WORD)?;
        self.take(bytes).map(Words)
    }
}
