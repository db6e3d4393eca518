//! Stacks that were sampled: where they are as soon as they arrive, while their processes may still
//! be there; their functions when a window is closed, those of all new ones at once.

use std::collections::{BTreeSet, HashMap};

use netplumb_model::class::Context;
use netplumb_sys::perf::changes::Change;

use super::super::arrived::{Copied, Place, Who};
use super::super::files::{Files, Within, unknown};
use super::super::kernel::{self, Kernel};
use super::super::owner::context;
use super::super::spaces::Spaces;
use super::super::tree::Functions;
use super::super::unwind::Unwinders;
use crate::live::LiveError;

/// Stacks that are kept, however many there are.
const MAX_STACKS: usize = 1 << 18;
/// Functions that threads begin with: a stack that ends there is whole.
const BEGINNINGS: &[&str] = &[
    "_start",
    "__libc_start",
    "start_thread",
    "clone",
    "__clone",
    "_dl_start",
    "_dl_relocate",
    "runtime.goexit",
    "runtime.mstart",
    "runtime.rt0_go",
    "_rt0_",
];

/// What a stack stands for.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) place: Place,
    /// Where its user code is, where the task was first.
    within: Vec<Option<Within>>,
    /// Whether what follows is known.
    named: bool,
    /// The functions of the kernel, where it was first.
    pub(super) kernel: Vec<u32>,
    pub(super) context: Context,
    pub(super) user: Named,
}

/// The functions of a stack of user code, and whether they end before one that a thread begins with.
pub(super) type Named = (Vec<u32>, bool);

/// The same before they have names, and whether it was unwound to its end.
type Unwound = (Vec<Option<Within>>, bool);

/// Samples with the same functions on their stacks: how many at each place that the task was at.
pub(super) type Places = HashMap<Option<Within>, u64>;

/// All stacks that were met.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    /// By hash.
    all: HashMap<u64, Found>,
    pub(super) spaces: Spaces,
    pub(super) files: Files,
    kernel: Kernel,
    functions: Functions,
    unwinders: Unwinders,
    /// User stacks that were unwound, by the hash of their samples: how often each.
    unwound: HashMap<u64, HashMap<Unwound, u64>>,
}

impl Found {
    /// Where the task was, if that was user code.
    pub(super) fn leaf(&self) -> Option<Within> {
        self.within.first().copied().flatten()
    }
}

impl Stacks {
    /// Follow a change of a process.
    pub(super) fn follow(&mut self, time_ns: u64, change: Change) {
        self.spaces.follow(time_ns, change, &mut self.files);
    }

    /// Add one: find out where it is. Its process may be gone later.
    pub(super) fn add(&mut self, place: Place) {
        let within = match place.who {
            Who::Process(pid) => self.within(&place.frames, (pid, place.time_ns)),
            Who::Idle | Who::Foreign => vec![None; place.frames.len()],
        };
        // Each window tells of it again.
        let known = self.all.get(&place.hash);
        if known.is_some_and(|found| found.named && found.within == within) {
            return;
        }
        let found = Found {
            within,
            named: false,
            kernel: Vec::new(),
            context: Context::Task,
            user: Named::default(),
            place,
        };
        self.all.insert(found.place.hash, found);
    }

    /// Unwind a copy of a user stack.
    pub(super) fn unwind(&mut self, copied: &Copied) {
        let Some(found) = self.all.get(&copied.hash) else {
            return;
        };
        let Who::Process(pid) = found.place.who else {
            return;
        };
        let of = (pid, copied.time_ns);
        if !self.spaces.knows(pid) {
            self.spaces.read(Some(pid), &mut self.files);
        }
        let (spaces, files) = (&self.spaces, &mut self.files);
        let (frames, whole) = self.unwinders.frames(copied, of, spaces, files);
        let user = self.within(&frames, of);
        let known = self.unwound.entry(copied.hash).or_default();
        *known.entry((user, whole)).or_default() += 1;
    }

