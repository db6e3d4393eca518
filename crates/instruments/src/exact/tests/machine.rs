//! A machine without code: a test gives what it executes.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::LazyLock;

use netplumb_kernel::kallsyms::SymbolTable;
use netplumb_kernel::path_rules::PathRules;
use netplumb_model::experiment::Trace;

use super::super::stream::{Kind, StackPointer};
use super::super::{
    Accountant, Change, FIRST_USER_SYMBOL, Image, ImageFunction, Images, Losses, Mark, NoFunction,
    Prototypes, Record, Sampling, Tracing, UNKNOWN, Window,
};

/// Every instruction is so long.
pub(super) const INSN_BYTES: u64 = 4;
/// Every function but `dst_output` is so long.
const FUNCTION_BYTES: u64 = 0x100;
const TEXT: u64 = 0xffff_ffff_8100_0000;
/// Code that no symbol covers.
pub(super) const NOWHERE: u64 = 0xffff_ffff_c000_0000;
/// Stack addresses are given from here.
const STACKS: u64 = 0xffff_c900_0000_0000;

/// User stacks end here.
const USER_STACK: u64 = 0x7fff_ffff_0000;

/// In the order of their addresses. `helper` follows `dst_output`.
const FUNCTIONS: &[&str] = &[
    "entry_SYSCALL_64",
    "asm_exc_page_fault",
    "error_entry",
    "asm_sysvec_apic_timer_interrupt",
    "asm_common_interrupt",
    "irq_entries_start",
    "udp_sendmsg",
    "ip_output",
    "dst_output",
    "helper",
    "helper.cold",
    "__x86_indirect_thunk_rax",
    "schedule",
    "begin_new_exec",
    "copy_thread",
    "ret_from_fork",
    "__switch_to_asm",
    "__switch_to",
    "cpu_idle",
    "__local_bh_enable_ip",
    "handle_softirqs",
    "handle_softirqs.constprop.0",
    "irq_thread",
    "irq_forced_thread_fn",
    "net_rx_action",
    "net_tx_action",
    "rcu_core_si",
    "__netif_receive_skb_core",
    "ip_forward",
    "icmp_echo",
    "tcp_ack",
    "tcp_data_queue",
    "tcp_queue_rcv",
    "free_old_xmit_skbs",
    "vhci_urb_enqueue",
    "usbnet_bh",
    "smsc95xx_rx_fixup",
    "netif_rx_internal",
    "rx_complete",
    "tx_complete",
    "vectors:el0t_64_sync",
    "vectors:el1h_64_sync",
    "vectors:el1h_64_irq",
    "el0t_64_sync",
    "el1h_64_irq",
    "cpu_switch_to",
    "f0",
    "f0.cold",
    "f1",
    "f1.cold",
    "f2",
    "f2.cold",
    "f3",
    "f3.cold",
    "f4",
    "f4.cold",
    "f5",
    "f5.cold",
];

static RULES: LazyLock<PathRules> = LazyLock::new(PathRules::built_in);

/// The symbols of a small kernel.
pub(super) fn symbols() -> SymbolTable {
    let mut text = String::new();
    let mut address = TEXT;
    for name in FUNCTIONS {
        text.push_str(&format!("{address:016x} T {name}\n"));
        address += FUNCTION_BYTES;
    }
    text.push_str(&format!("{address:016x} D end_of_text\n"));
    SymbolTable::parse(text.as_bytes()).unwrap()
}

/// What distinguishes blocks: address, instructions, how they end, and what they change.
type Code = (u64, u32, u32, Vec<(u16, u8)>);

/// Made of blocks that a test names by what they do.
pub(super) struct Machine<'a> {
    symbols: &'a SymbolTable,
    accountant: Accountant<'a>,
    /// Files of a command, as the accountant has them.
    images: Images,
    ids: HashMap<Code, u32>,
    windows: Vec<Window>,
    user_insns: u64,
    /// Kernel instructions since the window opened, and in the last block.
    ran: u64,
    last: u32,
}

/// Look a function up; files are meant by the end of their path.
pub(super) fn find(
    spec: &Trace,
    symbols: &SymbolTable,
    images: &Images,
) -> Result<Tracing, NoFunction> {
    let is_file = |number: u32| {
        let file = spec.place().0.unwrap_or_default();
        let image = &images.images()[number as usize];
        Path::new(&image.name).ends_with(file)
    };
    Tracing::find(spec, symbols, images, &is_file)
}

impl<'a> Machine<'a> {
    pub(super) fn new(symbols: &'a SymbolTable) -> Self {
        Machine {
            symbols,
            accountant: Accountant::new(symbols, &RULES),
            images: Images::default(),
            ids: HashMap::new(),
            windows: Vec::new(),
            user_insns: 0,
            ran: 0,
            last: 0,
        }
    }

