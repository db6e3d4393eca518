//! Why a guest's kernel does not load a module: by its error and its messages.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;

/// The kernel's messages, a record at each read (Documentation/ABI/testing/dev-kmsg).
const MESSAGES: &str = "/dev/kmsg";
/// The largest record.
const RECORD_BYTES: usize = 8 << 10;
/// Most lines of a module that are reported.
const LINES: usize = 4;
/// Lines about every module from outside of the kernel's tree, or without a signature.
const TAINTS: &str = "taint";

/// Why, if the error has a reason.
pub(super) fn why(error: &io::Error) -> String {
    let why = match error.raw_os_error() {
        Some(libc::ENOEXEC) => "it is built for another kernel or another architecture",
        Some(libc::EKEYREJECTED | libc::ENOKEY | libc::EBADMSG) => {
            "its signature is bad or missing, and this kernel insists on one"
        }
        Some(libc::ENOENT) => "the kernel lacks a symbol that it needs",
        Some(libc::EINVAL) => "it does not fit this kernel, or its initialization failed",
        Some(libc::EEXIST) => "the kernel has a module of that name",
        Some(libc::ENOMEM) => "the guest has too little memory for it",
        Some(_) => "its initialization failed",
        None => return error.to_string(),
    };
    format!("{why} ({error})")
}

/// The remedy for a module of the user's own.
pub(super) fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOEXEC | libc::EINVAL | libc::ENOENT) => {
            "build it from the source and with the headers of exactly this kernel (`plumb module \
             build`), and with it all modules that it shares changed structures with"
        }
        Some(libc::EKEYREJECTED | libc::ENOKEY | libc::EBADMSG) => {
            "use a kernel, or a command line, that takes modules without a signature"
        }
        Some(libc::ENOMEM) => "use fewer or smaller modules in one arm",
        _ => {
            "the module itself returned this when it was loaded: look at its module_init function, \
             and at the devices that it expects"
        }
    }
}

/// The kernel's last lines about a module.
pub(super) fn said_of(module: &str) -> Vec<String> {
    let mut lines = lines_of(module, &messages().unwrap_or_default());
    lines.split_off(lines.len().saturating_sub(LINES))
}

/// All messages so far.
fn messages() -> io::Result<Vec<String>> {
    let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(MESSAGES)?;
    let mut records = Vec::new();
    let mut record = vec![0; RECORD_BYTES];
    loop {
        match file.read(&mut record) {
            Ok(0) => return Ok(records),
            Ok(bytes) => records.push(String::from_utf8_lossy(&record[..bytes]).into_owned()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(records),
            // Overwritten meanwhile: the next one is there.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            Err(error) => return Err(error),
        }
    }
}

/// The lines about a module, of records such as `3,210,4567,-;usbnet: Unknown symbol x (err -2)`.
fn lines_of(module: &str, records: &[String]) -> Vec<String> {
    let texts = records.iter().filter_map(|record| {
        let (_, text) = record.split_once(';')?;
        text.lines().next()
    });
    let is_about = |line: &&str| {
        let rest = line.strip_prefix(module);
        rest.is_some_and(|rest| rest.starts_with(':')) && !line.contains(TAINTS)
    };
    texts.filter(is_about).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a refused signature is distinguished from a module of another kernel, and from one that failed by
    /// itself; each with a remedy.
    #[test]
    fn refusals_of_the_kernel() {
        let error = io::Error::from_raw_os_error;
        assert!(why(&error(libc::EKEYREJECTED)).contains("signature"));
        assert!(why(&error(libc::ENOEXEC)).contains("another kernel"));
        assert!(remedy(&error(libc::EINVAL)).contains("plumb module build"));
        assert!(why(&error(libc::ENODEV)).contains("initialization failed"));
        assert!(remedy(&error(libc::ENODEV)).contains("module_init"));
    }

    /// Check that the kernel's reason is found among its messages, and no other line.
    #[test]
    fn lines_of_the_kernel() {
        let records = [
            "5,1,100,-;Linux version 6.1.0\n",
            "5,2,200,-;usbnet: loading out-of-tree module taints kernel.\n",
            "4,3,300,-;usbnet: disagrees about version of symbol usb_submit_urb\n SUBSYSTEM=x\n",
            "4,4,400,-;usbnet2: Unknown symbol x (err -2)\n",
        ];
        assert_eq!(
            lines_of("usbnet", &records.map(str::to_owned)),
            ["usbnet: disagrees about version of symbol usb_submit_urb"]
        );
    }
}
