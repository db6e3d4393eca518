//! Pages of the kernel's trace buffers, as `trace_pipe_raw` has them
//! (Documentation/trace/ring-buffer-design.rst, kernel/trace/ring_buffer.c).

use crate::events::format::fields;
use crate::live::LiveError;

/// Bits of a page's header that are its length (`COMMIT_MASK` of libtraceevent).
const LENGTH_MASK: u64 = (1 << 27) - 1;
/// Records before the page were lost (`RB_MISSED_EVENTS`).
const LOST: u64 = 1 << 31;
/// Kinds of entries that are not events (include/linux/ring_buffer.h).
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// Bits of a record's time, relative to its base.
const DELTA_BITS: u32 = 27;
/// Upper bits of a time, which absolute ones lack (`TS_MSB`).
const UPPER: u64 = 0xf8 << 56;

/// Flags of a record: the kernel ran an NMI, an interrupt handler or a softirq (`TRACE_FLAG_NMI` and
/// others of include/linux/trace_events.h).
const IN_NMI: u8 = 0x40;
const IN_HARDIRQ: u8 = 0x08;
const IN_SOFTIRQ: u8 = 0x10;

/// Letters of a task's name, with the NUL (`TASK_COMM_LEN`).
const NAME_BYTES: usize = 16;

/// The kind of a record, with its fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    /// A function was entered.
    Enter { function: u64 },
    /// A function returned.
    Leave {
        function: u64,
        /// When it was entered and left, if the record has that.
        times: Option<(u64, u64)>,
    },
    /// A task was switched out, and another one in.
    Switch {
        /// The task's name.
        name: String,
        /// The other one.
        next: i32,
        next_name: String,
    },
    /// A task started another one.
    Fork {
        /// The new one.
        child: i32,
    },
    /// A task began to execute a program.
    Exec {
        /// The task's name from then on; empty if the record is cut off.
        name: String,
    },
    /// Records of the CPU before this time were lost.
    Gap,
}

/// How deep in interrupts something ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Task,
    Softirq,
    Hardirq,
    Nmi,
}

/// What the tracer recorded, with its CPU and task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) ns: u64,
    pub(super) cpu: u32,
    /// The task; 0 is the idle one of each CPU.
    pub(super) task: i32,
    pub(super) level: Level,
    /// Calls around it, of [`What::Enter`] and [`What::Leave`].
    pub(super) depth: u32,
    pub(super) what: What,
}

/// Where a field is: its offset and length.
type Place = (usize, usize);

/// Where fields are in records of a kind, as the running kernel describes them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Layout {
    id: u16,
    fields: Vec<(String, Place)>,
}

impl Layout {
    fn parse(text: &str) -> Option<Layout> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID:"))?;
        Some(Layout {
            id: id.trim().parse().ok()?,
            fields: (fields(text).into_iter())
                .map(|field| (field.name, (field.at as usize, field.bytes as usize)))
                .collect(),
        })
    }

    fn place(&self, name: &str) -> Option<Place> {
        let found = self.fields.iter().find(|(known, _)| known == name);
        found.map(|(_, place)| *place)
    }
}

/// Reads records.
#[derive(Debug, Clone)]
pub(super) struct Pages {
    enter: Layout,
    leave: Layout,
    switch: Layout,
    fork: Layout,
    exec: Layout,
}

/// Length of a page: the kernel's, or its sub-buffers'.
pub(super) fn page_bytes(header: &str) -> usize {
    let fields = fields(header);
    let data = fields.iter().find(|field| field.name == "data");
    data.map_or(4096, |data| (data.at + data.bytes) as usize)
}

fn number(record: &[u8], (at, bytes): Place) -> Option<u64> {
    let bytes = record.get(at..at.checked_add(bytes)?)?;
    let mut all = [0; 8];
    all.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(all))
}