    /// Where some addresses of user code are, where the task was first. Its process may be gone
    /// later.
    fn within(&mut self, frames: &[u64], (pid, time_ns): (u32, u64)) -> Vec<Option<Within>> {
        if !frames.is_empty() && !self.spaces.knows(pid) {
            self.spaces.read(Some(pid), &mut self.files);
        }
        let mut within = Vec::with_capacity(frames.len());
        for (depth, address) in frames.iter().enumerate() {
            // Callers go by the instruction that calls.
            let at = address - u64::from(depth > 0 && *address > 0);
            let place = self.spaces.place(pid, time_ns, at);
            // What is in no mapping is what a register happened to have.
            if place.is_none() && depth > 0 {
                break;
            }
            if let Some(place) = place {
                self.files.hold(place.file, pid);
            }
            within.push(place);
        }
        within
    }

    /// Give stacks their functions, if they have none yet, and the user stacks that were unwound
    /// since this was done last theirs, which are returned.
    ///
    /// # Errors
    /// The kernel's symbols can't be read.
    pub(super) fn name(
        &mut self,
        hashes: &BTreeSet<u64>,
    ) -> Result<HashMap<u64, HashMap<Named, Places>>, LiveError> {
        let unwound = std::mem::take(&mut self.unwound);
        let new: Vec<u64> = (hashes.iter().copied())
            .filter(|hash| self.all.get(hash).is_some_and(|found| !found.named))
            .collect();
        let found = || new.iter().filter_map(|hash| self.all.get(hash));
        let addresses = found().flat_map(|found| &found.place.kernel);
        let symbols = self.kernel.symbols(addresses)?;
        let of_unwound = unwound.values().flat_map(HashMap::keys);
        let of_unwound = of_unwound.flat_map(|(within, _)| within);
        let within = found().flat_map(|found| &found.within).chain(of_unwound);
        self.files.find(within.flatten().copied());
        for hash in &new {
            let Some(found) = self.all.get_mut(hash) else {
                continue;
            };
            let stack = kernel::found(symbols, &found.place.kernel);
            let names: Vec<&str> = stack.iter().map(|at| kernel::name(symbols, *at)).collect();
            found.context = context(&names);
            let met = |at: &Option<usize>| self.functions.number(kernel::met(symbols, *at));
            found.kernel = stack.iter().map(met).collect();
            found.user = named(&self.files, &mut self.functions, &found.within, false);
            let mut within = found.within.iter().flatten();
            found.named = !within.any(|at| self.files.is_pending(*at));
            if found.named {
                // What they are made of is not needed any more.
                (found.place.kernel, found.place.frames) = Default::default();
            }
        }
        let mut counted: HashMap<u64, HashMap<Named, Places>> = HashMap::new();
        for (hash, stacks) in unwound {
            let of = counted.entry(hash).or_default();
            for ((within, whole), samples) in stacks {
                let leaf = within.first().copied().flatten();
                let named = named(&self.files, &mut self.functions, &within, whole);
                *of.entry(named).or_default().entry(leaf).or_default() += samples;
            }
        }
        Ok(counted)
    }

    /// What a stack stands for, if it is known.
    pub(super) fn get(&self, hash: u64) -> Option<&Found> {
        self.all.get(&hash)
    }

    /// All of them, and their functions.
    pub(super) fn parts(&mut self) -> (&HashMap<u64, Found>, &mut Functions) {
        (&self.all, &mut self.functions)
    }

    /// Their functions.
    pub(super) fn functions(&self) -> &Functions {
        &self.functions
    }

    /// Forget them if they are too many: the kernel then hands over again those that it meets again.
    pub(super) fn bound(&mut self) {
        if self.all.len() > MAX_STACKS {
            self.all.clear();
        }
    }
}

/// The functions of user code, where the task was first, and whether they end before one that a
/// thread begins with.
fn named(
    files: &Files,
    functions: &mut Functions,
    within: &[Option<Within>],
    whole: bool,
) -> Named {
    let met = |at: &Option<Within>| match at {
        Some(at) => files.function(*at),
        None => unknown(None),
    };
    let mut user: Vec<u32> = within.iter().map(|at| functions.number(met(at))).collect();
    let begins = |at: &u32| is_beginning(functions.name(*at));
    // By frame pointers, what is behind that is what a register happened to have.
    if let Some(first) = user.iter().position(begins).filter(|_| !whole) {
        user.truncate(first + 1);
        return (user, false);
    }
    let cut = !whole && !user.is_empty();
    (user, cut)
}

/// Whether threads begin with a function.
fn is_beginning(name: &str) -> bool {
    BEGINNINGS.iter().any(|begins| name.starts_with(begins))
}
