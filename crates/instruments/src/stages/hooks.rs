//! The programs on their tracepoints: attached, and detached for a pause.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::ProgramMut;
use libbpf_sys as sys;

/// Loaded programs, attached or not.
#[derive(Debug, Default)]
pub(super) struct Hooks {
    programs: Vec<OwnedFd>,
    links: Vec<OwnedFd>,
}

impl Hooks {
    /// Attach one more.
    pub(super) fn add(&mut self, program: &ProgramMut<'_>) -> io::Result<()> {
        let program = program.as_fd().try_clone_to_owned()?;
        self.links.push(attach(&program)?);
        self.programs.push(program);
        Ok(())
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.programs.len()
    }

    /// Attach all, if they are not.
    pub(super) fn attach(&mut self) -> io::Result<()> {
        if self.links.is_empty() {
            self.links = self.programs.iter().map(attach).collect::<Result<_, _>>()?;
        }
        Ok(())
    }

    /// Detach all.
    pub(super) fn detach(&mut self) {
        self.links.clear();
    }
}

fn attach(program: &OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: no name: the target is the program's own.
    let link = unsafe { sys::bpf_raw_tracepoint_open(std::ptr::null(), program.as_raw_fd()) };
    if link < 0 {
        return Err(io::Error::from_raw_os_error(-link));
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}
