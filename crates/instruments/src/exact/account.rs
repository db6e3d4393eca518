//! Turns executed blocks into costs of functions.

use std::mem;

use netplumb_kernel::kallsyms::SymbolTable;
use netplumb_kernel::path_rules::{PathRules, Role};
use netplumb_model::class::Direction;
use rustc_hash::FxHashMap;

use self::cut::Cut;
use self::registers::Registers;
use super::block::Block;
use super::frame::Flow;
use super::sample::{Sampler, Sampling};
use super::scope::Scope;
use super::stack::{Task, stack_id};
use super::stream::{Kind, Mark, Record, StackPointer};
use super::trace::{Tracer, Tracing};
use super::tree::{Symbol, Tree, UNKNOWN};
use super::user::{Birth, Maker, ThreadRole, User, UserSymbol};
use super::window::{OpenWindow, Window};
use crate::image::{Images, Page};

mod charge;
mod cut;
mod goroutines;
mod instructions;
mod losses;
mod registers;
mod stack;
mod trace;
mod user;

pub use instructions::RanInsn;
pub use losses::Losses;

/// Deeper than any 16 KiB kernel stack.
const MAX_DEPTH: usize = 4096;

/// A block that may not have run to its end, which is not known yet.
#[derive(Debug, Clone, Copy)]
struct Running {
    id: u32,
    ran: Option<u32>,
    call: Option<u64>,
    ret: Option<u64>,
    masked: Option<bool>,
    /// Where it began, if user mode's stack pointer may have moved before.
    stack: Option<StackPointer>,
}

/// Takes records, and returns windows.
#[derive(Debug)]
pub struct Accountant<'a> {
    symbols: &'a SymbolTable,
    rules: &'a PathRules,
    roles: Vec<Role>,
    /// By their numbers. One that runs is out of it.
    blocks: Vec<Option<Box<Block>>>,
    tree: Tree,
    current: Task,
    others: FxHashMap<u64, Task>,
    running: Option<Running>,
    flow: Flow,
    switching: bool,
    window: Option<OpenWindow>,
    /// Completions of what was received, until a poll takes packets out of it.
    completed: Vec<Scope>,
    /// Number of the open window, or of the next; frames remember it.
    window_number: u32,
    losses: Losses,
    /// Blocks that ran shorter or longer than they are.
    cut: Cut,
    /// The last block ended in a call or return without an address.
    unaddressed: bool,
    /// Where a command is measured.
    user: Option<Box<User>>,
    /// What packets are a part of, if they are no packets of their own: the making of a connection, for example.
    phase: Option<Direction>,
    /// The direction of the workload, where every program's system calls belong to it.
    serving: Option<Direction>,
    /// Where samples are drawn.
    sampler: Option<Box<Sampler>>,
    /// Where calls are traced.
    tracer: Option<Box<Tracer>>,
    /// Where calls are traced with their arguments: of the block that runs.
    registers: Registers,
}

impl<'a> Accountant<'a> {
    /// An accountant for a kernel with these symbols.
    pub fn new(symbols: &'a SymbolTable, rules: &'a PathRules) -> Self {
        let roles = symbols.symbols().iter().map(|s| rules.role(&s.name));
        let mut roles: Vec<Role> = roles.collect();
        // Without this wire, the polling softirq completes transfers.
        if !roles.iter().any(|role| role.wire) {
            for role in &mut roles {
                role.polls = false;
                role.receive_completion = false;
            }
        }
        Accountant {
            symbols,
            rules,
            roles,
            blocks: Vec::new(),
            tree: Tree::default(),
            current: Task::default(),
            others: FxHashMap::default(),
            running: None,
            flow: Flow::User,
            switching: false,
            window: None,
            completed: Vec::new(),
            window_number: 1,
            losses: Losses::default(),
            cut: Cut::default(),
            unaddressed: false,
            user: None,
            phase: None,
            serving: None,
            sampler: None,
            tracer: None,
            registers: Registers::default(),
        }
    }

    /// The same, with samples.
    #[must_use]
    pub fn sampling(mut self, sampling: Option<&Sampling>) -> Self {
        self.sampler = sampling.map(|sampling| Box::new(Sampler::new(sampling)));
        self
    }

    /// The same, for a program without markers, such as a web server: what the kernel does for any program belongs
    /// to the workload, in this direction. Other tasks are the kernel's own.
    #[must_use]
    pub fn serving(self, serving: Option<Direction>) -> Self {
        Accountant { serving, ..self }
    }

