//! Interfaces of a machine of the test's own: a namespace that the program is run in.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use netplumb_sys::netns::Namespace;

/// Where plumb keeps its journal.
const JOURNAL: &str = "/run/netplumb";

/// A command that will run in a namespace.
pub(crate) fn inside(namespace: &Namespace, mut command: Command) -> Command {
    let namespace: OwnedFd = namespace.try_clone().unwrap();
    let enter = move || netplumb_sys::netns::enter(namespace.as_fd());
    // SAFETY: between fork and exec nothing is done but a system call.
    unsafe { command.pre_exec(enter) };
    command
}

/// What a command of the system prints in a namespace; it has to go well.
pub(crate) fn sh(namespace: &Namespace, line: &str) -> String {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap());
    command.args(words);
    let output = inside(namespace, command).output().unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The program in a namespace, with its journal in a directory of its own: with a shared one, another test
/// would restore what this test's killed run left.
pub(crate) fn plumb(namespace: &Namespace, plumb: Command, journal: &Path) -> Command {
    std::fs::create_dir_all(JOURNAL).unwrap();
    let mut command = inside(namespace, plumb);
    let text = |path: &Path| CString::new(path.as_os_str().as_bytes()).unwrap();
    let (own, journal) = (text(journal), text(Path::new(JOURNAL)));
    let replace = move || {
        const PRIVATE: libc::c_ulong = libc::MS_REC | libc::MS_PRIVATE;
        let done = |result| match result {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        };
        let none = std::ptr::null();
        // SAFETY: flags, and strings that outlive the calls.
        unsafe {
            done(libc::unshare(libc::CLONE_NEWNS))?;
            done(libc::mount(none, c"/".as_ptr(), none, PRIVATE, none.cast()))?;
            let (from, to) = (own.as_ptr(), journal.as_ptr());
            done(libc::mount(from, to, none, libc::MS_BIND, none.cast()))
        }
    };
    // SAFETY: between fork and exec nothing is done but system calls.
    unsafe { command.pre_exec(replace) };
    // Not the session of whoever runs the tests.
    command.env_remove("SSH_CONNECTION");
    command
}
