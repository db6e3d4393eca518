//! Makes attaching to many functions in turn quick.
//!
//! When a function gets its first program, and twice more with every other one, ftrace
//! goes through all functions that it knows, tens of thousands, to see which have to be
//! patched (`ftrace_replace_code()`): that is most of what attaching takes. There are two
//! ways around it.
//!
//! A function that two others trace already is called by way of a list, however many more
//! come: nothing has to be patched, and ftrace knows it beforehand. Two links by fprobe,
//! whose program does nothing, hold all of the functions meanwhile. That is four passes
//! altogether, without effects on others.
//!
//! While `kernel.ftrace_enabled` is 0, nothing is patched; when it is 1 again,
//! everything is. That turns off what others trace, so it is for kernels of our own:
//! those whose init we are.

use std::os::fd::OwnedFd;
use std::{fs, io, process};

use libbpf_sys as sys;
use netplumb_sys::bpf::raw::Kind;

use super::object::{Program, Template};
use super::session;

/// With fewer functions, attaching is quicker without.
const FEW: usize = 4;
/// One is called directly; it takes two to make a list.
const LINKS: usize = 2;
const ENABLED: &str = "/proc/sys/kernel/ftrace_enabled";

/// Holds functions until it is dropped.
#[derive(Debug)]
pub(super) enum Hold {
    /// Our own links hold them.
    Links { _links: Vec<OwnedFd>, _program: Program },
    /// `kernel.ftrace_enabled` is 0.
    Stopped,
}

impl Hold {
    /// Hold these; none where they are few.
    ///
    /// # Errors
    /// The kernel has no links by fprobe (Linux 5.18, commit 0dcac2725406, with
    /// CONFIG_FPROBE), or not on these functions, and is not ours.
    pub(super) fn on(functions: &[&str]) -> io::Result<Option<Hold>> {
        if functions.len() < FEW {
            return Ok(None);
        }
        match Hold::by_links(functions) {
            Err(_) if process::id() == 1 => {
                fs::write(ENABLED, "0")?;
                Ok(Some(Hold::Stopped))
            }
            held => held.map(Some),
        }
    }

    fn by_links(functions: &[&str]) -> io::Result<Hold> {
        let how = Kind {
            program: sys::BPF_PROG_TYPE_KPROBE,
            attach: sys::BPF_TRACE_KPROBE_MULTI,
            target: 0,
            module: 0,
        };
        let program = Template::nothing().load("hold", how)?;
        let link = |_| {
            let each = functions.iter().map(|name| (*name, 0));
            session::attach(&program, sys::BPF_TRACE_KPROBE_MULTI, each)
        };
        Ok(Hold::Links {
            _links: (0..LINKS).map(link).collect::<io::Result<_>>()?,
            _program: program,
        })
    }

    /// What holds them, in a word.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Hold::Links { .. } => "fprobe",
            Hold::Stopped => "ftrace_enabled",
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Hold::Stopped = self {
            // It could be written a moment ago, so it can be now.
            let _ = fs::write(ENABLED, "1");
        }
    }
}
