//! User code: whose functions it runs, and the stacks of a command's threads.
//!
//! Frames are matched by stack address, as the kernel's are. A thread is known by
//! its kernel stack; who made it, by the kernel's stores to that stack before its
//! first switch. Each thread is a root of the calling-context tree, a function of
//! its own with the name of its program: what it cost is the inclusive cost of its
//! root, system calls and faults included. A forked task goes on with the frames of its
//! maker, below its own root.
//!
//! Goroutines take turns on threads, and their stacks move. `runtime.mcall` leaves one,
//! and `runtime.gogo` goes on with one: a register has its address, and the stack
//! pointer shows by how much its frames have moved.

use netplumb_model::recording::{NodeId, THREAD_MODULE};
use rustc_hash::FxHashMap;

use super::frame::{Flow, Why};
use super::tree::Symbol;
use crate::image::{Image, ImageFunction, Images, Page, Place, readable};

/// Symbols of user code are numbered from here.
pub const FIRST_SYMBOL: Symbol = 1 << 30;
/// Stack addresses this far apart are on different stacks.
const STACK_BYTES: u64 = 8 << 20;
/// Maximum frame of a function that makes a task by a system call.
const FORKS_FRAME_BYTES: u64 = 4 << 10;
/// Deeper than this, what is called is shown below its thread's root.
pub(super) const MAX_DEPTH: usize = 400;
/// More frames than any stack holds: endless recursion.
pub(super) const MAX_FRAMES: usize = 1 << 20;

/// The name of code that no function of its file covers.
pub const UNKNOWN_CODE: &str = "[unknown]";
/// The module of code that is in no file.
pub const NO_FILE: &str = "(no file)";

/// A function of user code, or the root of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserSymbol {
    /// Its name, for people.
    pub name: String,
    /// Its file, or [`NO_FILE`], or [`THREAD_MODULE`].
    pub module: String,
    /// Its address in the file.
    pub address: u64,
    /// 0 for a thread, and for code without a symbol.
    pub size_bytes: u64,
    /// The file, by its number among those that were added; none without a file.
    pub image: Option<u32>,
}

/// A block of user code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserCode {
    /// The file, by its number among those that were added.
    pub image: u32,
    /// Of each instruction, its address in the file and its function.
    pub insns: Vec<(u64, Symbol)>,
}

/// A function that has not returned.
#[derive(Debug, Clone, Copy)]
pub(super) struct UserFrame {
    pub(super) symbol: Symbol,
    pub(super) node: NodeId,
    pub(super) why: Why,
    pub(super) window: u32,
}

/// What code does to goroutines, where the stack pointer shows less than elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Go {
    /// It is not Go's.
    No,
    /// None of the following.
    Code,
    /// Leaves the goroutine for the scheduler.
    Leaves,
    /// Jumps to where a goroutine goes on.
    Resumes,
}

impl Go {
    /// By a function's symbol, in a program in Go.
    fn from_symbol(symbol: &str) -> Go {
        match symbol.strip_suffix(".abi0").unwrap_or(symbol) {
            "runtime.mcall" => Go::Leaves,
            "runtime.gogo" | "gogo" => Go::Resumes,
            _ => Go::Code,
        }
    }
}

/// Frames of a goroutine that does not run, and the root of the thread that they are below.
#[derive(Debug, Clone)]
pub(super) struct Parked {
    pub(super) root: Symbol,
    pub(super) frames: Vec<UserFrame>,
}

/// What a thread is to the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ThreadRole {
    /// It is one of the command's: its number, from 1, as they first ran.
    Command(u32),
    /// It is a program that the agent started beside the command.
    Peer,
    /// It is the agent's.
    Agent,
}

/// The user half of a thread.
#[derive(Debug, Clone)]
pub(super) struct Thread {
    pub(super) part: ThreadRole,
    /// Programs that it has run before this one.
    pub(super) programs: u32,
    /// Symbol of its root.
    pub(super) symbol: Symbol,
    /// Its root, once it was needed in the window that is open.
    pub(super) root: Option<NodeId>,
    /// The program that it runs has a name.
    pub(super) named: bool,
    pub(super) frames: Vec<UserFrame>,
    pub(super) flow: Flow,
    /// A new program begins when it comes back to user mode.
    pub(super) exec: bool,
    /// Its address space, by a number.
    pub(super) process: u32,
    /// The goroutine whose frames these are, by the address of Go's data on it.
    pub(super) goroutine: Option<u64>,
    /// Its maker's frames, which are its own if it turns out to be on the same stack.
    pub(super) inherited: Vec<UserFrame>,
}

