//! Names and descriptions of error numbers, for messages.

use std::error::Error;
use std::io;

/// The kernel's own for "not supported", which no C library knows
/// (include/linux/errno.h).
pub const ENOTSUPP: i32 = 524;

macro_rules! names {
    ($($name:ident),* $(,)?) => {
        /// Numbers and names.
        const NAMES: &[(i32, &str)] = &[$((libc::$name, stringify!($name))),*];
    };
}

names! {
    EPERM, ENOENT, ESRCH, EINTR, EIO, ENXIO, E2BIG, ENOEXEC, EBADF, ECHILD, EAGAIN, ENOMEM,
    EACCES, EFAULT, ENOTBLK, EBUSY, EEXIST, EXDEV, ENODEV, ENOTDIR, EISDIR, EINVAL, ENFILE,
    EMFILE, ENOTTY, ETXTBSY, EFBIG, ENOSPC, ESPIPE, EROFS, EMLINK, EPIPE, EDOM, ERANGE, EDEADLK,
    ENAMETOOLONG, ENOLCK, ENOSYS, ENOTEMPTY, ELOOP, ENOMSG, EIDRM, ECHRNG, EL2NSYNC, EL3HLT,
    EL3RST, ELNRNG, EUNATCH, ENOCSI, EL2HLT, EBADE, EBADR, EXFULL, ENOANO, EBADRQC, EBADSLT,
    EBFONT, ENOSTR, ENODATA, ETIME, ENOSR, ENONET, ENOPKG, EREMOTE, ENOLINK, EADV, ESRMNT,
    ECOMM, EPROTO, EMULTIHOP, EDOTDOT, EBADMSG, EOVERFLOW, ENOTUNIQ, EBADFD, EREMCHG, ELIBACC,
    ELIBBAD, ELIBSCN, ELIBMAX, ELIBEXEC, EILSEQ, ERESTART, ESTRPIPE, EUSERS, ENOTSOCK,
    EDESTADDRREQ, EMSGSIZE, EPROTOTYPE, ENOPROTOOPT, EPROTONOSUPPORT, ESOCKTNOSUPPORT,
    EOPNOTSUPP, EPFNOSUPPORT, EAFNOSUPPORT, EADDRINUSE, EADDRNOTAVAIL, ENETDOWN, ENETUNREACH,
    ENETRESET, ECONNABORTED, ECONNRESET, ENOBUFS, EISCONN, ENOTCONN, ESHUTDOWN, ETOOMANYREFS,
    ETIMEDOUT, ECONNREFUSED, EHOSTDOWN, EHOSTUNREACH, EALREADY, EINPROGRESS, ESTALE, EUCLEAN,
    ENOTNAM, ENAVAIL, EISNAM, EREMOTEIO, EDQUOT, ENOMEDIUM, EMEDIUMTYPE, ECANCELED, ENOKEY,
    EKEYEXPIRED, EKEYREVOKED, EKEYREJECTED, EOWNERDEAD, ENOTRECOVERABLE, ERFKILL,
}

/// The meaning of errors for frames.
const OF_FRAMES: &[(i32, &str)] = &[
    // veth_xdp_xmit() returns this for a peer that has no NAPI, or is down.
    (libc::ENXIO, "the other end does not accept XDP frames"),
    (libc::ENOSPC, "ring full"),
    (libc::ENETDOWN, "device down"),
    (libc::EMSGSIZE, "longer than the MTU"),
    // A veth has the flag NETDEV_XDP_ACT_NDO_XMIT while its other end has NAPI
    // (veth_xdp_set, veth_set_features; __xdp_enqueue in devmap.c asks for it).
    (libc::EOPNOTSUPP, "no XDP transmit on this device, or its veth peer has no NAPI"),
    (libc::ENOBUFS, "device busy"),
    (libc::EINVAL, "no such device"),
];

fn find(table: &[(i32, &'static str)], errno: i32) -> Option<&'static str> {
    let found = table.iter().find(|(number, _)| *number == errno);
    found.map(|(_, text)| *text)
}

/// Its name: `ENOSPC`, or `errno 999` without one.
pub fn name(errno: i32) -> String {
    match (errno, find(NAMES, errno)) {
        (ENOTSUPP, _) => "ENOTSUPP".into(),
        (_, Some(name)) => name.into(),
        (_, None) => format!("errno {errno}"),
    }
}

/// Its description with its name: `no space left on device (ENOSPC)`.
pub fn words(errno: i32) -> String {
    if errno == ENOTSUPP {
        return "not supported (ENOTSUPP)".into();
    }
    let text = io::Error::from_raw_os_error(errno).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    format!("{} ({})", text.to_lowercase(), name(errno))
}

/// Its description for refused frames: `ring full (ENOSPC)`. Some drivers use ENOSPC for a full
/// ring (veth, include/linux/ptr_ring.h).
pub fn of_frames(errno: i32) -> String {
    match (errno, find(OF_FRAMES, errno)) {
        (0, _) => "ring full".into(),
        (_, Some(text)) => format!("{text} ({})", name(errno)),
        (_, None) => words(errno),
    }
}

/// The error number of a system error, or of its source.
pub fn errno_in(error: &(dyn Error + 'static)) -> Option<i32> {
    let mut source = Some(error);
    while let Some(error) = source {
        if let Some(errno) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return Some(errno);
        }
        source = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check known numbers, the kernel's own, and unknown ones.
    #[test]
    fn numbers() {
        assert_eq!(name(libc::ENOSPC), "ENOSPC");
        assert_eq!(name(libc::EAGAIN), "EAGAIN");
        assert_eq!(name(999), "errno 999");
        assert_eq!(words(libc::ENOSPC), "no space left on device (ENOSPC)");
        assert_eq!(words(ENOTSUPP), "not supported (ENOTSUPP)");
        assert!(words(999).ends_with("(errno 999)"));
        assert!((1..134).filter(|n| name(*n).starts_with('E')).count() > 125);
    }

    /// Check the descriptions for frames.
    #[test]
    fn frames() {
        assert_eq!(of_frames(0), "ring full");
        assert_eq!(of_frames(libc::ENXIO), "the other end does not accept XDP frames (ENXIO)");
        assert_eq!(of_frames(libc::EIO), "input/output error (EIO)");
    }

    /// Check that a wrapped error's number is found.
    #[test]
    fn wrapped() {
        #[derive(Debug, thiserror::Error)]
        #[error("can't")]
        struct Wrapped(#[source] io::Error);
        let wrapped = Wrapped(io::Error::from_raw_os_error(libc::EBUSY));
        assert_eq!(errno_in(&wrapped), Some(libc::EBUSY));
        assert_eq!(errno_in(&io::Error::other("no")), None);
    }
}
