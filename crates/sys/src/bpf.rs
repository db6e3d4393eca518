//! BPF objects, by libbpf: open, configure, load, read maps.
//!
//! Messages of libbpf are part of the errors; it prints nothing.

mod log;
pub mod raw;
pub mod signatures;
pub mod types;

use std::ffi::c_char;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::{AsRawLibbpf, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject};
use libbpf_sys as sys;

pub use log::quiet;

use crate::plain::Plain;

/// Buffer for the verifier's log of a rejected program.
const LOG_BYTES: usize = 1 << 20;
/// Lines of the log to keep.
const LOG_LINES: usize = 12;

/// Elements of a map that are taken at once.
const BATCH: u32 = 1_024;

/// Take all elements of a hash map that no program writes to any more. A batch may be shorter than
/// requested if the next bucket does not fit (`__htab_map_lookup_and_delete_batch()` in
/// kernel/bpf/hashtab.c), which libbpf-rs takes for the end; so the end is an empty batch.
///
/// # Errors
/// The map can't be read.
pub fn drain(map: &impl MapCore) -> libbpf_rs::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut all = Vec::new();
    loop {
        let before = all.len();
        all.extend(map.lookup_and_delete_batch(BATCH, MapFlags::ANY, MapFlags::ANY)?);
        if all.len() == before {
            return Ok(all);
        }
    }
}

/// An error of loading programs or reading maps.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    /// The kernel has no BTF.
    #[error("the kernel has no type information ({0})")]
    NoTypes(#[source] libbpf_rs::Error),
    /// The user lacks privileges.
    #[error("the kernel doesn't let this user load BPF programs")]
    NotPermitted(#[source] libbpf_rs::Error),
    /// The verifier rejected a program.
    #[error("{0}")]
    Refused(Refusal),
    /// The compiled object is invalid.
    #[error("{0}")]
    Object(String),
    /// Any other error, with libbpf's message.
    #[error("{source:#}{}", said.as_ref().map(|said| format!(" ({said})")).unwrap_or_default())]
    Failed {
        /// The system's reason.
        source: libbpf_rs::Error,
        /// libbpf's message.
        said: Option<String>,
    },
}

impl From<libbpf_rs::Error> for BpfError {
    fn from(source: libbpf_rs::Error) -> BpfError {
        match source.kind() {
            libbpf_rs::ErrorKind::PermissionDenied => BpfError::NotPermitted(source),
            _ => BpfError::Failed { source, said: None },
        }
    }
}

/// The verifier's message about a rejected program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Its name in the BPF object.
    pub program: String,
    /// The log's last lines before the statistics, joined.
    pub reason: String,
    /// The source line that it refers to: `text @ file:line`.
    pub line: Option<String>,
    /// The end of its log.
    pub log: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (program, reason) = (&self.program, &self.reason);
        write!(f, "the kernel's verifier rejected the program `{program}`: {reason}")?;
        match &self.line {
            Some(line) => write!(f, "\n  at: {line}"),
            None => Ok(()),
        }
    }
}

/// An open object: its programs can be chosen, its maps sized and its constants set.
#[derive(Debug)]
pub struct Opened {
    open: OpenObject,
    /// libelf reads it while the object is open.
    image: Vec<u8>,
}

impl Deref for Opened {
    type Target = OpenObject;

    fn deref(&self) -> &OpenObject {
        &self.open
    }
}

impl DerefMut for Opened {
    fn deref_mut(&mut self) -> &mut OpenObject {
        &mut self.open
    }
}

impl Opened {
    /// Open a compiled object (ELF).
    ///
    /// # Errors
    /// It is not one.
    pub fn new(image: &[u8]) -> Result<Opened, BpfError> {
        // libelf needs it aligned, as by the allocator.
        let image = image.to_vec();
        let (open, said) = log::captured(|| ObjectBuilder::default().open_memory(&image));
        match open {
            Ok(open) => Ok(Opened { open, image }),
            Err(source) => Err(failed(source, said)),
        }
    }