impl Thread {
    /// What it runs now, or else itself.
    pub(super) fn top(&self) -> Option<NodeId> {
        self.frames.last().map(|f| f.node).or(self.root)
    }
}

/// Who made a task.
#[derive(Debug, Clone)]
pub(super) struct Birth {
    pub(super) workload: bool,
    pub(super) maker: Option<Maker>,
}

/// A task with a user half that makes another one.
#[derive(Debug, Clone)]
pub(super) struct Maker {
    pub(super) part: ThreadRole,
    /// The symbol of its root, whose program the new one begins with.
    pub(super) root: Symbol,
    pub(super) process: u32,
    pub(super) frames: Vec<UserFrame>,
}

/// What only commands need.
#[derive(Debug)]
pub(super) struct User {
    images: Images,
    /// Of each image, whether it is a program in Go.
    go: Vec<bool>,
    symbols: Vec<UserSymbol>,
    /// What each symbol does to goroutines.
    kinds: Vec<Go>,
    /// By image and function.
    functions: FxHashMap<(u32, u32), Symbol>,
    /// Code without a file.
    nowhere: Option<Symbol>,
    /// By part, and programs run before.
    threads: FxHashMap<(ThreadRole, u32), Symbol>,
    /// Tasks that were made and have not run, by their stacks.
    pub(super) born: FxHashMap<u64, Birth>,
    /// Threads of the command so far.
    pub(super) numbered: u32,
    /// Address spaces so far.
    processes: u32,
    /// Goroutines that do not run, by their address space and address.
    pub(super) parked: FxHashMap<(u32, u64), Parked>,
    /// Blocks of the command that did not run as long as they are, in this window: by
    /// number and instructions, how often.
    pub(super) cut: FxHashMap<(u32, u32), u64>,
}

/// Where an address of user code is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UserPlace {
    pub(super) symbol: Symbol,
    /// The guest's addresses that the function covers.
    pub(super) start: u64,
    pub(super) end: u64,
}

impl User {
    pub(super) fn new(images: Images) -> User {
        let is_gogo = |function: &ImageFunction| function.name.starts_with("runtime.gogo");
        let is_go = |image: &Image| image.functions.iter().any(is_gogo);
        User {
            go: images.images().iter().map(is_go).collect(),
            images,
            symbols: Vec::new(),
            kinds: Vec::new(),
            functions: FxHashMap::default(),
            nowhere: None,
            threads: FxHashMap::default(),
            born: FxHashMap::default(),
            numbered: 0,
            processes: 0,
            parked: FxHashMap::default(),
            cut: FxHashMap::default(),
        }
    }

    pub(super) fn symbols(&self) -> &[UserSymbol] {
        &self.symbols
    }

    /// What a symbol's code does to goroutines.
    pub(super) fn go(&self, symbol: Symbol) -> Go {
        let index = symbol.checked_sub(FIRST_SYMBOL).map(|at| at as usize);
        index.and_then(|at| self.kinds.get(at)).copied().unwrap_or(Go::No)
    }

    /// A new address space.
    pub(super) fn process(&mut self) -> u32 {
        self.processes += 1;
        self.processes
    }

    fn add(&mut self, symbol: UserSymbol) -> Symbol {
        let is_go = symbol.image.is_some_and(|image| self.go[image as usize]);
        self.kinds.push(match is_go {
            true => Go::from_symbol(&symbol.name),
            false => Go::No,
        });
        self.symbols.push(symbol);
        FIRST_SYMBOL + (self.symbols.len() - 1) as Symbol
    }

    /// The image that a block starts the program of, if it does.
    pub(super) fn starts(&mut self, address: u64, page: Page) -> Option<u32> {
        let (place, _) = self.images.place(address, page)?;
        let image = &self.images.images()[place.image as usize];
        (image.entry != 0 && address.wrapping_sub(place.bias) == image.entry).then_some(place.image)
    }

    /// The file that code is in, if it is in one, and whether it may be in another, too.
    pub(super) fn place(&mut self, address: u64, page: Page) -> Option<(Place, bool)> {
        self.images.place(address, page)
    }

