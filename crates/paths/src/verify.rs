//! What the kernel's verifier says of each program.

use netplumb_sys::bpf::Opened;

use crate::bpf::Load;
use crate::error::{Doing, PathError};

static UNSAFE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/unsafe.bpf.o"));

/// What came of offering a program to the kernel.
#[derive(Debug)]
pub struct Offered {
    /// Its name.
    pub program: String,
    /// Why it was not taken, if it was not: [`PathError::Refused`] where that is what the
    /// verifier says of a line.
    pub refused: Option<PathError>,
}

/// Offer the kernel each program of a compiled object (ELF); none stays.
///
/// # Errors
/// It is not a BPF object, or has no programs.
pub fn verify(object: &[u8]) -> Result<Vec<Offered>, PathError> {
    let open = Opened::new(object).doing(|| "read it as a BPF object".into())?;
    let names = open
        .progs()
        .map(|p| p.name().to_string_lossy().into_owned());
    let names: Vec<String> = names.collect();
    if names.is_empty() {
        return Err(PathError::Asked("it has no BPF program in it".into()));
    }
    let offer = |program: String| {
        let load = Load {
            image: object,
            program: &program,
            all_maps: true,
            ..Load::default()
        };
        Offered {
            refused: load.load().err(),
            program,
        }
    };
    Ok(names.into_iter().map(offer).collect())
}

/// Offer the kernel a program that reads what may not be there.
///
/// # Errors
/// [`PathError::Refused`], with what the verifier says of which line, as it should be.
pub fn refusal() -> Result<(), PathError> {
    let offered = verify(UNSAFE)?;
    match offered.into_iter().find_map(|one| one.refused) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}