    /// One that runs a command, of files that are two functions a page.
    pub(super) fn of_command(symbols: &'a SymbolTable, files: &[&str]) -> Self {
        let images = Self::files(files);
        Machine {
            accountant: Accountant::of_command(symbols, &RULES, Self::files(files)),
            images,
            ..Machine::new(symbols)
        }
    }

    /// The same for a program in Go.
    pub(super) fn of_go(symbols: &'a SymbolTable) -> Self {
        let images = || {
            let names = ["runtime.gogo.abi0", "runtime.mcall", "main.main", "main.grow"];
            let names = names.iter().chain(&["runtime.morestack.abi0", "runtime.park_m"]);
            let functions = (0..).zip(names).map(|(n, name)| ImageFunction {
                start: 0x1000 + n * FUNCTION_BYTES,
                end: 0x1100 + n * FUNCTION_BYTES,
                name: (*name).into(),
            });
            let image = Image {
                name: "go".into(),
                entry: 0x1500,
                program: true,
                functions: functions.collect(),
                segments: Vec::new(),
            };
            let mut images = Images::default();
            images.add_made(image, &[(0x1000, 1)]);
            images
        };
        Machine {
            accountant: Accountant::of_command(symbols, &RULES, images()),
            images: images(),
            ..Machine::new(symbols)
        }
    }

    /// Files that are two functions a page.
    fn files(files: &[&str]) -> Images {
        let mut images = Images::default();
        for (n, file) in files.iter().enumerate() {
            let function = |name: &str, start| ImageFunction {
                start,
                end: start + FUNCTION_BYTES,
                name: name.into(),
            };
            let image = Image {
                name: (*file).into(),
                entry: 0x1000,
                program: !file.contains(".so"),
                functions: vec![
                    function("_start", 0x1000),
                    function("main", 0x1100),
                    function("work", 0x1200),
                    function("other", 0x1300),
                    function("write@plt", 0x1400),
                    function("write", 0x1500),
                ],
                segments: Vec::new(),
            };
            images.add_made(image, &[(0x1000, 1 + n as u64)]);
        }
        images
    }

    /// The same, with calls traced.
    pub(super) fn tracing(self, spec: &Trace) -> Self {
        let tracing = find(spec, self.symbols, &self.images).unwrap();
        Machine { accountant: self.accountant.tracing(Some(tracing)), ..self }
    }

    /// The same, with arguments by these prototypes.
    pub(super) fn tracing_with(self, spec: &Trace, prototypes: &dyn Prototypes) -> Self {
        let tracing = find(spec, self.symbols, &self.images).unwrap();
        let tracing = tracing.with_prototypes(self.symbols, prototypes).unwrap();
        Machine { accountant: self.accountant.tracing(Some(tracing)), ..self }
    }

    /// The name of a function.
    pub(super) fn name(&self, symbol: u32) -> &str {
        match symbol {
            UNKNOWN => "[unknown]",
            symbol if symbol >= FIRST_USER_SYMBOL => {
                let index = (symbol - FIRST_USER_SYMBOL) as usize;
                &self.accountant.user_symbols()[index].name
            }
            symbol => &self.symbols.symbols()[symbol as usize].name,
        }
    }

    /// Calls of a function but for those within others, and what they cost with all below them.
    pub(super) fn inclusive(&self, window: &Window, function: &str) -> (u64, u64) {
        let nodes = self.accountant.tree().nodes();
        let is = |node: u32| self.name(nodes[node as usize].symbol) == function;
        let above = |node: u32| nodes[node as usize].parent;
        let mut sums = (0, 0);
        for cost in &window.costs {
            let within = std::iter::successors(above(cost.node), |node| above(*node)).any(is);
            if is(cost.node) && !within {
                sums.0 += cost.calls;
            }
            if is(cost.node) || within {
                sums.1 += cost.insns;
            }
        }
        sums
    }

    /// The same, with samples.
    pub(super) fn sampling(self, sampling: &Sampling) -> Self {
        Machine { accountant: self.accountant.sampling(Some(sampling)), ..self }
    }

    /// Execute user code: in a file, by its number, at an address that is the file's
    /// own but for where it is mapped.
    pub(super) fn user_at(&mut self, file: u64, address: u64, insns: u32, kind: Kind) {
        let mapped = 0x7f00_0000_0000 + (file << 32) + address;
        let next = self.ids.len() as u32;
        let code = (mapped, insns, kind as u32, Vec::new());
        let id = *self.ids.entry(code).or_insert(next);
        if id == next {
            self.take(Record::UserBlock {
                id,
                address: mapped,
                kind,
                sizes: vec![INSN_BYTES as u8; insns as usize],
                code: vec![0x90; (u64::from(insns) * INSN_BYTES) as usize],
                page: if address < 0x2000 { 1 + file } else { 0 },
                frame: 0,
            });
        }
        self.take(Record::Exec(id));
        self.user_insns += u64::from(insns);
    }

