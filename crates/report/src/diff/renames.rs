//! Functions that are the same under another name: one that is gone and one that
//! is new, at the same place of the call tree, entered as often, at a similar cost.
//!
//! Only between different kernels: in one kernel a name is a function. A pair is
//! joined only if neither fits anything else, so a doubt leaves both as they are.

use std::collections::{BTreeMap, BTreeSet};

use super::exact::PerPacket;
use super::functions::{Functions, JointId};
use super::tree::UnionTree;

/// Costs may differ by this part...
const ALIKE: f64 = 0.25;
/// ...or by this many instructions a call.
const ALIKE_INSNS: f64 = 8.0;
/// And calls by this part.
const ALIKE_CALLS: f64 = 0.02;
/// A chain of renamed functions is found from its ends, one at a time.
const ROUNDS: usize = 4;

/// The trees of every class, and its packets before and after.
pub(super) type Trees = Vec<(Vec<UnionTree>, (u64, u64))>;

/// A class's trees, and its packets before and after.
pub(super) struct Place<'a> {
    pub(super) trees: &'a [UnionTree],
    pub(super) packets: (u64, u64),
}

/// A function's place and cost per packet, over all classes.
#[derive(Debug, Default, Clone)]
struct Profile {
    /// Callers that both sides have; none for where a context begins.
    callers: BTreeSet<Option<JointId>>,
    /// Callees that both sides have.
    callees: BTreeSet<JointId>,
    calls: f64,
    self_insns: f64,
    inclusive_insns: f64,
}

/// Join renamed functions. Returns whether any were joined: then the trees have to be made anew.
pub(super) fn join(
    functions: &mut Functions,
    what: &str,
    places: &dyn Fn(&Functions) -> Trees,
) -> bool {
    let mut any = false;
    for _ in 0..ROUNDS {
        let gone = functions.joints.iter().any(|j| j.is_gone());
        let new = functions.joints.iter().any(|j| j.is_new());
        if !(gone && new) {
            break;
        }
        let made = places(functions);
        let places: Vec<Place<'_>> =
            made.iter().map(|(trees, packets)| Place { trees, packets: *packets }).collect();
        let found = find(functions, what, &places);
        if found.is_empty() {
            break;
        }
        any = true;
        for (gone, new, why) in found {
            functions.join(gone, new, why);
        }
    }
    any
}

/// Pairs where each is the other's only candidate.
pub(super) fn find(
    functions: &Functions,
    what: &str,
    places: &[Place<'_>],
) -> Vec<(JointId, JointId, String)> {
    let profiles = profiles(functions, places);
    let of = |wanted: fn(&super::functions::Joint) -> bool| {
        profiles.iter().filter(move |(id, _)| wanted(&functions.joints[**id as usize]))
    };
    let mut candidates: Vec<(JointId, JointId)> = Vec::new();
    for (gone, was) in of(|j| j.is_gone()) {
        for (new, is) in of(|j| j.is_new()) {
            if fits(was, is) {
                candidates.push((*gone, *new));
            }
        }
    }
    candidates
        .iter()
        .filter(|(gone, new)| {
            candidates
                .iter()
                .filter(|(g, n)| g == gone || n == new)
                .count()
                == 1
        })
        .map(|(gone, new)| {
            let (was, is) = (&profiles[gone], &profiles[new]);
            let why = format!(
                "{what}: the same callers and callees, as many calls, {:.0} and {:.0} instructions of its own",
                was.self_insns, is.self_insns
            );
            (*gone, *new, why)
        })
        .collect()
}

fn fits(was: &Profile, is: &Profile) -> bool {
    let near = |a: f64, b: f64, calls: f64| {
        let most = a.max(b);
        (a - b).abs() <= (ALIKE * most).max(ALIKE_INSNS * calls)
    };
    let calls = was.calls.max(is.calls);
    calls > 0.0
        && !was.callers.is_empty()
        && was.callers == is.callers
        && was.callees == is.callees
        && (was.calls - is.calls).abs() <= ALIKE_CALLS * calls
        && near(was.self_insns, is.self_insns, calls)
        && near(was.inclusive_insns, is.inclusive_insns, calls)
}

fn profiles(functions: &Functions, places: &[Place<'_>]) -> BTreeMap<JointId, Profile> {
    let mut profiles: BTreeMap<JointId, Profile> = BTreeMap::new();
    let joint = |id: JointId| &functions.joints[id as usize];
    let alone = |id: JointId| joint(id).is_gone() || joint(id).is_new();
    for place in places {
        for tree in place.trees {
            for node in &tree.nodes {
                let caller = node.parent.map(|p| tree.nodes[p as usize].function);
                if let Some(caller) = caller
                    && alone(caller)
                    && !alone(node.function)
                {
                    let profile = profiles.entry(caller).or_default();
                    profile.callees.insert(node.function);
                }
                if !alone(node.function) {
                    continue;
                }
                let (sum, inclusive, packets) = match joint(node.function).is_gone() {
                    true => (node.before, node.inclusive_before, place.packets.0),
                    false => (node.after, node.inclusive_after, place.packets.1),
                };
                let each = |sum| PerPacket { sum, packets }.value();
                let profile = profiles.entry(node.function).or_default();
                if caller.is_none_or(|c| !alone(c)) {
                    profile.callers.insert(caller);
                }
                profile.calls += each(sum.calls);
                profile.self_insns += each(sum.self_insns);
                if node.outermost {
                    profile.inclusive_insns += each(inclusive);
                }
            }
        }
    }
    profiles
}
