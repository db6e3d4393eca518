//! Two guests that run together: whatever ends one of them ends the other.

use std::thread;

use super::process::{Guest, VmError};
use super::wire::OTHER_HAS_ENDED;

/// Why two guests ended.
#[derive(Debug)]
pub struct PairError {
    /// The guest that was the cause, by its number; none if both hang, and it may be either.
    pub guest: Option<usize>,
    /// The error of the guest that was the cause.
    pub error: VmError,
}

/// Run both, each in a thread with its guest. If one fails, its guest is ended at once; the wire then ends the other.
///
/// # Errors
/// The first cause.
pub fn together<T: Send>(
    guests: [Guest; 2],
    run: impl Fn(usize, &mut Guest) -> Result<T, VmError> + Sync,
) -> Result<[T; 2], PairError> {
    let run = &run;
    let outcome = thread::scope(|scope| {
        let mut number = 0;
        let threads = guests.map(|mut guest| {
            let of = number;
            number += 1;
            scope.spawn(move || {
                let result = run(of, &mut guest);
                // A guest that is done answers the other until that is done too.
                result.map(|value| (value, guest))
            })
        });
        threads.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    match outcome {
        [Ok((one, of_one)), Ok((other, of_other))] => {
            // Both are ended before either is waited for: an idle guest computes all the time, and on a shared CPU the
            // other one's end was noticed after minutes.
            [of_one, of_other].iter().for_each(Guest::kill);
            Ok([one, other])
        }
        [Err(one), Err(other)] => Err(cause(one, other)),
        [Err(one), _] => Err(only(0, one)),
        [_, Err(other)] => Err(only(1, other)),
    }
}

fn only(guest: usize, error: VmError) -> PairError {
    PairError { guest: Some(guest), error }
}

/// The cause of two ends. If one of two guests in step hangs, both fall silent: the cause is only known if a guest was
/// stopped.
fn cause(one: VmError, other: VmError) -> PairError {
    let is_stopped = |error: &VmError| matches!(error, VmError::QemuStopped { .. });
    let hangs = |error: &VmError| error.is_silence() && !is_stopped(error);
    let (number, error, of_other) =
        match is_consequence(&one) || (is_stopped(&other) && !is_stopped(&one)) {
            true => (1, other, one),
            false => (0, one, other),
        };
    let both = hangs(&error) && (of_other.is_silence() || is_consequence(&of_other));
    PairError { guest: (!both).then_some(number), error }
}

/// Whether a guest ended only because the other one did.
fn is_consequence(error: &VmError) -> bool {
    match error {
        VmError::QemuFailed { stderr, .. } => {
            stderr.iter().any(|line| line.contains(OTHER_HAS_ENDED))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the other host's end is not taken for a cause.
    #[test]
    fn causes() {
        let failed = |said: &str| VmError::QemuFailed {
            status: "exit status: 3".into(),
            stderr: vec![said.into()],
            console: Vec::new(),
        };
        let gone = format!("netplumb: wire of host rx: {OTHER_HAS_ENDED}");
        assert!(is_consequence(&failed(&gone)));
        assert!(!is_consequence(&failed("netplumb: no wire")));
        assert!(!is_consequence(&VmError::Interrupted));
    }

    /// Check which of two guests is blamed: the one whose end ended the other, one that was stopped, and neither if
    /// both just fall silent.
    #[test]
    fn which_of_them() {
        let killed = || VmError::QemuFailed {
            status: "signal: 9 (SIGKILL)".into(),
            stderr: Vec::new(),
            console: Vec::new(),
        };
        let gone = || VmError::QemuFailed {
            status: "exit status: 3".into(),
            stderr: vec![format!("netplumb: wire of host rx: {OTHER_HAS_ENDED}")],
            console: Vec::new(),
        };
        let silent = || VmError::Timeout { what: "answer", seconds: 30, console: Vec::new() };
        let stopped = || VmError::QemuStopped { what: "answer".into(), seconds: 30 };
        for (one, other, guest) in [
            (killed(), gone(), Some(0)),
            (gone(), killed(), Some(1)),
            (stopped(), gone(), Some(0)),
            (gone(), stopped(), Some(1)),
            (silent(), stopped(), Some(1)),
            (stopped(), silent(), Some(0)),
            (silent(), gone(), None),
            (gone(), silent(), None),
            (silent(), silent(), None),
            (VmError::Interrupted, gone(), Some(0)),
        ] {
            let what = format!("{one:?} and {other:?}");
            let cause = cause(one, other);
            assert_eq!(cause.guest, guest, "{what}");
            assert!(!is_consequence(&cause.error), "{what}");
        }
    }
}
