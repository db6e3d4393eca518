//! Stacks that were sampled: where they are as soon as they arrive, while their processes may still
//! be there; their functions when a window is closed, for all new ones at once.

use std::collections::{BTreeSet, HashMap, HashSet};

use netplumb_model::class::Context;
use netplumb_sys::perf::changes::Change;

use super::super::arrived::{Copied, Place, Who};
use super::super::files::{Files, Within};
use super::super::kernel::{self, Kernel};
use super::super::owner::context;
use super::super::spaces::Spaces;
use super::super::tree::Functions;
use super::super::unwind::Unwinders;
use super::user::{Unwound, UserFrames, continued, holds, named};
use crate::live::LiveError;

/// Stacks that are kept, however many there are.
const MAX_STACKS: usize = 1 << 18;
/// Waits whose stacks were unwound, and that go on.
const MAX_WAITING: usize = 1 << 16;

/// What a stack stands for.
#[derive(Debug)]
pub(super) struct StackPlace {
    pub(super) place: Place,
    /// Where its user code is by frame pointers, where the task was first.
    within: Vec<Option<Within>>,
    /// Where it is, if frame pointers hold for it.
    settled: Option<Unwound>,
    /// How many bytes of a copy were needed, at most.
    needed_bytes: u32,
    /// Whether what follows is known.
    named: bool,
    /// The functions of the kernel, where it was first.
    pub(super) kernel: Vec<u32>,
    pub(super) context: Context,
    pub(super) user: UserFrames,
}

/// Samples with the same functions on their stacks: how many at each place that the task was at.
pub(super) type Places = HashMap<Option<Within>, u64>;

/// Samples with the same user stack: when they were taken, too.
#[derive(Debug, Default)]
pub(super) struct Moments {
    pub(super) places: Places,
    pub(super) times_ns: Vec<u64>,
}

/// A wait: the thread, and when it began.
pub(super) type WaitId = (u32, u64);

/// All stacks that were met.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    /// By hash.
    all: HashMap<u64, StackPlace>,
    pub(super) spaces: Spaces,
    pub(super) files: Files,
    kernel: Kernel,
    functions: Functions,
    unwinders: Unwinders,
    /// User stacks that were unwound, by the hash of their samples: when.
    unwound: HashMap<u64, HashMap<Unwound, Vec<u64>>>,
    /// The same of waits, until they end, and the hash of their stacks.
    of_waits: HashMap<WaitId, (u64, Unwound)>,
    /// How many bytes of the stacks are needed to unwind them, by hash, for stacks that were met
    /// since the last query; none: more than were copied.
    needed: HashMap<u64, Option<u32>>,
    /// Stacks of waits that there was no room for.
    pub(super) not_kept: u64,
}

impl StackPlace {
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
        // Each window reports it again.
        if let Some(known) = self.all.get(&place.hash) {
            let same = known.within == within;
            if same && (known.named || known.settled.is_some()) {
                return;
            }
            if known.settled.is_some() {
                self.needed.insert(place.hash, None);
            }
        }
        let found = StackPlace {
            within,
            settled: None,
            needed_bytes: 0,
            named: false,
            kernel: Vec::new(),
            context: Context::Task,
            user: UserFrames::default(),
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
        let (frames, whole, bytes) = self.unwinders.frames(copied, of, spaces, files);
        let bytes = u32::try_from(bytes).ok().filter(|_| bytes <= copied.bytes.len());
        let within = self.within(&frames, of);
        let Some(found) = self.all.get_mut(&copied.hash) else {
            return;
        };
        let needed = self.needed.entry(copied.hash).or_insert(Some(0));
        if found.settled.is_some() {
            // One of its last copies, or the kernel has forgotten it.
            *needed = Some(0);
        } else {
            found.needed_bytes = found.needed_bytes.max(bytes.unwrap_or(0));
            *needed = needed.and(bytes).map(|_| found.needed_bytes);
        }
        let unwound = continued((within, whole), &found.within);
        match copied.waits {
            Some(_) if self.of_waits.len() >= MAX_WAITING => self.not_kept += 1,
            Some(tid) => {
                (self.of_waits).insert((tid, copied.time_ns), (copied.hash, unwound));
            }
            None => {
                let known = self.unwound.entry(copied.hash).or_default();
                known.entry(unwound).or_default().push(copied.time_ns);
            }
        }
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

    /// Give stacks their functions if they have none yet, and so for user stacks of samples unwound
    /// and taken before a time, which are returned once.
    ///
    /// # Errors
    /// The kernel's symbols can't be read.
    pub(super) fn name(
        &mut self,
        hashes: &BTreeSet<u64>,
        before_ns: u64,
    ) -> Result<HashMap<u64, HashMap<UserFrames, Moments>>, LiveError> {
        let unwound = self.take_unwound(before_ns);
        let new: Vec<u64> = (hashes.iter().copied())
            .filter(|hash| self.all.get(hash).is_some_and(|found| !found.named))
            .collect();
        let found = || new.iter().filter_map(|hash| self.all.get(hash));
        let addresses = found().flat_map(|found| &found.place.kernel);
        let symbols = self.kernel.symbols(addresses)?;
        let of_unwound = unwound.values().flat_map(HashMap::keys);
        let of_unwound = of_unwound.chain(self.of_waits.values().map(|(_, unwound)| unwound));
        let within = found().flat_map(|found| &found.within);
        let within = within.chain(of_unwound.flat_map(|(within, _)| within));
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
            let user = match &found.settled {
                Some((within, whole)) => (&within[..], *whole),
                None => (&found.within[..], false),
            };
            found.user = named(&self.files, &mut self.functions, user);
            let mut within = found.within.iter().flatten();
            found.named = !within.any(|at| self.files.is_pending(*at));
            if found.named {
                // Their addresses are not needed any more.
                (found.place.kernel, found.place.frames) = Default::default();
            }
        }
        self.settle(&unwound);
        let mut counted: HashMap<u64, HashMap<UserFrames, Moments>> = HashMap::new();
        for (hash, stacks) in unwound {
            let of = counted.entry(hash).or_default();
            for ((within, whole), times_ns) in stacks {
                let leaf = within.first().copied().flatten();
                let named = named(&self.files, &mut self.functions, (&within, whole));
                let moments = of.entry(named).or_default();
                *moments.places.entry(leaf).or_default() += times_ns.len() as u64;
                moments.times_ns.extend(times_ns);
            }
        }
        Ok(counted)
    }

