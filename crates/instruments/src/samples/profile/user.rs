//! User stacks: which of two ways to follow one holds, and where it begins.
//!
//! By frame pointers the kernel follows each stack at once, and misses the callers of functions that
//! keep none. Unwind tables give them all, from a copy of the stack, which costs more. So unwinding
//! shows for which stacks the frame pointers hold: these are copied no more.

use netplumb_model::timing::Met;

use super::super::UNKNOWN;
use super::super::files::{Files, Within, unknown};
use super::super::tree::Functions;
use crate::image::is_at_address;

/// Functions that threads begin with: a stack that ends there is whole.
const BEGINNINGS: &[&str] = &[
    "_start",
    "__libc_start_main",
    "__libc_start_main_impl",
    "__libc_start_call_main",
    "start_thread",
    "clone",
    "clone3",
    "__clone",
    "__clone3",
    "_dl_start",
    "_dl_start_user",
    "_dl_start_final",
    "_dl_relocate_object",
    "_dl_relocate_static_pie",
    "runtime.goexit",
    "runtime.mstart",
    "runtime.mstart0",
    "runtime.mstart1",
    "runtime.rt0_go",
    "_rt0_amd64",
    "_rt0_amd64_linux",
];

/// Names of the C library's files that begin threads: also as `libc-2.31.so`, and
/// `ld-linux-x86-64.so.2`.
const LIBC: &[&str] = &["libc.so", "libc-2", "ld-"];

/// Where the code of a stack is, where the task was first, and whether it was unwound to its end.
pub(super) type Unwound = (Vec<Option<Within>>, bool);

/// The functions of a stack of user code, and whether they end before one that a thread begins with.
pub(super) type UserFrames = (Vec<u32>, bool);

/// What was unwound, and where that ended early, the rest by frame pointers: the copy may be
/// too short, or code have no unwind tables.
pub(super) fn continued(
    (mut unwound, whole): Unwound,
    by_frame_pointers: &[Option<Within>],
) -> Unwound {
    let Some(last) = unwound.last().copied().flatten().filter(|_| !whole) else {
        return (unwound, whole);
    };
    // Of a function that calls itself, where most of what comes before is the same.
    let alike = |at: usize| {
        let before = by_frame_pointers.iter().take(at + 1).rev();
        let same = before.zip(unwound.iter().rev()).take_while(|(a, b)| a == b);
        same.count()
    };
    let at = (0..by_frame_pointers.len())
        .filter(|at| by_frame_pointers.get(*at) == Some(&Some(last)))
        .max_by_key(|at| (alike(*at), std::cmp::Reverse(*at)));
    if let Some(rest) = at.and_then(|at| by_frame_pointers.get(at + 1..)) {
        unwound.extend_from_slice(rest);
    }
    (unwound, whole)
}

/// The functions of a stack.
pub(super) fn named(
    files: &Files,
    functions: &mut Functions,
    (within, whole): (&[Option<Within>], bool),
) -> UserFrames {
    let mut user = met(files, within);
    let first = beginning(&user, whole);
    let cut = !whole && first.is_none() && !user.is_empty();
    user.truncate(first.map_or(user.len(), |first| first + 1));
    (user.into_iter().map(|met| functions.number(met)).collect(), cut)
}

fn met(files: &Files, within: &[Option<Within>]) -> Vec<Met> {
    let met = |at: &Option<Within>| match at {
        Some(at) => files.function(*at),
        None => unknown(None),
    };
    within.iter().map(met).collect()
}

/// Whether frame pointers hold for a stack: each function, up to the one its thread begins with, is
/// as it was unwound to the end. It is so then wherever its instructions are those.
pub(super) fn holds(
    files: &Files,
    (unwound, whole): &Unwound,
    by_frame_pointers: &[Option<Within>],
) -> bool {
    // One that was cut, and went on by frame pointers, proves nothing.
    let first = whole.then(|| beginning(&met(files, unwound), true));
    let same = unwound.iter().zip(by_frame_pointers);
    let same = same.take_while(|(unwound, by)| unwound == by).count();
    first.flatten().is_some_and(|first| same > first)
}