    /// The function at `address`, in code that begins in this page.
    pub(super) fn find(&mut self, first: u64, page: Page, address: u64) -> UserPlace {
        let Some((place, _)) = self.images.place(first, page) else {
            let symbol = match self.nowhere {
                Some(symbol) => symbol,
                None => self.add(UserSymbol {
                    name: UNKNOWN_CODE.into(),
                    module: NO_FILE.into(),
                    address: 0,
                    size_bytes: 0,
                    image: None,
                }),
            };
            self.nowhere = Some(symbol);
            return UserPlace { symbol, start: 0, end: u64::MAX };
        };
        let image = &self.images.images()[place.image as usize];
        let within = address.wrapping_sub(place.bias);
        let index = image.function(within);
        let key = (place.image, index.map_or(u32::MAX, |i| i as u32));
        let (start, end) = match index {
            Some(index) => {
                let function = &image.functions[index];
                (function.start.wrapping_add(place.bias), function.end.wrapping_add(place.bias))
            }
            // One instruction at a time: a function may begin after it.
            None => (address, address.saturating_add(1)),
        };
        if let Some(&symbol) = self.functions.get(&key) {
            return UserPlace { symbol, start, end };
        }
        let module = image.name.clone();
        let symbol = match index {
            Some(index) => {
                let function = &image.functions[index];
                UserSymbol {
                    name: readable(&function.name),
                    module,
                    address: function.start,
                    size_bytes: function.end - function.start,
                    image: Some(place.image),
                }
            }
            None => UserSymbol {
                name: UNKNOWN_CODE.into(),
                module,
                address: 0,
                size_bytes: 0,
                image: Some(place.image),
            },
        };
        let symbol = self.add(symbol);
        self.functions.insert(key, symbol);
        UserPlace { symbol, start, end }
    }

    /// A thread, at the start of a program.
    pub(super) fn thread(
        &mut self,
        part: ThreadRole,
        programs: u32,
        maker: Option<Symbol>,
    ) -> Thread {
        // Others' are one, however many they are.
        let programs = match part {
            ThreadRole::Command(_) => programs,
            ThreadRole::Peer | ThreadRole::Agent => 0,
        };
        let symbol = match self.threads.get(&(part, programs)) {
            Some(&symbol) => symbol,
            None => {
                let name = match part {
                    ThreadRole::Agent => "agent".to_string(),
                    ThreadRole::Peer => "peer".to_string(),
                    ThreadRole::Command(number) => {
                        let of = maker.and_then(|m| self.name(m));
                        rooted(of.as_deref().unwrap_or("command"), number)
                    }
                };
                let symbol = self.add(UserSymbol {
                    name,
                    module: THREAD_MODULE.into(),
                    address: 0,
                    size_bytes: 0,
                    image: None,
                });
                self.threads.insert((part, programs), symbol);
                symbol
            }
        };
        Thread {
            part,
            programs,
            symbol,
            root: None,
            named: false,
            frames: Vec::new(),
            flow: Flow::Sequential,
            exec: false,
            process: self.process(),
            goroutine: None,
            inherited: Vec::new(),
        }
    }

    /// The program of a thread's root.
    fn name(&self, root: Symbol) -> Option<String> {
        let name = &self.symbols.get((root - FIRST_SYMBOL) as usize)?.name;
        Some(match name.rsplit_once(" #") {
            Some((program, _)) => program.to_string(),
            None => name.clone(),
        })
    }

    /// A thread runs the program of an image from here on.
    pub(super) fn rename(&mut self, thread: &mut Thread, image: u32, fresh: bool) {
        if !fresh && !self.images.images()[image as usize].program {
            return;
        }
        thread.named = true;
        let ThreadRole::Command(number) = thread.part else {
            return;
        };
        let name = rooted(&self.images.images()[image as usize].name, number);
        if let Some(symbol) = self.symbols.get_mut((thread.symbol - FIRST_SYMBOL) as usize) {
            symbol.name = name;
        }
    }
}

/// The name of a root.
fn rooted(program: &str, number: u32) -> String {
    match number {
        1 => program.to_string(),
        number => format!("{program} #{number}"),
    }
}

/// Whether a task that begins at `sp` is on the stack of its maker, and in the same function.
pub(super) fn is_forked(frames: &[UserFrame], sp: u64) -> bool {
    let called = frames.iter().rev().find_map(|frame| match frame.why {
        Why::Called { sp, .. } => Some(sp),
        _ => None,
    });
    // vfork takes its return address off the stack meanwhile.
    called.is_some_and(|called| {
        (called.saturating_sub(FORKS_FRAME_BYTES)..=called.saturating_add(8)).contains(&sp)
    })
}

/// Whether a frame of a call that stored its return address at `frame` is over when
/// the stack pointer is at `sp`, above it.
pub(super) fn is_over(frame: u64, sp: u64) -> bool {
    frame < sp && sp - frame < STACK_BYTES
}
