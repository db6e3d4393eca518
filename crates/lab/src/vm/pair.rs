//! Two guests that run together: whatever ends one of them ends the other.

use std::thread;

use super::process::{Guest, VmError};

/// What the wire's plugin says when the QEMU at its other end has gone (plugins/qemu/wire.c).
pub(crate) const OTHER_HAS_ENDED: &str = "the other host has ended";

/// Run both, each in a thread that has its guest until it is done. If one of them fails, its guest
/// is ended at once; the wire then ends the other.
///
/// # Errors
/// The first cause.
pub fn together<T: Send>(
    guests: [Guest; 2],
    run: impl Fn(usize, &mut Guest) -> Result<T, VmError> + Sync,
) -> Result<[T; 2], VmError> {
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
        threads.map(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    });
    match outcome {
        [Ok((one, _)), Ok((other, _))] => Ok([one, other]),
        [Err(one), Err(other)] if is_consequence(&one) => Err(other),
        [Err(error), _] | [_, Err(error)] => Err(error),
    }
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

    /// Check that the end of the other host is no cause of its own.
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
}