    /// The same, with calls traced.
    #[must_use]
    pub fn tracing(mut self, tracing: Option<Tracing>) -> Self {
        self.tracer = tracing.map(|tracing| Box::new(Tracer::new(tracing)));
        self
    }

    /// An accountant for a command whose code is in these files: user code counts, and
    /// everything in the window belongs to the run.
    pub fn of_command(symbols: &'a SymbolTable, rules: &'a PathRules, images: Images) -> Self {
        Accountant { user: Some(Box::new(User::new(images))), ..Accountant::new(symbols, rules) }
    }

    /// The functions of user code seen so far, and the roots of threads; they are
    /// numbered from [`super::FIRST_USER_SYMBOL`]. Names of roots may change.
    pub fn user_symbols(&self) -> &[UserSymbol] {
        self.user.as_deref().map_or(&[], User::symbols)
    }

    /// The calling contexts seen so far.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// What could not be followed so far.
    pub fn losses(&self) -> Losses {
        let sampler = self.sampler.as_ref();
        Losses {
            unknown_flags: sampler.map_or(0, |s| s.interrupts.unknown),
            no_registers: self.losses.no_registers || self.registers.is_wrong(&self.losses),
            ..self.losses
        }
    }

    /// Take one record. A window that it closes is returned.
    pub fn take(&mut self, record: Record) -> Option<Window> {
        match record {
            Record::Block { id, address, kind, sizes, code, changes } => {
                let index = id as usize;
                if self.blocks.len() <= index {
                    self.blocks.resize(index + 1, None);
                }
                let block = Block::new(self.symbols, address, kind, (&sizes, &code), changes);
                self.blocks[index] = Some(Box::new(block));
            }
            Record::UserBlock { id, address, kind, sizes, code, page, frame } => {
                let Some(user) = &mut self.user else {
                    return None;
                };
                let index = id as usize;
                if self.blocks.len() <= index {
                    self.blocks.resize(index + 1, None);
                }
                let text = (&*sizes, &*code);
                let page = Page { hash: page, frame };
                let block = Block::of_user(user, address, kind, text, page);
                self.blocks[index] = Some(Box::new(block));
            }
            Record::Store(address) => self.store(address),
            Record::Exec(id) => {
                self.settle();
                self.running = Some(Running {
                    id,
                    ran: None,
                    call: None,
                    ret: None,
                    masked: None,
                    stack: None,
                });
            }
            Record::Partial(ran) => {
                if let Some(running) = &mut self.running {
                    running.ran = Some(ran);
                }
            }
            Record::Call(sp) => {
                if let Some(running) = &mut self.running {
                    running.call = Some(sp);
                }
            }
            Record::Ret(sp) => {
                if let Some(running) = &mut self.running {
                    running.ret = Some(sp);
                }
            }
            Record::Stack(stack) => {
                if let Some(running) = &mut self.running {
                    running.stack = Some(stack);
                }
            }
            Record::Masked(masked) => {
                if let Some(running) = &mut self.running {
                    running.masked = Some(masked);
                }
            }
            Record::Arguments { checked, registers } => self.take_arguments(checked, registers),
            Record::Text(register, bytes) => self.registers.text(register, &bytes),
            Record::Returned(value) => self.registers.returned = Some(value),
            Record::NoRegisters => self.losses.no_registers = true,
            Record::User => {
                self.settle();
                self.pop_to(0, true);
                self.flow = Flow::User;
                if let Some(sampler) = &mut self.sampler {
                    sampler.user();
                    if sampler.has_drawn() {
                        self.sample_user();
                    }
                }
            }
            Record::Mark(mark, user_insns) => {
                self.settle();
                return self.mark(mark, user_insns);
            }
            Record::Loss(total) => self.losses.bad_addresses = u64::from(total),
        }
        None
    }