/// Text up to its NUL.
fn text(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// The name of a task that executes a file: its last part (`begin_new_exec()` in fs/exec.c), as long as a name may be.
/// The field has where the path is: the offset in its lower half, the length in the upper one.
fn program_name(record: &[u8], field: Place) -> Option<String> {
    let place = number(record, field)? as usize;
    let (at, bytes) = (place & 0xffff, place >> 16 & 0xffff);
    let path = record.get(at..at + bytes)?;
    let path = path.split(|byte| *byte == 0).next()?;
    let name = path.rsplit(|byte| *byte == b'/').next()?;
    Some(text(&name[..name.len().min(NAME_BYTES - 1)]))
}

impl Pages {
    /// Takes the formats of the records, which `format` reads.
    ///
    /// # Errors
    /// The kernel's records have another format.
    pub(super) fn new(
        format: &dyn Fn(&str) -> Result<String, LiveError>,
    ) -> Result<Pages, LiveError> {
        let layout = |of: &str, needs: &[&str]| {
            let text = format(of)?;
            let known = Layout::parse(&text);
            let known = known.filter(|known| needs.iter().all(|f| known.place(f).is_some()));
            known.ok_or_else(|| LiveError::CannotRun {
                reason: format!("this kernel's records of {of} are not known"),
                remedy: "report this kernel's version".into(),
            })
        };
        Ok(Pages {
            enter: layout("ftrace/funcgraph_entry", &["func", "depth"])?,
            leave: layout("ftrace/funcgraph_exit", &["func", "depth"])?,
            switch: layout(
                "sched/sched_switch",
                &["prev_comm", "prev_pid", "next_comm", "next_pid"],
            )?,
            fork: layout("sched/sched_process_fork", &["child_pid"])?,
            exec: layout("sched/sched_process_exec", &["filename"])?,
        })
    }

    /// Add the records of a page, and a gap before it if some were lost.
    pub(super) fn read(&self, page: &[u8], cpu: u32, records: &mut Vec<Record>) {
        let (Some(base), Some(commit)) = (number(page, (0, 8)), number(page, (8, 8))) else {
            return;
        };
        if commit & LOST != 0 {
            records.push(Record {
                ns: base,
                cpu,
                task: 0,
                level: Level::Task,
                depth: 0,
                what: What::Gap,
            });
        }
        let end = (16 + (commit & LENGTH_MASK) as usize).min(page.len());
        let (mut at, mut ns) = (16, base);
        while let Some(head) = number(&page[..end], (at, 4)) {
            let (kind, delta) = (head as u32 & 0x1f, head >> 5);
            let array = number(&page[..end], (at + 4, 4));
            at += 4;
            let length = match kind {
                PADDING => match array {
                    Some(length) if delta > 0 => length as usize,
                    _ => break,
                },
                TIME_EXTEND | TIME_STAMP => {
                    let Some(array) = array else { break };
                    let time = (array << DELTA_BITS) + delta;
                    ns = match kind {
                        TIME_EXTEND => ns.wrapping_add(time),
                        _ => time | (base & UPPER),
                    };
                    4
                }
                kind => {
                    ns = ns.wrapping_add(delta);
                    let (begin, length) = match kind {
                        0 => match array {
                            Some(array) => (at + 4, array as usize),
                            None => break,
                        },
                        words => (at, words as usize * 4),
                    };
                    if let Some(record) = page.get(begin..(at + length).min(end)) {
                        records.extend(self.record(record, ns, cpu));
                    }
                    length.next_multiple_of(4)
                }
            };
            if length == 0 {
                break;
            }
            at += length;
        }
    }

    fn record(&self, record: &[u8], ns: u64, cpu: u32) -> Option<Record> {
        let id = number(record, (0, 2))? as u16;
        let flags = *record.get(2)?;
        let task = number(record, (4, 4))? as u32 as i32;
        let level = match () {
            () if flags & IN_NMI != 0 => Level::Nmi,
            () if flags & IN_HARDIRQ != 0 => Level::Hardirq,
            () if flags & IN_SOFTIRQ != 0 => Level::Softirq,
            () => Level::Task,
        };
        let of = |layout: &Layout, name: &str| number(record, layout.place(name)?);
        let (task, depth, what) = match id {
            id if id == self.enter.id => {
                let function = of(&self.enter, "func")?;
                (task, of(&self.enter, "depth")?, What::Enter { function })
            }
            id if id == self.leave.id => {
                let times = of(&self.leave, "calltime").zip(of(&self.leave, "rettime"));
                let function = of(&self.leave, "func")?;
                let what = What::Leave { function, times };
                (task, of(&self.leave, "depth")?, what)
            }
            id if id == self.switch.id => {
                let name = |field| {
                    let (at, bytes) = self.switch.place(field)?;
                    Some(text(record.get(at..at + bytes.min(NAME_BYTES))?))
                };
                let what = What::Switch {
                    name: name("prev_comm")?,
                    next: of(&self.switch, "next_pid")? as u32 as i32,
                    next_name: name("next_comm")?,
                };
                (of(&self.switch, "prev_pid")? as u32 as i32, 0, what)
            }
            id if id == self.fork.id => {
                let child = of(&self.fork, "child_pid")? as u32 as i32;
                (task, 0, What::Fork { child })
            }
            id if id == self.exec.id => {
                let name = self.exec.place("filename");
                let name = name.and_then(|place| program_name(record, place));
                let name = name.unwrap_or_default();
                (task, 0, What::Exec { name })
            }
            _ => return None,
        };
        Some(Record { ns, cpu, task, level, depth: depth as u32, what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";

    fn format(of: &str) -> Result<String, LiveError> {
        let (id, fields) = match of {
            "ftrace/funcgraph_entry" => (11, "unsigned long func 8 8,int depth 16 4"),
            "ftrace/funcgraph_exit" => (
                10,
                "unsigned long func 8 8,int depth 16 4,unsigned int overrun 20 4,\
                 unsigned long long calltime 24 8,unsigned long long rettime 32 8",
            ),
            "sched/sched_process_fork" => (
                301,
                "char parent_comm[16] 8 16,pid_t parent_pid 24 4,char child_comm[16] 28 16,pid_t child_pid 44 4",
            ),
            "sched/sched_process_exec" => (302, "int filename 8 4,pid_t pid 12 4"),
            _ => (
                300,
                "char prev_comm[16] 8 16,pid_t prev_pid 24 4,int prev_prio 28 4,long prev_state 32 8,\
                 char next_comm[16] 40 16,pid_t next_pid 56 4,int next_prio 60 4",
            ),
        };
        let fields = fields.split(',').map(|field| {
            let mut words = field.rsplitn(3, ' ');
            let (bytes, at) = (words.next().unwrap(), words.next().unwrap());
            let name = words.next().unwrap();
            format!("\tfield:{name};\toffset:{at};\tsize:{bytes};\tsigned:0;\n")
        });
        let fields: String = fields.collect();
        Ok(format!("name: x\nID: {id}\nformat:\n{COMMON}{fields}"))
    }

    /// The beginning of a page of Linux 6.1, from a guest, and a lost one's header.
    const PAGE: [u64; 13] = [
        0x0000_0001_9446_c0d1,
        88,
        // An exit, which has its length in its head.
        0x0000_000a_0000_000a,
        0x8139_06a0_0000_0050,
        0x0000_0001_ffff_ffff,
        0x9446_ac8d_0000_0000,
        0x9446_bed4_0000_0001,
        0x0000_58c5_0000_0001,
        // A function's entry.
        0x0000_0050_0100_000b,
        0xffff_ffff_8136_69e0,
        0x0000_5d65_0000_0001,
        0x0000_0050_0100_000b,
        0xffff_ffff_8136_4eb0,
    ];

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Check that records of a page are read as a kernel wrote them, with their times, and that what
    /// is cut off is left out.
    #[test]
    fn a_page_of_a_kernel() {
        let pages = Pages::new(&format).unwrap();
        let mut records = Vec::new();
        pages.read(&bytes(&PAGE), 3, &mut records);
        let leave = Record {
            ns: 0x1_9446_c0d1,
            cpu: 3,
            task: 0x50,
            level: Level::Task,
            depth: 1,
            what: What::Leave {
                function: 0xffff_ffff_8139_06a0,
                times: Some((0x1_9446_ac8d, 0x1_9446_bed4)),
            },
        };
        let enter = Record {
            ns: 0x1_9446_c0d1 + (0x58c5 >> 5),
            what: What::Enter { function: 0xffff_ffff_8136_69e0 },
            ..leave.clone()
        };
        assert_eq!(records, [leave, enter]);
        let mut lost = PAGE;
        lost[1] |= LOST;
        let mut with_gap = Vec::new();
        pages.read(&bytes(&lost), 3, &mut with_gap);
        assert_eq!((with_gap.len(), &with_gap[0].what), (3, &What::Gap));
    }

    /// Check that times are extended, absolute ones taken, padding passed over, and tasks named; and
    /// that pages of noise are read without end or panic.
    #[test]
    fn odd_pages() {
        let pages = Pages::new(&format).unwrap();
        let mut page = bytes(&[1_000, 0]);
        let mut add = |words: &[u32]| {
            page.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        };
        // 2^27 * 2 + 5 ns later.
        add(&[5 << 5 | TIME_EXTEND, 2]);
        // Padding of 8 bytes, with its length.
        add(&[1 << 5 | PADDING, 8, 0]);
        // A switch, whose length is in the array.
        let mut switch = [0; 16];
        switch[0] = 300 | 0x0800_0000 >> 8;
        switch[2..6].copy_from_slice(&[0x0068_6a73, 0, 0, 0]);
        switch[6] = 7;
        switch[10..12].copy_from_slice(&[0x666f_736b, 0x74]);
        switch[14] = 9;
        add(&[7 << 5, 68]);
        add(&switch);
        // An absolute time, and an entry in an interrupt.
        add(&[3 << 5 | TIME_STAMP, 1]);
        add(&[5, 11 | 0x0008_0000, 1, 0xdead, 0, 0]);
        let length = page.len() as u64 - 16;
        page[8..16].copy_from_slice(&length.to_le_bytes());
        let mut records = Vec::new();
        pages.read(&page, 0, &mut records);
        let found: Vec<(u64, i32, Level)> =
            records.iter().map(|r| (r.ns, r.task, r.level)).collect();
        let later = 1_000 + (2 << 27) + 5;
        assert_eq!(found, [(later + 7, 7, Level::Hardirq), ((1 << 27) + 3, 1, Level::Hardirq)]);
        let switched = What::Switch { name: "sjh".into(), next: 9, next_name: "ksoft".into() };
        assert_eq!(records[0].what, switched);
        // The path begins after 16 bytes, and has 23.
        let mut exec = vec![0; 16];
        exec[..2].copy_from_slice(&302_u16.to_le_bytes());
        exec[4] = 5;
        exec[8..12].copy_from_slice(&(16_u32 | 23 << 16).to_le_bytes());
        exec.extend(b"/opt/a-program-of-note\0");
        let name = |record: &[u8]| pages.record(record, 1, 0).map(|record| record.what);
        let named = |name: &str| Some(What::Exec { name: name.into() });
        assert_eq!(name(&exec), named("a-program-of-no"));
        assert_eq!(name(&exec[..20]), named(""));
        let mut seed = 1_u64;
        for _ in 0..2_000 {
            let mut noise = vec![0_u8; 256];
            for byte in &mut noise {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = (seed >> 56) as u8;
            }
            pages.read(&noise, 0, &mut records);
        }
        assert_eq!(page_bytes("\tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;"), 4096);
    }
}
