//! perf.data files that tests make up, laid out by tools/perf/Documentation/perf.data-file-format.txt and
//! include/uapi/linux/perf_event.h.

/// PERF_SAMPLE_IP, TID, TIME, CALLCHAIN, CPU, PERIOD and IDENTIFIER.
const SAMPLE_TYPE: u64 = 1 | 2 | 4 | CALLCHAIN | 128 | 256 | 1 << 16;
const CALLCHAIN: u64 = 32;
/// PERF_SAMPLE_READ and PERF_SAMPLE_BRANCH_STACK.
const READ: u64 = 16;
const BRANCH_STACK: u64 = 1 << 11;
/// `sample_id_all` and `use_clockid`.
const FLAGS: u64 = 1 << 18;
const USE_CLOCKID: u64 = 1 << 25;
const ATTR_BYTES: usize = 136;
const HEADER_BYTES: u64 = 104;
/// PERF_RECORD_MISC_KERNEL and _USER.
pub(crate) const KERNEL: u16 = 1;
pub(crate) const USER: u16 = 2;
/// PERF_CONTEXT_KERNEL and _USER.
pub(crate) const IN_KERNEL: u64 = -128_i64 as u64;
pub(crate) const IN_USER: u64 = -512_i64 as u64;
/// PERF_CONTEXT_USER_DEFERRED.
pub(crate) const LATER: u64 = -640_i64 as u64;
/// Address of `_text` when the file was made; [`KALLSYMS`] has another boot's.
pub(crate) const TEXT: u64 = 0xffff_ffff_8120_0000;
/// Names of the kernel's functions, as of another boot.
pub(crate) const KALLSYMS: &str = "ffffffff81000000 T _text
ffffffff81001000 T entry_SYSCALL_64
ffffffff81002000 T do_syscall_64
ffffffff81003000 T udp_sendmsg
ffffffff81004000 T net_rx_action
ffffffff81004800 T __sys_sendto
ffffffff81005000 D data
";

/// A perf.data file that a test puts together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Made {
    /// Type and configuration of events.
    pub(crate) events: Vec<(u32, u64)>,
    pub(crate) records: Vec<u8>,
    /// Time of records other than samples.
    pub(crate) now_ns: u64,
    /// Whether samples have no stacks, as without `perf record -g`.
    pub(crate) no_stacks: bool,
    /// `read_format` of samples that have values of counters.
    pub(crate) read_format: u64,
    /// `branch_sample_type` of samples that have branches.
    pub(crate) branch_type: u64,
    /// The most frames of a stack; 0 for none given.
    pub(crate) max_stack: u16,
    /// Whether times are from CLOCK_MONOTONIC.
    pub(crate) monotonic: bool,
    /// Further flags of events.
    pub(crate) flags: Vec<u64>,
    /// Sections about the file, by number.
    pub(crate) features: Vec<(usize, Vec<u8>)>,
    /// `uname -m` and `uname -r`.
    pub(crate) machine: Option<(&'static str, &'static str)>,
}

impl Made {
    /// With cpu-clock, and a kernel and a program that are mapped.
    pub(crate) fn new() -> Made {
        let mut made = Made { events: vec![(1, 0)], ..Made::default() };
        made.map(u32::MAX, KERNEL, (TEXT, 0x5000, TEXT), "[kernel.kallsyms]_text");
        made.comm(7, "net\u{1b}[31m");
        made.map(7, USER, (0x40_0000, 0x1000, 0), "/nowhere/net");
        made
    }

    pub(crate) fn record(&mut self, kind: u32, misc: u16, body: &[u8]) {
        self.records.extend_from_slice(&kind.to_le_bytes());
        self.records.extend_from_slice(&misc.to_le_bytes());
        self.records.extend_from_slice(&(8 + body.len() as u16).to_le_bytes());
        self.records.extend_from_slice(body);
    }

    /// The end of each record other than samples.
    fn id(&self, body: &mut Vec<u8>) {
        for word in [0, self.now_ns, 0, 1_u64] {
            body.extend_from_slice(&word.to_le_bytes());
        }
    }

    pub(crate) fn map(&mut self, pid: u32, misc: u16, at: (u64, u64, u64), path: &str) {
        let mut body: Vec<u8> = [pid, pid].iter().flat_map(|n| n.to_le_bytes()).collect();
        for word in [at.0, at.1, at.2] {
            body.extend_from_slice(&word.to_le_bytes());
        }
        text(&mut body, path);
        self.id(&mut body);
        self.record(1, misc, &body);
    }

    pub(crate) fn comm(&mut self, pid: u32, name: &str) {
        let mut body: Vec<u8> = [pid, pid].iter().flat_map(|n| n.to_le_bytes()).collect();
        text(&mut body, name);
        self.id(&mut body);
        self.record(3, 0, &body);
    }

