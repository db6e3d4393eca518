//! Loads programs, with the verifier's errors.

use netplumb_sys::bpf::Opened;

use crate::bpf::Load;
use crate::error::{Doing, PathError};

static UNSAFE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/unsafe.bpf.o"));

/// The result of loading a program.
#[derive(Debug)]
pub struct Offered {
    /// Name of the program in the object.
    pub program: String,
    /// The error, if any: [`PathError::Refused`] if the verifier rejected it.
    pub refused: Option<PathError>,
}

/// Load each program of a compiled object (ELF), and unload it.
///
/// # Errors
/// It is not a BPF object, or has no programs.
pub fn verify(object: &[u8]) -> Result<Vec<Offered>, PathError> {
    let open = Opened::new(object).doing(|| "read it as a BPF object".into())?;
    let names = open.progs().map(|p| p.name().to_string_lossy().into_owned());
    let names: Vec<String> = names.collect();
    if names.is_empty() {
        return Err(PathError::Asked("it has no BPF program in it".into()));
    }
    let offer = |program: String| {
        let load = Load { image: object, program: &program, all_maps: true, ..Load::default() };
        Offered { refused: load.load().err(), program }
    };
    Ok(names.into_iter().map(offer).collect())
}

/// Load a program that reads beyond the end of a packet.
///
/// # Errors
/// [`PathError::Refused`], as expected, with the verifier's message and the line.
pub fn refusal() -> Result<(), PathError> {
    let offered = verify(UNSAFE)?;
    match offered.into_iter().find_map(|one| one.refused) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}