    /// Set the programs' constants: all of `.rodata`.
    ///
    /// # Errors
    /// They have another size.
    pub fn set_constants(&mut self, bytes: &[u8]) -> Result<(), BpfError> {
        let mut maps = self.open.maps_mut();
        let mut rodata = maps.find(|m| m.name().to_string_lossy().ends_with(".rodata"));
        match rodata.as_mut().and_then(|m| m.initial_value_mut()) {
            Some(values) if values.len() == bytes.len() => {
                values.copy_from_slice(bytes);
                Ok(())
            }
            _ => Err(BpfError::Object(
                "the compiled programs have no constants of that layout".into(),
            )),
        }
    }

    /// Load its programs into the kernel, and create its maps.
    ///
    /// # Errors
    /// The user lacks privileges, the verifier rejects a program, or the system fails.
    pub fn load(mut self) -> Result<Object, BpfError> {
        let mut log = vec![0_u8; LOG_BYTES];
        for program in self.open.progs_mut() {
            // SAFETY: the program is of an open object, and the buffer outlives the
            // load, after which libbpf writes to it no more.
            unsafe {
                sys::bpf_program__set_log_buf(
                    program.as_libbpf_object().as_ptr(),
                    log.as_mut_ptr().cast::<c_char>(),
                    log.len() as _,
                )
            };
        }
        let Opened { open, image } = self;
        let (loaded, said) = log::captured(|| open.load());
        drop(image);
        loaded.map_err(|source| {
            let end = log.iter().position(|b| *b == 0).unwrap_or(0);
            let text = String::from_utf8_lossy(&log[..end]);
            match refusal(&log::program(&said), &text) {
                Some(refusal) => BpfError::Refused(refusal),
                None => failed(source, said),
            }
        })
    }

    /// Create its maps, and relocate its programs for the running kernel, without loading them.
    ///
    /// # Errors
    /// The user lacks privileges, or the system fails.
    pub fn prepare(&mut self) -> Result<(), BpfError> {
        let object = self.open.as_libbpf_object().as_ptr();
        let (result, said) = log::captured(|| {
            // SAFETY: the object is open, and nobody else's.
            unsafe { sys::bpf_object__prepare(object) }
        });
        match result {
            0.. => Ok(()),
            errno => Err(failed(libbpf_rs::Error::from_raw_os_error(-errno), said)),
        }
    }
}

/// The system's reason, with libbpf's first message, which is the most specific one.
fn failed(source: libbpf_rs::Error, said: Vec<String>) -> BpfError {
    match BpfError::from(source) {
        BpfError::Failed { source, .. } => {
            BpfError::Failed { source, said: said.into_iter().next() }
        }
        other => other,
    }
}

/// Parse the verifier's log of a rejected program, if it has a reason.
///
/// Its last lines before the statistics are the reason, and the line of the source is
/// the last one that begins with a semicolon (print_verifier_state and
/// bpf_verbose_linfo, kernel/bpf/).
fn refusal(program: &str, log: &str) -> Option<Refusal> {
    let statistics = |line: &&str| {
        line.starts_with("processed ")
            || line.starts_with("verification time")
            || line.starts_with("stack depth")
    };
    let lines: Vec<&str> = log
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty())
        .take_while(|line| !statistics(line))
        .collect();
    // An instruction begins with its number.
    let is_state = |line: &str| {
        line.starts_with(';')
            || line.starts_with("from ")
            || line
                .split_once(':')
                .is_some_and(|(number, _)| number.bytes().all(|b| b.is_ascii_digit()))
    };
    let state = lines.iter().rposition(|line| is_state(line));
    let reason = lines.get(state.map_or(0, |at| at + 1)..)?.join("; ");
    if reason.is_empty() {
        return None;
    }
    let line = lines
        .iter()
        .rev()
        .find_map(|line| line.strip_prefix(';'))
        .map(|line| line.trim().to_string());
    let from = lines.len().saturating_sub(LOG_LINES);
    Some(Refusal { program: program.to_string(), reason, line, log: lines[from..].join("\n") })
}

fn missing(name: &str) -> BpfError {
    BpfError::Object(format!("the compiled programs have no `{name}`"))
}

/// A map of an object, by the end of its name.
///
/// # Errors
/// The object has no map of this name.
pub fn map(object: &Object, name: &str) -> Result<MapHandle, BpfError> {
    let mut maps = object.maps();
    let found = maps.find(|m| m.name().to_string_lossy().ends_with(name));
    Ok(MapHandle::try_from(&found.ok_or_else(|| missing(name))?)?)
}