    /// A process begins another program, and is called by its name.
    pub(crate) fn execute(&mut self, pid: u32, name: &str) {
        let mut body: Vec<u8> = [pid, pid].iter().flat_map(|n| n.to_le_bytes()).collect();
        text(&mut body, name);
        self.id(&mut body);
        // PERF_RECORD_MISC_COMM_EXEC.
        self.record(3, 1 << 13, &body);
    }

    /// A process is forked, or if `kind` is 4 (PERF_RECORD_EXIT), it ends.
    pub(crate) fn fork(&mut self, kind: u32, pid: u32, parent: u32) {
        let ids = [pid, parent, pid, parent];
        let mut body: Vec<u8> = ids.iter().flat_map(|n| n.to_le_bytes()).collect();
        body.extend_from_slice(&self.now_ns.to_le_bytes());
        self.id(&mut body);
        self.record(kind, 0, &body);
    }

    /// A thread of a process is started, or if `kind` is 4, it ends.
    pub(crate) fn thread(&mut self, kind: u32, pid: u32, tid: u32) {
        let mut body: Vec<u8> = [pid, pid, tid, pid].iter().flat_map(|n| n.to_le_bytes()).collect();
        body.extend_from_slice(&self.now_ns.to_le_bytes());
        self.id(&mut body);
        self.record(kind, 0, &body);
    }

    /// A sample of the first event at an address of its own: by time, and what comes after the period.
    pub(crate) fn sample_at(
        &mut self,
        mode: u16,
        task: u64,
        (time_ns, ip): (u64, u64),
        more: &[u64],
    ) {
        let words = [1, ip, task, time_ns, 1, 100];
        let words = words.iter().chain(more);
        let body: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
        self.record(9, mode, &body);
    }

