//! From blocks that ran to costs of functions.

use std::mem;

use netplumb_kernel::kallsyms::SymbolTable;
use netplumb_kernel::path_rules::{PathRules, Role};
use netplumb_model::class::{Context, Direction};
use rustc_hash::FxHashMap;

use super::block::{Block, Segment};
use super::image::Images;
use super::scope::{Event, Of, Scope, resolve};
use super::stack::{Flow, Frame, Tag, Task, Why, stack_id};
use super::stream::{Kind, Mark, Record};
use super::tree::{Symbol, Tree, UNKNOWN};
use super::user::{Birth, Part, User, UserSymbol};
use super::window::{OpenWindow, Window};

mod user;

/// Deeper than any kernel stack of 16 KiB can be.
const MAX_DEPTH: usize = 4096;

/// What could not be followed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Losses {
    /// Returns that matched no call that we saw.
    pub unmatched_returns: u64,
    /// Calls whose return address was not told.
    pub calls_without_address: u64,
    /// Stack addresses outside of the kernel's half.
    pub bad_addresses: u64,
    /// Instructions in code that no symbol covers.
    pub insns_without_symbol: u64,
    /// Stacks deeper than any kernel's, given up.
    pub stacks_given_up: u64,
    /// Calls whose way was too long or too rare to be kept: they are shown below
    /// the root of their thread.
    pub ways_cut: u64,
    /// User instructions in code that is in none of the files.
    pub insns_without_file: u64,
    /// Windows that were open when the stream ended.
    pub windows_cut: u64,
}

/// A block of which it is not known yet whether it ran to its end.
#[derive(Debug, Clone, Copy)]
struct Running {
    id: u32,
    ran: Option<u32>,
    call: Option<u64>,
    ret: Option<u64>,
}

/// Takes records, gives windows.
#[derive(Debug)]
pub struct Accountant<'a> {
    symbols: &'a SymbolTable,
    rules: &'a PathRules,
    roles: Vec<Role>,
    blocks: Vec<Option<Block>>,
    tree: Tree,
    current: Task,
    others: FxHashMap<u64, Task>,
    running: Option<Running>,
    flow: Flow,
    switching: bool,
    window: Option<OpenWindow>,
    /// Number of the open window, or of the next; frames remember it.
    window_number: u32,
    losses: Losses,
    /// The last block ended in a call or return that told no address.
    unaddressed: bool,
    /// Where a command is measured.
    user: Option<Box<User>>,
}

impl<'a> Accountant<'a> {
    /// An accountant for a kernel with these symbols.
    pub fn new(symbols: &'a SymbolTable, rules: &'a PathRules) -> Self {
        Accountant {
            symbols,
            rules,
            roles: symbols
                .symbols()
                .iter()
                .map(|s| rules.role(&s.name))
                .collect(),
            blocks: Vec::new(),
            tree: Tree::default(),
            current: Task::default(),
            others: FxHashMap::default(),
            running: None,
            flow: Flow::User,
            switching: false,
            window: None,
            window_number: 1,
            losses: Losses::default(),
            unaddressed: false,
            user: None,
        }
    }

    /// An accountant for a command whose code is in these files: user code counts,
    /// and everything in the window is the run's.
    pub fn of_command(symbols: &'a SymbolTable, rules: &'a PathRules, images: Images) -> Self {
        Accountant {
            user: Some(Box::new(User::new(images))),
            ..Accountant::new(symbols, rules)
        }
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
        self.losses
    }