    fn mark(&mut self, mark: Mark, user_insns: u64) -> Option<Window> {
        // In a command's run, other programs execute markers, too.
        self.current.workload |= self.user.is_none() || mark == Mark::RunBegin;
        match mark {
            Mark::Arm => {}
            Mark::WindowBegin | Mark::RunBegin => {
                if mark == Mark::RunBegin {
                    self.begin_run();
                }
                self.phase = None;
                // Counts of a window that never closed are dropped.
                self.completed.clear();
                self.take_user_code();
                let mut samples = Vec::new();
                if let Some(sampler) = &mut self.sampler {
                    sampler.open();
                    samples.resize_with(sampler.seeds(), Default::default);
                }
                self.begin_traces();
                self.window = Some(OpenWindow {
                    user_insns_before: user_insns,
                    samples,
                    ..OpenWindow::default()
                });
            }
            Mark::WindowEnd => {
                self.window_number += 1;
                self.end_completions(Direction::Rx);
                if let Some(sampler) = &mut self.sampler {
                    sampler.close();
                }
                let code = self.take_user_code();
                let traced = self.end_traces();
                return (self.window.take()).map(|open| open.close(user_insns, code, traced));
            }
            Mark::TxBegin => self.current.doing = Some(Direction::Tx),
            Mark::RxBegin => self.current.doing = Some(Direction::Rx),
            Mark::TxEnd | Mark::RxEnd => self.current.doing = None,
            Mark::Phase(phase) => self.phase = phase,
        }
        None
    }

    /// Account for the last block, now that the instructions that ran are known.
    fn settle(&mut self) {
        self.settle_block();
        self.registers.clear();
    }

    fn settle_block(&mut self) {
        let Some(running) = self.running.take() else {
            return;
        };
        let Some(mut block) = self.blocks.get_mut(running.id as usize).and_then(Option::take)
        else {
            return;
        };
        if block.user {
            self.enter_user_block(&mut block, &running);
            self.blocks[running.id as usize] = Some(block);
            return;
        }
        self.enter_block(&block, &running);
        if let (Some(masked), Some(sampler)) = (running.masked, &mut self.sampler) {
            sampler.interrupts.set(!masked);
        }
        self.count_run(&mut block, &running);
        // The very block that begins the switch may end on the other stack.
        if let Some(sp) = running.call.or(running.ret)
            && self.switching
            && self.current.id != Some(stack_id(sp))
        {
            self.switch_to(stack_id(sp));
        }
        self.flow = self.flow_after(&block, &running);
        self.trace_return(false, self.flow);
        self.blocks[running.id as usize] = Some(block);
    }

    fn enter_block(&mut self, block: &Block, running: &Running) {
        let mut left = running.ran.unwrap_or(block.insns);
        if let Some(window) = &mut self.window {
            window.kernel_insns += u64::from(left);
        }
        let mut first = 0;
        for (n, segment) in block.segments.iter().enumerate() {
            if n > 0 && left == 0 {
                break;
            }
            let flow = if n == 0 { self.flow } else { Flow::Sequential };
            if mem::take(&mut self.unaddressed) {
                // It stopped earlier if a fault follows: `rep` before it counts more
                // than once, and may have made up for the rest.
                let role = self.role(segment.symbol);
                self.losses.calls_without_address += u64::from(!(role.entry || role.interrupt));
            }
            self.registers.at(n, segment.at_entry);
            let entered = self.arrive(flow, segment, block.start);
            // A block may count more than its length if `rep` repeats in it.
            let last = n + 1 == block.segments.len();
            let insns = if last { left } else { left.min(segment.insns) };
            left -= insns;
            if segment.symbol == UNKNOWN {
                self.losses.insns_without_symbol += u64::from(insns);
            }
            let mut off = 0;
            if let Some(sampler) = &mut self.sampler {
                off = sampler.run(first, insns, &block.changes);
                first += insns;
                if sampler.has_drawn() {
                    self.sample(self.current.frames.len());
                }
            }
            self.charge(insns, u32::from(entered), off);
            self.charge_traces(insns);
        }
    }

    fn flow_after(&mut self, block: &Block, running: &Running) -> Flow {
        if running.ran.is_some_and(|ran| ran < block.insns) {
            return Flow::Sequential;
        }
        match (block.kind, running.call, running.ret) {
            (Kind::Call, Some(sp), _) => Flow::Call { sp, returns_to: block.end },
            (Kind::Ret, _, Some(sp)) => Flow::Ret { sp },
            // `rep` before it counts more than once, and may have faulted.
            (Kind::Call | Kind::Ret, ..) if running.ran.is_some_and(|r| r != block.insns) => {
                Flow::Sequential
            }
            (Kind::Call | Kind::Ret, ..) => {
                self.unaddressed = true;
                Flow::Sequential
            }
            (Kind::Iret, ..) => Flow::Iret,
            (Kind::Other | Kind::Sysret, ..) => Flow::Sequential,
        }
    }

    fn role(&self, symbol: Symbol) -> Role {
        self.roles.get(symbol as usize).copied().unwrap_or_default()
    }
}