    /// Many samples, of short-lived processes one after the other, with this many different stacks, which are walks
    /// through one call graph.
    pub(crate) fn many(samples: u64, processes: u64, stacks: u64) -> Made {
        let mut made = Made::new();
        // A generator of the same numbers in every run (Knuth's constants).
        let mut state = 1_u64;
        let mut random = |most: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % most
        };
        let walks: Vec<Vec<u64>> = (0..stacks)
            .map(|_| {
                let mut function = random(16);
                let callee = |_| {
                    function = (function * 5 + random(3)) % 300;
                    function
                };
                (0..10).map(callee).collect()
            })
            .collect();
        let each = samples.div_ceil(processes);
        for n in 0..samples {
            let pid = 1_000 + (n / each) as u32;
            let program = 0x10_0000_0000 + u64::from(pid) * 0x100_0000;
            made.now_ns = 1_000 + n * 25_000;
            if n % each == 0 {
                if pid > 1_001 {
                    made.fork(4, pid - 2, 1);
                }
                made.fork(7, pid, 7);
                made.now_ns += 1;
                made.execute(pid, "prog");
                made.now_ns += 1;
                made.map(pid, USER, (program, 0x10_0000, 0), "/nowhere/prog");
            }
            // Each stack is there, the first ones often.
            let stack = if n < stacks { n } else { random(stacks) * random(stacks) / stacks };
            let walk = &walks[stack as usize];
            let (outer, inner) = walk.split_at(3 + (stack % 5) as usize);
            let kernel = inner.iter().rev().map(|f| TEXT + 0x10 * f);
            let user = outer.iter().rev().map(|f| program + 0x1000 * f);
            let chain: Vec<u64> =
                [IN_KERNEL].into_iter().chain(kernel).chain([IN_USER]).chain(user).collect();
            let at = (made.now_ns + 1, 25_000);
            made.sample_of(u64::from(pid), 0, at, &chain);
        }
        made
    }

    /// The same records in another order: `order` is given how many there are, and returns their places.
    pub(crate) fn reordered(&self, order: impl FnOnce(usize) -> Vec<usize>) -> Made {
        let mut rest = &self.records[..];
        let mut each = Vec::new();
        while rest.len() >= 8 {
            let size = usize::from(u16::from_le_bytes([rest[6], rest[7]]));
            let (record, later) = rest.split_at(size);
            each.push(record);
            rest = later;
        }
        let order = order(each.len());
        Made { records: order.iter().flat_map(|n| each[*n]).copied().collect(), ..self.clone() }
    }

    pub(crate) fn lost(&mut self, count: u64) {
        let mut body: Vec<u8> = [1, count].iter().flat_map(|n| n.to_le_bytes()).collect();
        self.id(&mut body);
        self.record(2, 0, &body);
    }

    /// A sample of an event by its number; `chain` is the innermost first.
    pub(crate) fn sample(&mut self, event: u64, time_ns: u64, period: u64, chain: &[u64]) {
        self.sample_of(7, event, (time_ns, period), chain);
    }

    /// The same of a task by its number: its process, and its thread.
    pub(crate) fn sample_of(&mut self, task: u64, event: u64, at: (u64, u64), chain: &[u64]) {
        let (time_ns, period) = at;
        let misc = if chain.first() == Some(&IN_USER) { USER } else { KERNEL };
        let mut body = Vec::new();
        let ip = chain.get(1).copied().unwrap_or_default();
        let task = task | task << 32;
        let words = [event + 1, ip, task, time_ns, 1, period];
        let length = chain.len() as u64;
        let stack = [length].into_iter().chain(chain.iter().copied());
        let stack = stack.filter(|_| !self.no_stacks);
        for word in words.into_iter().chain(stack) {
            body.extend_from_slice(&word.to_le_bytes());
        }
        self.record(9, misc, &body);
    }

    fn attr(&self, n: usize) -> Vec<u8> {
        let (kind, config) = self.events[n];
        let mut sample_type = match self.no_stacks {
            true => SAMPLE_TYPE & !CALLCHAIN,
            false => SAMPLE_TYPE,
        };
        sample_type |= if self.read_format == 0 { 0 } else { READ };
        sample_type |= if self.branch_type == 0 { 0 } else { BRANCH_STACK };
        let more = self.flags.get(n).copied().unwrap_or_default();
        let clock = if self.monotonic { USE_CLOCKID } else { 0 };
        let mut attr = Vec::new();
        attr.extend_from_slice(&kind.to_le_bytes());
        attr.extend_from_slice(&(ATTR_BYTES as u32).to_le_bytes());
        let flags = FLAGS | more | clock;
        for word in [config, 1_000, sample_type, self.read_format, flags] {
            attr.extend_from_slice(&u64::to_le_bytes(word));
        }
        attr.resize(ATTR_BYTES, 0);
        attr[72..80].copy_from_slice(&self.branch_type.to_le_bytes());
        // CLOCK_MONOTONIC.
        attr[92..96].copy_from_slice(&u32::from(self.monotonic).to_le_bytes());
        attr[108..110].copy_from_slice(&self.max_stack.to_le_bytes());
        attr
    }

    /// Its sections about the file, including the ones that identify the machine.
    fn sections(&self) -> Vec<(usize, Vec<u8>)> {
        let text = |number: usize, value: &str| {
            let mut section = (value.len() as u32 + 1).to_le_bytes().to_vec();
            section.extend_from_slice(value.as_bytes());
            section.push(0);
            (number, section)
        };
        let machine = self.machine.into_iter();
        let machine = machine.flat_map(|(arch, release)| [text(6, arch), text(4, release)]);
        let mut sections: Vec<(usize, Vec<u8>)> =
            machine.chain(self.features.iter().cloned()).collect();
        sections.sort_unstable();
        sections
    }

    /// As `perf record -o FILE` writes it.
    pub(crate) fn file(&self) -> Vec<u8> {
        let count = self.events.len() as u64;
        let attrs_at = HEADER_BYTES + 8 * count;
        let each = ATTR_BYTES as u64 + 16;
        let data_at = attrs_at + each * count;
        let mut file = b"PERFILE2".to_vec();
        let features = self.sections();
        let mut bits = [0_u64; 4];
        for (bit, _) in &features {
            bits[bit / 64] |= 1 << (bit % 64);
        }
        let data_bytes = self.records.len() as u64;
        let header = [HEADER_BYTES, each, attrs_at, each * count, data_at, data_bytes, 0, 0];
        for word in header.iter().chain(&bits) {
            file.extend_from_slice(&word.to_le_bytes());
        }
        for id in 1..=count {
            file.extend_from_slice(&id.to_le_bytes());
        }
        for n in 0..self.events.len() {
            file.extend(self.attr(n));
            for word in [HEADER_BYTES + 8 * n as u64, 8] {
                file.extend_from_slice(&word.to_le_bytes());
            }
        }
        file.extend_from_slice(&self.records);
        let mut at = file.len() as u64 + 16 * features.len() as u64;
        let mut contents = Vec::new();
        for (_, section) in features {
            for word in [at, section.len() as u64] {
                file.extend_from_slice(&word.to_le_bytes());
            }
            at += section.len() as u64;
            contents.extend(section);
        }
        file.extend(contents);
        file
    }

    /// As `perf record -o -` writes it.
    pub(crate) fn pipe(&self) -> Vec<u8> {
        let mut head = Made::default();
        for n in 0..self.events.len() {
            let mut body = self.attr(n);
            body.extend_from_slice(&(n as u64 + 1).to_le_bytes());
            head.record(64, 0, &body);
        }
        let mut pipe = b"PERFILE2".to_vec();
        pipe.extend_from_slice(&16_u64.to_le_bytes());
        pipe.extend(head.records);
        pipe.extend_from_slice(&self.records);
        pipe
    }
}

/// A text, padded to a multiple of eight bytes.
fn text(body: &mut Vec<u8>, text: &str) {
    body.extend_from_slice(text.as_bytes());
    body.resize((body.len() + 1).next_multiple_of(8), 0);
}