    /// Take one record. A window that it closes is returned.
    pub fn take(&mut self, record: Record) -> Option<Window> {
        match record {
            Record::Block {
                id,
                address,
                kind,
                sizes,
            } => {
                let index = id as usize;
                if self.blocks.len() <= index {
                    self.blocks.resize(index + 1, None);
                }
                self.blocks[index] = Some(Block::new(self.symbols, address, kind, &sizes));
            }
            Record::UserBlock {
                id,
                address,
                kind,
                sizes,
                page,
            } => {
                let Some(user) = &mut self.user else {
                    return None;
                };
                let index = id as usize;
                if self.blocks.len() <= index {
                    self.blocks.resize(index + 1, None);
                }
                self.blocks[index] = Some(Block::of_user(user, address, kind, &sizes, page));
            }
            Record::Store(address) => self.store(address),
            Record::Exec(id) => {
                self.settle();
                self.running = Some(Running {
                    id,
                    ran: None,
                    call: None,
                    ret: None,
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
            Record::User => {
                self.settle();
                self.pop_to(0, true);
                self.flow = Flow::User;
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
        // In a command's run others execute markers too.
        self.current.workload |= self.user.is_none() || mark == Mark::RunBegin;
        match mark {
            Mark::Arm => {}
            Mark::WindowBegin | Mark::RunBegin => {
                if mark == Mark::RunBegin {
                    self.begin_run();
                }
                // A window that never closed leaves its counts to nobody.
                self.take_user_code();
                self.window = Some(OpenWindow {
                    user_insns_before: user_insns,
                    ..OpenWindow::default()
                });
            }
            Mark::WindowEnd => {
                self.window_number += 1;
                let code = self.take_user_code();
                return self.window.take().map(|open| open.close(user_insns, code));
            }
            Mark::TxBegin => self.current.doing = Some(Direction::Tx),
            Mark::RxBegin => self.current.doing = Some(Direction::Rx),
            Mark::TxEnd | Mark::RxEnd => self.current.doing = None,
        }
        None
    }

    /// Account for the block that ran last, now that it is known how far.
    fn settle(&mut self) {
        let Some(running) = self.running.take() else {
            return;
        };
        let Some(mut block) = self
            .blocks
            .get_mut(running.id as usize)
            .and_then(Option::take)
        else {
            return;
        };
        if block.user {
            self.enter_user_block(&mut block, &running);
            self.blocks[running.id as usize] = Some(block);
            return;
        }
        self.enter_block(&block, &running);
        // The very block that begins the switch may end on the other stack.
        if let Some(sp) = running.call.or(running.ret)
            && self.switching
            && self.current.id != Some(stack_id(sp))
        {
            self.switch_to(stack_id(sp));
        }
        self.flow = self.flow_after(&block, &running);
        self.blocks[running.id as usize] = Some(block);
    }

    fn enter_block(&mut self, block: &Block, running: &Running) {
        let mut left = running.ran.unwrap_or(block.insns);
        if let Some(window) = &mut self.window {
            window.kernel_insns += u64::from(left);
        }
        for (n, segment) in block.segments.iter().enumerate() {
            if n > 0 && left == 0 {
                break;
            }
            let flow = if n == 0 { self.flow } else { Flow::Sequential };
            if mem::take(&mut self.unaddressed) {
                // It did not get so far if a fault follows: `rep` before it counts
                // more than once, and may have made up for the rest.
                let role = self.role(segment.symbol);
                self.losses.calls_without_address += u64::from(!(role.entry || role.interrupt));
            }
            let entered = self.arrive(flow, segment, block.start);
            // A block may count more than it is long, if `rep` repeats in it.
            let last = n + 1 == block.segments.len();
            let insns = if last { left } else { left.min(segment.insns) };
            left -= insns;
            if segment.symbol == UNKNOWN {
                self.losses.insns_without_symbol += u64::from(insns);
            }
            self.charge(insns, u32::from(entered));
        }
    }

    fn flow_after(&mut self, block: &Block, running: &Running) -> Flow {
        if running.ran.is_some_and(|ran| ran < block.insns) {
            return Flow::Sequential;
        }
        match (block.kind, running.call, running.ret) {
            (Kind::Call, Some(sp), _) => Flow::Call {
                sp,
                returns_to: block.end,
            },
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

    /// Bring the stack to where control is now. Whether a function was entered.
    fn arrive(&mut self, flow: Flow, segment: &Segment, address: u64) -> bool {
        // First, for the next interrupt may come before anything else runs.
        let flow = if flow == Flow::Iret {
            self.iret()
        } else {
            flow
        };
        let symbol = segment.symbol;
        let role = self.role(symbol);
        // What comes back to the middle of an entry stub is no new entry.
        if (role.interrupt || role.entry) && (segment.at_entry || role.stubs) {
            // A stub of the entry code that goes on to the next one.
            let within = flow == Flow::Sequential
                && self.current.frames.last().is_some_and(|top| {
                    let top_role = self.role(top.symbol);
                    top_role.interrupt || top_role.entry
                });
            if !within {
                if flow == Flow::User {
                    self.pop_to(0, true);
                }
                self.push(symbol, Why::Entered { interrupted: flow });
                return true;
            }
        }
        match flow {
            Flow::User => {
                self.pop_to(0, true);
                self.push(symbol, Why::Entered { interrupted: flow });
                true
            }
            Flow::Call { sp, returns_to } => {
                // A call within it (to fill the return buffer) is no switch.
                if role.exec
                    && let Some(thread) = &mut self.current.thread
                {
                    thread.exec = true;
                }
                if role.task_switch && segment.at_entry {
                    self.current.id = Some(stack_id(sp));
                    self.switching = true;
                }
                self.push(symbol, Why::Called { sp, returns_to });
                true
            }
            Flow::Ret { sp } => {
                self.ret(sp, address);
                self.on(symbol)
            }
            Flow::Sequential | Flow::Iret => self.on(symbol),
        }
    }

    /// Without a call: the same function, the one that jumped here, or a jump.
    fn on(&mut self, symbol: Symbol) -> bool {
        let frames = &self.current.frames;
        let Some(top) = frames.last() else {
            self.push(symbol, Why::Found);
            return true;
        };
        if top.symbol == symbol {
            return false;
        }
        // Back from a cold part, say: look down the chain of jumps.
        let mut at = frames.len();
        while at > 0 && frames[at - 1].why == Why::Jumped {
            at -= 1;
            if at > 0 && frames[at - 1].symbol == symbol {
                self.pop_to(at, true);
                return false;
            }
        }
        self.push(symbol, Why::Jumped);
        true
    }

    /// End an interrupt or exception; the flow that it interrupted.
    fn iret(&mut self) -> Flow {
        let entered = self
            .current
            .frames
            .iter()
            .rposition(|f| matches!(f.why, Why::Entered { .. }));
        let Some(at) = entered else {
            self.pop_to(0, false);
            return Flow::Sequential;
        };
        let interrupted = match self.current.frames[at].why {
            Why::Entered { interrupted } => interrupted,
            _ => Flow::Sequential,
        };
        self.pop_to(at, true);
        interrupted
    }

    fn ret(&mut self, sp: u64, address: u64) {
        let frames = &self.current.frames;
        let floor = frames
            .iter()
            .rposition(|f| matches!(f.why, Why::Entered { .. }))
            .map_or(0, |entry| entry + 1);
        let found = frames[floor..]
            .iter()
            .rposition(|f| matches!(f.why, Why::Called { sp: s, .. } if s == sp))
            // error_entry moves its own return address before it returns.
            .or_else(|| {
                frames[floor..].iter().rposition(
                    |f| matches!(f.why, Why::Called { returns_to, .. } if returns_to == address),
                )
            });
        match found {
            Some(at) => self.pop_to(floor + at, true),
            None => {
                // What was called further down the same stack is left behind by
                // the return: calls that fill the return buffer.
                let live = |s: u64| stack_id(s) != stack_id(sp) || s > sp;
                if frames[floor..]
                    .iter()
                    .any(|f| matches!(f.why, Why::Called { sp: s, .. } if live(s)))
                {
                    self.losses.unmatched_returns += 1;
                }
                self.pop_to(floor, false);
            }
        }
    }

    fn push(&mut self, symbol: Symbol, why: Why) {
        if self.current.frames.len() >= MAX_DEPTH {
            self.losses.stacks_given_up += 1;
            self.pop_to(0, false);
        }
        let role = self.role(symbol);
        let below = self.current.frames.last().copied();
        let task = if self.current.workload {
            Context::Task
        } else {
            Context::OtherTask
        };
        let base = Tag {
            context: Some(task),
            in_packet: false,
            completion: false,
        };
        let mut tag = below.map_or(base, |f| f.tag);
        let mut parent = match below {
            Some(below) => Some(below.node),
            None => self.thread_top(),
        };
        let mut opens_scope = false;
        let mut opens_packet = false;

        if role.interrupt && matches!(why, Why::Entered { .. }) {
            opens_scope = true;
            parent = None;
            tag = Tag {
                context: Some(Context::Hardirq),
                in_packet: false,
                completion: false,
            };
            self.current.scopes.push(Scope {
                of: Of::Interrupt,
                ..Scope::default()
            });
        } else if matches!(why, Why::Entered { .. }) {
            // A fault within the kernel stays what it interrupted, a child of it.
        } else if role.softirq && below.is_none_or(|f| f.tag.context.is_some()) {
            opens_scope = true;
            parent = None;
            tag = Tag {
                context: None,
                in_packet: false,
                completion: false,
            };
            self.current.scopes.push(Scope::default());
        } else if role.threaded_interrupt && self.current.scopes.is_empty() {
            // It stays the thread's time, of the packet whose softirq it raises.
            opens_scope = true;
            self.current.scopes.push(Scope {
                of: Of::Thread,
                ..Scope::default()
            });
        } else if let (Some(vector), None) = (role.vector, tag.context) {
            tag.context = Some(Context::Softirq(vector));
        }
        if let Some(scope) = self.current.scopes.last_mut() {
            if role.packet && !tag.in_packet && scope.of == Of::Softirqs {
                opens_packet = true;
                tag.in_packet = true;
                scope.reached = 0;
            }
            if tag.in_packet {
                scope.reached |= role.reaches;
            }
            tag.completion |= role.completion;
            scope.timer |= scope.of == Of::Interrupt && role.timer;
        }
        let node = self.node(parent, symbol, why == Why::Jumped);
        let mut window = 0;
        if let Some(open) = &mut self.window {
            open.entered += 1;
            window = self.window_number;
        }
        self.current.frames.push(Frame {
            symbol,
            node,
            why,
            tag,
            opens_scope,
            opens_packet,
            window,
        });
    }

    /// End all frames from `depth` up; `returned` if they ended as they should.
    fn pop_to(&mut self, depth: usize, returned: bool) {
        while self.current.frames.len() > depth {
            let Some(frame) = self.current.frames.pop() else {
                return;
            };
            if let Some(open) = &mut self.window
                && returned
                && frame.window == self.window_number
            {
                open.returned += 1;
            }
            if frame.opens_packet
                && let Some(scope) = self.current.scopes.last_mut()
            {
                let reached = scope.reached;
                scope.packets.push(reached);
            }
            if frame.opens_scope
                && let Some(scope) = self.current.scopes.pop()
            {
                let around = self.current.scopes.len().checked_sub(1);
                self.end_scope(&scope, around);
            }
        }
    }

    fn charge(&mut self, insns: u32, calls: u32) {
        if self.window.is_none() {
            return;
        }
        let Some(top) = self.current.frames.last() else {
            return;
        };
        let (node, tag) = (top.node, top.tag);
        if let Some(scope) = self.current.scopes.last_mut() {
            let packet = scope.packets.len() as u32;
            // Runs of one function are most of the stream.
            if let Some(last) = scope.events.last_mut()
                && last.node == node
                && last.packet == packet
                && last.tag == tag
            {
                last.insns += insns;
                last.calls += calls;
                return;
            }
            scope.events.push(Event {
                node,
                insns,
                calls,
                tag,
                packet,
            });
            return;
        }
        let context = tag.context.unwrap_or(Context::OtherTask);
        let direction = match context {
            _ if self.user.is_some() => Direction::Run,
            Context::Task => self.current.doing.unwrap_or(Direction::Other),
            _ => Direction::Other,
        };
        if let Some(window) = &mut self.window {
            window.add(direction, context, node, calls, insns);
        }
    }

    /// A scope ends, or as much of it as there is; `around` is the one that it is in.
    fn end_scope(&mut self, scope: &Scope, around: Option<usize>) {
        let window = &mut self.window;
        let run = self.user.is_some();
        let direction = resolve(scope, self.rules, &mut |direction, context, event| {
            if let Some(window) = window {
                let direction = if run { Direction::Run } else { direction };
                window.add(direction, context, event.node, event.calls, event.insns);
            }
        });
        if let Some(outer) = around.and_then(|n| self.current.scopes.get_mut(n))
            && outer.of != Of::Softirqs
            && scope.of == Of::Softirqs
            && outer.softirq_direction.is_none()
        {
            outer.softirq_direction = Some(direction);
        }
    }

    fn settle_scopes(&mut self) {
        // From the inside out: an interrupt is of what its softirqs were.
        for index in (0..self.current.scopes.len()).rev() {
            let scope = &mut self.current.scopes[index];
            let done = Scope {
                events: mem::take(&mut scope.events),
                ..scope.clone()
            };
            self.end_scope(&done, index.checked_sub(1));
        }
    }

    /// The stack changed: go on with the task that it belongs to.
    fn switch_to(&mut self, id: u64) {
        self.switching = false;
        // A task can be switched from at the end of an interrupt; what that did
        // so far is accounted for now, the rest when the task comes back.
        self.settle_scopes();
        let next = self.newborn(id).or_else(|| self.others.remove(&id));
        let next = next.unwrap_or_else(|| Task {
            id: Some(id),
            ..Task::default()
        });
        let before = mem::replace(&mut self.current, next);
        if let Some(id) = before.id {
            self.others.insert(id, before);
        }
    }
}