    /// ... that ends in a call.
    pub(super) fn user_call(&mut self, file: u64, address: u64, insns: u32, sp: u64) {
        self.user_at(file, address, insns, Kind::Call);
        self.take(Record::Call(USER_STACK + sp));
    }

    /// ... or in a return.
    pub(super) fn user_ret(&mut self, file: u64, address: u64, insns: u32, sp: u64) {
        self.user_at(file, address, insns, Kind::Ret);
        self.take(Record::Ret(USER_STACK + sp));
    }

    /// Execute user code that begins where the stack pointer may have moved: below one of its addresses,
    /// where a goroutine runs, and how it ends.
    pub(super) fn user_moved(&mut self, at: (u64, u64, u32), sp: u64, goroutine: u64, end: Record) {
        let (file, address, insns) = at;
        let kind = match end {
            Record::Call(_) => Kind::Call,
            Record::Ret(_) => Kind::Ret,
            _ => Kind::Other,
        };
        self.user_at(file, address, insns, kind);
        let begins = USER_STACK + sp;
        self.take(Record::Stack(StackPointer { begins, returned: begins - 8, goroutine }));
        match end {
            Record::Call(sp) => self.take(Record::Call(USER_STACK + sp)),
            Record::Ret(sp) => self.take(Record::Ret(USER_STACK + sp)),
            _ => {}
        }
    }

    /// Watched code stores to a stack.
    pub(super) fn store(&mut self, sp: u64) {
        self.take(Record::Store(STACKS + sp));
    }

    /// The stream ends.
    pub(super) fn finish(&mut self) -> Option<Window> {
        self.accountant.finish()
    }

    /// Check that the costs of a command are all that ran, in user mode and in the
    /// kernel.
    #[track_caller]
    pub(super) fn check_run(&self, window: &Window) {
        let insns: u64 = window.costs.iter().map(|c| c.insns).sum();
        assert_eq!(insns, window.kernel_insns + window.user_insns);
        assert_eq!(window.kernel_insns, self.ran);
        let calls: u64 = window.costs.iter().map(|c| c.calls).sum();
        assert_eq!(calls, window.entered);
        self.check_code(window);
    }

    /// Check that the instructions of each function of a file match the blocks that
    /// ran.
    #[track_caller]
    fn check_code(&self, window: &Window) {
        let symbols = self.accountant.user_symbols();
        let mut by_node: HashMap<u32, u64> = HashMap::new();
        for cost in &window.costs {
            let symbol = self.accountant.tree().nodes()[cost.node as usize].symbol;
            let of = symbol.checked_sub(FIRST_USER_SYMBOL);
            if of.is_some_and(|n| symbols.get(n as usize).is_some_and(|s| s.image.is_some())) {
                *by_node.entry(symbol).or_default() += cost.insns;
            }
        }
        let mut by_code: HashMap<u32, u64> = HashMap::new();
        for ran in &window.user_code {
            let code = self.accountant.user_code(ran.block).unwrap();
            for n in 0..ran.insns as usize {
                let (_, symbol) = code.insns[n.min(code.insns.len() - 1)];
                *by_code.entry(symbol).or_default() += ran.times;
            }
        }
        assert_eq!(by_code, by_node);
    }

    pub(super) fn take(&mut self, record: Record) {
        self.windows.extend(self.accountant.take(record));
    }

    pub(super) fn address(&self, name: &str) -> u64 {
        self.symbols.by_name(name)[0].addr
    }

    pub(super) fn size(&self, name: &str) -> u64 {
        self.symbols.by_name(name)[0].size
    }

    /// Execute a block at an address.
    pub(super) fn at(&mut self, address: u64, insns: u32, kind: Kind) {
        self.at_with(address, insns, kind, &[]);
    }

    /// The same, where instructions change whether interrupts come.
    pub(super) fn at_with(
        &mut self,
        address: u64,
        insns: u32,
        kind: Kind,
        changes: &[(u16, Change)],
    ) {
        let next = self.ids.len() as u32;
        let changed = changes.iter().map(|(n, change)| (*n, *change as u8));
        let code = (address, insns, kind as u32, changed.collect());
        let id = *self.ids.entry(code).or_insert(next);
        if id == next {
            self.take(Record::Block {
                id,
                address,
                kind,
                sizes: vec![INSN_BYTES as u8; insns as usize],
                code: vec![0x90; (u64::from(insns) * INSN_BYTES) as usize],
                changes: changes.to_vec(),
            });
        }
        self.take(Record::Exec(id));
        self.ran += u64::from(insns);
        self.last = insns;
    }