/// The current contents of a section of variables, as structures of 64-bit words: libbpf has mapped
/// it, so no system call is made.
///
/// # Errors
/// The object has no such section.
pub fn variables<T: Plain>(object: &Object, section: &str) -> Result<Vec<T>, BpfError> {
    const { assert!(size_of::<T>().is_multiple_of(8) && size_of::<T>() > 0) };
    let words = words(object, section)?;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    Ok(bytes.chunks_exact(size_of::<T>()).filter_map(T::read).collect())
}

fn words(object: &Object, section: &str) -> Result<Vec<u64>, BpfError> {
    let mut maps = object.maps();
    let found = maps.find(|m| m.name().to_string_lossy().ends_with(section));
    let mut bytes = 0;
    let first = found.map_or(std::ptr::null_mut(), |map| {
        // SAFETY: the map is of a loaded object, and the size is written to a variable.
        unsafe { sys::bpf_map__initial_value(map.as_libbpf_object().as_ptr(), &mut bytes) }
    });
    if first.is_null() || !first.cast::<u64>().is_aligned() {
        return Err(missing(section));
    }
    let word = |i: usize| {
        // SAFETY: `i` is below the section's length in words. It is mapped for as long
        // as the object, which is borrowed, lives; programs write to it meanwhile, and
        // so it is read as they do: a word at a time.
        let word = unsafe { AtomicU64::from_ptr(first.cast::<u64>().add(i)) };
        word.load(Ordering::Relaxed)
    };
    Ok((0..bytes as usize / 8).map(word).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the reason and the source line are found in logs of several kernels, and that a
    /// log without a reason gives none.
    #[test]
    fn the_verifiers_reason() {
        let log = "0: R1=ctx() R10=fp0\n\
            ; const __u8 *data = (const __u8 *)(long)ctx->data; @ unsafe.bpf.c:12\n\
            0: (61) r1 = *(u32 *)(r1 +0)          ; R1=pkt(r=0)\n\
            ; __u8 protocol = data[23]; @ unsafe.bpf.c:13\n\
            1: (71) r1 = *(u8 *)(r1 +23)\n\
            invalid access to packet, off=23 size=1, R1(id=0,off=23,r=0)\n\
            R1 offset is outside of the packet\n\
            processed 2 insns (limit 1000000) max_states_per_insn 0 total_states 0\n";
        let seen = refusal("xdp_unsafe", log).unwrap();
        assert_eq!(
            seen.reason,
            "invalid access to packet, off=23 size=1, R1(id=0,off=23,r=0); \
             R1 offset is outside of the packet"
        );
        let line = seen.line.as_deref();
        assert_eq!(line, Some("__u8 protocol = data[23]; @ unsafe.bpf.c:13"));
        assert!(seen.log.contains("(71)"));
        assert!(seen.to_string().contains("`xdp_unsafe`: invalid access"));
        assert!(seen.to_string().ends_with("\n  at: __u8 protocol = data[23]; @ unsafe.bpf.c:13"));

        // Before 6.9 there is no file.
        let old = "; __u8 protocol = data[23];\n1: (71) r1 = *(u8 *)(r1 +23)\n\
            R1 invalid mem access 'inv'\nverification time 40 usec\n";
        let seen = refusal("x", old).unwrap();
        assert_eq!(seen.reason, "R1 invalid mem access 'inv'");
        assert_eq!(seen.line.as_deref(), Some("__u8 protocol = data[23];"));

        assert!(refusal("x", "").is_none());
        assert!(refusal("x", "processed 2 insns\n").is_none());
    }

    /// Check the error of an invalid object, with libbpf's message.
    #[test]
    fn no_object() {
        let error = Opened::new(b"no ELF at all").unwrap_err();
        let BpfError::Failed { said, .. } = &error else {
            panic!("{error:?}");
        };
        assert!(said.as_ref().is_some_and(|said| !said.starts_with("libbpf")));
        assert!(error.to_string().contains(said.as_deref().unwrap()), "{error}");
    }
}