    /// Unwound samples from before a time.
    fn take_unwound(&mut self, before_ns: u64) -> HashMap<u64, HashMap<Unwound, Vec<u64>>> {
        let mut all = std::mem::take(&mut self.unwound);
        for (hash, stacks) in &mut all {
            for (unwound, times) in stacks {
                let later: Vec<u64> = times.extract_if(.., |time| *time >= before_ns).collect();
                if !later.is_empty() {
                    let of = self.unwound.entry(*hash).or_default();
                    of.insert(unwound.clone(), later);
                }
            }
        }
        all
    }

    /// Find the stacks whose frame pointers hold, by all of their copies that were unwound.
    fn settle(&mut self, unwound: &HashMap<u64, HashMap<Unwound, Vec<u64>>>) {
        let mut settled: HashMap<u64, Option<&Unwound>> = HashMap::new();
        let of_samples = (unwound.iter())
            .flat_map(|(hash, stacks)| stacks.keys().map(|unwound| (*hash, unwound)));
        let of_waits = self.of_waits.values();
        for (hash, unwound) in of_samples.chain(of_waits.map(|(hash, unwound)| (*hash, unwound))) {
            let Some(found) = self.all.get(&hash).filter(|f| f.settled.is_none()) else {
                continue;
            };
            let holds = holds(&self.files, unwound, &found.within).then_some(unwound);
            let of = settled.entry(hash).or_insert(holds);
            *of = of.and(holds);
        }
        for (hash, unwound) in settled {
            if let (Some((within, whole)), Some(found)) = (unwound, self.all.get_mut(&hash)) {
                found.user = named(&self.files, &mut self.functions, (within, *whole));
                found.settled = Some((within.clone(), *whole));
                self.needed.insert(hash, Some(0));
            }
        }
    }

    /// The functions of a stack that was unwound of a wait, after the last [naming](Self::name).
    pub(super) fn of_wait(&mut self, wait: WaitId) -> Option<UserFrames> {
        let (_, (within, whole)) = self.of_waits.get(&wait)?;
        Some(named(&self.files, &mut self.functions, (within, *whole)))
    }

    /// Keep the stacks that were unwound of these waits, and of waits that began at a time or later:
    /// the others have ended.
    pub(super) fn keep_waits(&mut self, open: &HashSet<WaitId>, since_ns: u64) {
        (self.of_waits).retain(|wait, _| wait.1 >= since_ns || open.contains(wait));
    }

    /// What a stack stands for, if it is known.
    pub(super) fn get(&self, hash: u64) -> Option<&StackPlace> {
        self.all.get(&hash)
    }

    /// All of them, and their functions.
    pub(super) fn parts(&mut self) -> (&HashMap<u64, StackPlace>, &mut Functions) {
        (&self.all, &mut self.functions)
    }

    /// Whether a stack whose names are known passes one of these functions of the kernel.
    pub(super) fn passes(&self, hash: u64, functions: &[&str]) -> bool {
        let is_one = |function: &u32| functions.contains(&self.functions.name(*function));
        let found = self.all.get(&hash);
        found.is_some_and(|found| found.kernel.iter().any(is_one))
    }

    /// Their functions.
    pub(super) fn functions(&self) -> &Functions {
        &self.functions
    }

    /// Forget them if they are too many: the kernel then hands them over again as it meets them.
    /// Returns how many bytes of user stacks are needed, by hash, where that has changed: none where
    /// it is not known.
    pub(super) fn bound(&mut self) -> HashMap<u64, Option<u32>> {
        let mut needed = std::mem::take(&mut self.needed);
        if self.all.len() > MAX_STACKS {
            let all = self.all.drain();
            let settled = all.filter(|(_, found)| found.settled.is_some());
            needed.extend(settled.map(|(hash, _)| (hash, None)));
        }
        needed
    }
}