    fn in_function(&mut self, name: &str, offset: u64, insns: u32, kind: Kind) {
        self.at(self.address(name) + offset, insns, kind);
    }

    /// Instructions that fall through or jump.
    pub(super) fn jump(&mut self, name: &str, offset: u64, insns: u32) {
        self.in_function(name, offset, insns, Kind::Other);
    }

    /// The same, where one of them changes whether interrupts come.
    pub(super) fn changes(&mut self, name: &str, offset: u64, insns: u32, change: (u16, Change)) {
        self.at_with(self.address(name) + offset, insns, Kind::Other, &[change]);
    }

    /// Instructions, the last a call that stores its return address at `sp`.
    pub(super) fn call(&mut self, name: &str, offset: u64, insns: u32, sp: u64) {
        self.in_function(name, offset, insns, Kind::Call);
        self.take(Record::Call(STACKS + sp));
    }

    /// One instruction further on in a function, a call.
    pub(super) fn call_only(&mut self, name: &str, sp: u64) {
        self.call(name, 0x40, 1, sp);
    }

    /// Instructions, the last a return that reads its address from `sp`.
    pub(super) fn ret(&mut self, name: &str, offset: u64, insns: u32, sp: u64) {
        self.in_function(name, offset, insns, Kind::Ret);
        self.take(Record::Ret(STACKS + sp));
    }

    /// Instructions, the last the return of an interrupt or exception.
    pub(super) fn iret(&mut self, name: &str, offset: u64, insns: u32) {
        self.in_function(name, offset, insns, Kind::Iret);
    }

    /// The last block executed only this number of instructions.
    pub(super) fn partial(&mut self, insns: u32) {
        self.take(Record::Partial(insns));
        self.ran = self.ran - u64::from(self.last) + u64::from(insns);
        self.last = insns;
    }

    /// User mode runs.
    pub(super) fn user(&mut self) {
        self.take(Record::User);
        self.user_insns += 100;
    }

    /// ... and executes a marker.
    pub(super) fn mark(&mut self, mark: Mark) {
        if matches!(mark, Mark::WindowBegin | Mark::RunBegin) {
            self.ran = 0;
        }
        self.take(Record::Mark(mark, self.user_insns));
    }

    /// The one window that has closed since.
    pub(super) fn window(&mut self) -> Window {
        assert_eq!(self.windows.len(), 1);
        self.windows.remove(0)
    }

    /// The samples of a seed by function: where they fell, and where a timer would have taken them.
    pub(super) fn sampled(&self, window: &Window, seed: usize) -> BTreeMap<String, (u64, u64)> {
        let nodes = self.accountant.tree().nodes();
        let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for cost in &window.costs {
            let symbol = nodes[cost.node as usize].symbol;
            let name = self.symbols.symbols()[symbol as usize].name.clone();
            sums.entry(name).or_default();
        }
        for cost in &window.sampled[seed].costs {
            let symbol = nodes[cost.node as usize].symbol;
            let name = &self.symbols.symbols()[symbol as usize].name;
            let sum = sums.entry(name.clone()).or_default();
            sum.0 += cost.fell;
            sum.1 += cost.deferred;
        }
        sums
    }

    pub(super) fn losses(&self) -> Losses {
        self.accountant.losses()
    }

    /// Check that costs add up to the separate count, and this to what the machine
    /// executed.
    #[track_caller]
    pub(super) fn check_sums(&self, window: &Window) {
        let insns: u64 = window.costs.iter().map(|c| c.insns).sum();
        let calls: u64 = window.costs.iter().map(|c| c.calls).sum();
        assert_eq!(insns, window.kernel_insns, "costs are all that was counted");
        assert_eq!(window.kernel_insns, self.ran, "all that ran was counted");
        assert_eq!(calls, window.entered, "costs have all that was entered");
    }

    /// The costs, one line each, sorted.
    pub(super) fn cost_lines(&self, window: &Window) -> Vec<String> {
        let nodes = self.accountant.tree().nodes();
        let mut lines: Vec<String> = window
            .costs
            .iter()
            .map(|cost| {
                let mut path = String::new();
                let mut at = Some(cost.node);
                while let Some(id) = at {
                    let node = nodes[id as usize];
                    let name = self.name(node.symbol);
                    let how = match (node.parent, node.tail) {
                        (None, _) => "",
                        (_, true) => " ~ ",
                        (_, false) => " > ",
                    };
                    path = format!("{how}{name}{path}");
                    at = node.parent;
                }
                format!(
                    "{} {}, {path}, {}, {}",
                    cost.direction, cost.context, cost.calls, cost.insns
                )
            })
            .collect();
        lines.sort_unstable();
        lines
    }
}
