//! Files that programs expect, in a guest with only a kernel.

use std::path::Path;
use std::{fs, io};

use netplumb_model::message::CommandPlan;
use netplumb_workload::ends::Ends;

/// Directories and links that programs expect.
const FOLDERS: &[&str] = &["/root", "/run", "/var/tmp", "/var/run", "/dev/shm", "/etc"];
const LINKS: &[(&str, &str)] = &[
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
];
/// Files that programs expect, where the host's are not copied.
const FILES: &[(&str, &str)] = &[
    (
        "/etc/passwd",
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    ),
    ("/etc/group", "root:x:0:\nnogroup:x:65534:\n"),
    (
        "/etc/nsswitch.conf",
        "passwd: files\ngroup: files\nhosts: files\nprotocols: files\nservices: files\n",
    ),
    ("/etc/protocols", "ip 0 IP\nicmp 1 ICMP\ntcp 6 TCP\nudp 17 UDP\nipv6-icmp 58 IPv6-ICMP\n"),
    ("/etc/services", "http 80/tcp\nhttps 443/tcp\ndomain 53/udp\ndomain 53/tcp\n"),
];

/// Make the directories, links and files that programs expect.
pub(super) fn with_files() -> io::Result<()> {
    for folder in FOLDERS {
        fs::create_dir_all(folder)?;
    }
    for (target, link) in LINKS {
        let _ = std::os::unix::fs::symlink(target, link);
    }
    for (path, text) in FILES {
        if !Path::new(path).exists() {
            fs::write(path, text)?;
        }
    }
    Ok(())
}

/// Prepare the guest for a command: directories, files, and the names of the two ends.
pub(super) fn furnish(plan: &CommandPlan, ends: &Ends) -> io::Result<()> {
    with_files()?;
    fs::create_dir_all(&plan.folder)?;
    // Instead of the host's: there are only the two ends.
    let hosts = format!(
        "127.0.0.1 localhost\n::1 localhost\n{} self\n{} peer\n",
        ends.tx_address, ends.rx_address
    );
    fs::write("/etc/hosts", hosts)?;
    fs::write("/etc/resolv.conf", "")?;
    // Addresses are the same in every run.
    fs::write("/proc/sys/kernel/randomize_va_space", "0")?;
    // Core dumps would be lost.
    let _ = fs::write("/proc/sys/kernel/core_pattern", "");
    Ok(())
}