/// Where a thread begins on its stack, the function that is called last first: what comes after it is
/// how threads are made.
fn beginning(stack: &[Met], whole: bool) -> Option<usize> {
    match whole {
        true => {
            let makes = |met: &Met| is_beginning(&met.name) || is_nameless_libc(met);
            let after = stack.iter().rposition(|met| !makes(met));
            let after = after.map_or(0, |at| at + 1);
            (after < stack.len()).then_some(after)
        }
        // What is behind that is what a register happened to have.
        false => stack.iter().position(|met| is_beginning(&met.name)),
    }
}

/// Whether it is code of the C library that has no name: without its debug symbols, most of what makes
/// threads has none.
fn is_nameless_libc(met: &Met) -> bool {
    let of = met.module.as_deref().unwrap_or_default();
    let is_nameless = met.name == UNKNOWN || is_at_address(&met.name);
    is_nameless && LIBC.iter().any(|name| of.starts_with(name))
}

/// Whether threads begin with a function.
fn is_beginning(name: &str) -> bool {
    // As of `clone@@GLIBC_2.2.5`, and `runtime.goexit.abi0`.
    let name = name.split('@').next().unwrap_or_default();
    BEGINNINGS.contains(&name.strip_suffix(".abi0").unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(offsets: &[u64]) -> Vec<Option<Within>> {
        let within = |offset: &u64| Some(Within { file: 0, offset: *offset });
        offsets.iter().map(within).collect()
    }

    /// Check that a stack that was cut goes on where frame pointers have the same caller, also of a
    /// function that calls itself, and otherwise stays as it is.
    #[test]
    fn continues() {
        let of =
            |unwound: &[u64], whole, by: &[u64]| continued((stack(unwound), whole), &stack(by)).0;
        // Frame pointers miss 2, the caller of a function without a frame.
        assert_eq!(of(&[1, 2, 3], false, &[1, 3, 4, 5]), stack(&[1, 2, 3, 4, 5]));
        assert_eq!(of(&[1, 2, 3], true, &[1, 3, 4, 5]), stack(&[1, 2, 3]));
        assert_eq!(of(&[1, 2, 3], false, &[1, 7, 8]), stack(&[1, 2, 3]));
        let recursive = [1, 3, 3, 3, 4];
        assert_eq!(of(&[1, 3, 3], false, &recursive), stack(&recursive));
        assert_eq!(of(&[1], false, &recursive), stack(&recursive));
        assert!(of(&[], false, &recursive).is_empty());
    }

    /// Check where threads begin: with the innermost of the functions that make them, if the stack is
    /// whole, and if not, with the first.
    #[test]
    fn begins() {
        let beginning = |names: &[&str], whole| {
            let met = |name: &&str| Met {
                name: name.to_string(),
                module: Some("libc.so.6".into()),
                ..Met::default()
            };
            super::beginning(&names.iter().map(met).collect::<Vec<_>>(), whole)
        };
        let whole = ["work", "main", "__libc_start_call_main", "__libc_start_main_impl", "_start"];
        assert_eq!(beginning(&whole, true), Some(2));
        assert_eq!(beginning(&whole[..2], true), None);
        let own = ["work", "clone", "main", "__libc_start_main@@GLIBC_2.34", "_start"];
        assert_eq!(beginning(&own, true), Some(3));
        assert_eq!(beginning(&own, false), Some(1));
        assert_eq!(beginning(&["_start"], true), Some(0));
        // Without debug symbols of the C library.
        let nameless = ["work", UNKNOWN, "main", "[0x271d0]", "__libc_start_main", "_start"];
        assert_eq!(beginning(&nameless, true), Some(3));
        assert_eq!(beginning(&["work", UNKNOWN, UNKNOWN], true), Some(1));
        assert_eq!(beginning(&["work", UNKNOWN], false), None);
        assert!(!is_beginning("clone_repository") && !is_beginning("_startle"));
        assert!(is_beginning("runtime.goexit.abi0"));
    }
}
