//! Where programs that build a module run: without a network, as a user without rights, and where only the
//! folder that they build in can be written.
//!
//! A build runs more than compilers: kbuild compiles and runs programs of the source (`hostprogs`), and a
//! patch may be someone else's. bubblewrap makes the sandbox (docs/adr/0022-builds-in-a-sandbox.md): namespaces
//! of its own for files, processes, the network and IPC, in which there is what programs are made of (`/usr`),
//! what the build reads, and nothing else of this machine. As root, setpriv gives up root's rights in it.

use std::env;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

use super::error::{ModuleBuildError, read_failed, write_failed};
use super::program::{need, run};
use crate::child::{self, Finished};

const PROGRAM: &str = "bwrap";
const PACKAGE: &str = "bubblewrap";
/// Folders that programs need besides the ones in `PATH`.
const SYSTEM: [&str; 5] = ["/usr", "/opt", "/etc/alternatives", "/etc/ld.so.cache", "/nix"];
/// Folders at the top that are links into `/usr`, or as good as in it.
const MERGED: [&str; 6] = ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// The user and the group without rights: nobody and nogroup.
const NOBODY: u32 = 65_534;
/// The largest file that a build may write, and the longest that one of its processes may work.
const FILE_MAX_BYTES: u64 = 4 << 30;
const CPU_MAX_SECONDS: u64 = 1_800;

/// How root's rights are given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum User {
    /// By becoming another user.
    Nobody,
    /// They aren't root's, or no other user is available: by a user namespace.
    Same,
}

#[derive(Debug)]
pub(super) struct Sandbox<'a> {
    /// The only folder that can be written.
    writable: PathBuf,
    /// Further readable folders besides the system's, under two names: as given and as resolved.
    readable: Vec<PathBuf>,
    user: User,
    cancel: &'a AtomicBool,
}

impl<'a> Sandbox<'a> {
    /// One in which `writable` can be written, and `readable` read.
    ///
    /// # Errors
    /// bubblewrap is missing, or can't make a sandbox here.
    pub(super) fn new(
        writable: &Path,
        readable: &[&Path],
        cancel: &'a AtomicBool,
    ) -> Result<Self, ModuleBuildError> {
        need(PROGRAM, PACKAGE)?;
        let mut all = Vec::new();
        for path in readable {
            let path = std::path::absolute(path).map_err(read_failed(path))?;
            let real = fs::canonicalize(&path).map_err(read_failed(&path))?;
            all.extend([path, real]);
        }
        all.sort();
        all.dedup();
        let mut sandbox =
            Sandbox { writable: writable.to_owned(), readable: all, user: User::Same, cancel };
        // SAFETY: takes nothing and cannot fail.
        let is_root = unsafe { libc::geteuid() } == 0;
        let users: &[User] = match is_root {
            true => &[User::Nobody, User::Same],
            false => &[User::Same],
        };
        let mut why = String::new();
        for user in users {
            sandbox.user = *user;
            let tried = sandbox.run("true", &[], Path::new("/"), &[])?;
            if tried.status.success() {
                return Ok(sandbox);
            }
            let line = tried.output.lines().find(|line| !line.trim().is_empty());
            why = line.unwrap_or("it printed nothing").to_owned();
        }
        Err(ModuleBuildError::NoSandbox { why })
    }

    /// Run a program in a folder, with these additional variables.
    ///
    /// # Errors
    /// It can't be started, or was cancelled.
    pub(super) fn run(
        &self,
        program: &str,
        arguments: &[OsString],
        folder: &Path,
        variables: &[(&str, String)],
    ) -> Result<Finished, ModuleBuildError> {
        self.hand_over()?;
        let mut command = child::command(PROGRAM);
        command.args(self.arguments()).arg("--chdir").arg(folder).arg("--");
        if self.user == User::Nobody {
            let id = NOBODY.to_string();
            command.args(["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups"]);
            command.args(["--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]);
        }
        command.arg(program).args(arguments);
        // Of the environment, kbuild takes ARCH, CROSS_COMPILE, KBUILD_OUTPUT and others.
        command.env_clear().envs([("LC_ALL", "C"), ("HOME", "/tmp"), ("TMPDIR", "/tmp")]);
        command.envs(env::var_os("PATH").map(|path| ("PATH", path)));
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        limit(&mut command);
        run(program, command, self.cancel)
    }

    fn arguments(&self) -> Vec<OsString> {
        let mut all: Vec<OsString> = [
            "--die-with-parent",
            "--new-session",
            "--unshare-ipc",
            "--unshare-pid",
            "--unshare-net",
            "--unshare-uts",
            "--unshare-cgroup-try",
        ]
        .map(OsString::from)
        .into();
        match self.user {
            User::Nobody => {
                all.extend(["--cap-drop", "ALL", "--cap-add", "CAP_SETUID"].map(OsString::from));
                all.extend(
                    ["--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP"].map(OsString::from),
                );
            }
            User::Same => all.extend(["--unshare-user", "--cap-drop", "ALL"].map(OsString::from)),
        }
        all.extend(["--dev", "/dev", "--perms", "1777", "--tmpfs", "/tmp"].map(OsString::from));
        for path in MERGED.map(Path::new) {
            if let Ok(to) = fs::read_link(path) {
                all.extend(["--symlink".into(), to.into(), path.as_os_str().to_owned()]);
            }
        }
        let mut bind = |how: &str, path: &Path| {
            // Those above it, which bubblewrap would make for itself alone.
            let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
            above.reverse();
            for folder in above.into_iter().skip(1) {
                all.extend(["--perms", "0755", "--dir"].map(OsString::from));
                all.push(folder.into());
            }
            let path = path.as_os_str();
            all.extend([how.into(), path.to_owned(), path.to_owned()]);
        };
        let merged = MERGED.into_iter().filter(|path| fs::read_link(path).is_err());
        for path in SYSTEM.into_iter().chain(merged) {
            bind("--ro-bind-try", Path::new(path));
        }
        for path in programs() {
            bind("--ro-bind-try", &path);
        }
        for path in &self.readable {
            bind("--ro-bind", path);
        }
        bind("--bind", &self.writable);
        all
    }

    /// Make it the property of the user that builds. Nothing runs in the sandbox then.
    fn hand_over(&self) -> Result<(), ModuleBuildError> {
        match self.user {
            User::Nobody => give(&self.writable),
            User::Same => Ok(()),
        }
    }

    /// Check that a path in the writable folder is what it seems, and leads nowhere else: a build may have
    /// put a link there.
    ///
    /// # Errors
    /// It is or passes a link.
    pub(super) fn check(&self, path: &Path) -> Result<(), ModuleBuildError> {
        let parts = path.strip_prefix(&self.writable).unwrap_or(path).components();
        let mut at = self.writable.clone();
        for part in parts {
            at.push(part);
            let is_link = fs::symlink_metadata(&at).is_ok_and(|found| found.is_symlink());
            if is_link || !matches!(part, Component::Normal(_)) {
                return Err(ModuleBuildError::Link { path: path.to_owned() });
            }
        }
        Ok(())
    }

    /// Read a regular file of the writable folder.
    ///
    /// # Errors
    /// It isn't one, or can't be read.
    pub(super) fn read(&self, path: &Path) -> Result<Vec<u8>, ModuleBuildError> {
        self.check(path)?;
        match fs::symlink_metadata(path) {
            Ok(found) if !found.is_file() => Err(ModuleBuildError::Link { path: path.to_owned() }),
            _ => fs::read(path).map_err(read_failed(path)),
        }
    }

    /// Let the user that builds read all of a folder, whatever mask its files were made with.
    pub(super) fn open(&self, folder: &Path) -> Result<(), ModuleBuildError> {
        match self.user {
            User::Nobody => open(folder),
            User::Same => Ok(()),
        }
    }
}

/// The folders of `PATH` that are not the system's, and that can be read.
fn programs() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let is_other = |folder: &PathBuf| {
        let mut known = SYSTEM.iter().chain(&MERGED);
        folder.is_absolute()
            && folder.components().count() > 1
            && !known.any(|known| folder.starts_with(known))
    };
    env::split_paths(&path)
        .filter(|folder| is_other(folder) && fs::read_dir(folder).is_ok())
        .collect()
}

/// Bound what one of its processes can use.
fn limit(command: &mut Command) {
    let set = |what, most: u64| {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: takes a structure, which outlives the call.
        match unsafe { libc::setrlimit(what, &raw const limit) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: between fork and exec only setrlimit is called, which is async-signal-safe and allocates
    // nothing.
    unsafe {
        command.pre_exec(move || {
            set(libc::RLIMIT_FSIZE, FILE_MAX_BYTES)?;
            set(libc::RLIMIT_CPU, CPU_MAX_SECONDS)?;
            set(libc::RLIMIT_CORE, 0)
        });
    }
}

fn give(path: &Path) -> Result<(), ModuleBuildError> {
    lchown(path, Some(NOBODY), Some(NOBODY)).map_err(write_failed(path))?;
    each_below(path, &mut give)
}

fn open(path: &Path) -> Result<(), ModuleBuildError> {
    let found = fs::symlink_metadata(path).map_err(read_failed(path))?;
    if found.is_symlink() {
        return Ok(());
    }
    let mode = found.permissions().mode();
    let more = if found.is_dir() || mode & 0o100 != 0 { 0o555 } else { 0o444 };
    if mode & more != more {
        fs::set_permissions(path, Permissions::from_mode(mode | more))
            .map_err(write_failed(path))?;
    }
    each_below(path, &mut open)
}

/// Do something with all that is in a folder, if it is one.
fn each_below(
    folder: &Path,
    act: &mut dyn FnMut(&Path) -> Result<(), ModuleBuildError>,
) -> Result<(), ModuleBuildError> {
    let is_folder = fs::symlink_metadata(folder).is_ok_and(|found| found.is_dir());
    if !is_folder {
        return Ok(());
    }
    for entry in fs::read_dir(folder).map_err(read_failed(folder))? {
        act(&entry.map_err(read_failed(folder))?.path())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::process;

    use super::*;

    /// Check that a build can write its own folder, and that none of the ways out of it works: other files, a network,
    /// processes, users and rights, and a link in place of a result.
    #[test]
    fn ways_out() {
        let place = tempfile::tempdir().unwrap();
        let (work, beside) = (place.path().join("work"), place.path().join("beside"));
        fs::create_dir(&work).unwrap();
        fs::create_dir(&beside).unwrap();
        fs::write(beside.join("header"), "a header").unwrap();
        fs::write(place.path().join("secret"), "a secret").unwrap();
        let never = AtomicBool::new(false);
        let sandbox = match Sandbox::new(&work, &[&beside], &never) {
            Ok(sandbox) => sandbox,
            Err(why) => return netplumb_testkit::skip(&why.to_string()),
        };
        let run = |script: &str| {
            let arguments = ["-c".into(), script.into()];
            let ran = sandbox.run("bash", &arguments, &work, &[]).unwrap();
            (ran.status.success(), ran.output)
        };
        let (beside, place) = (beside.display(), place.path());
        let inside =
            format!("cat {beside}/header >made && cat made && echo x >/tmp/x && echo y >/dev/null");
        assert_eq!(run(&inside), (true, "a header".into()));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let own = process::id();
        for script in [
            format!("cat {}/secret", place.display()),
            "cat /etc/shadow".into(),
            "cat /etc/passwd".into(),
            "ls /proc/1 || ls /sys/kernel || ls /run".into(),
            format!("echo x >/dev/tcp/127.0.0.1/{port}"),
            format!("kill -0 {own}"),
            "mount -t tmpfs none /tmp".into(),
            "mknod disk b 254 0".into(),
            "setpriv --reuid 0 true".into(),
            "chown 0:0 made".into(),
            // Of setuid programs.
            "su root -c true".into(),
            "test $(id -u) = 0".into(),
        ] {
            let (is_out, said) = run(&script);
            assert!(!is_out, "{script}: {said}");
        }
        // Folders above its own are not the ones outside.
        let folders = [
            place,
            &place.join("beside"),
            Path::new("/usr/bin"),
            Path::new("/etc"),
            Path::new("/"),
        ];
        for folder in folders {
            let file = folder.join("escaped");
            run(&format!("echo x >{}", file.display()));
            assert!(!file.exists(), "{}", file.display());
        }
        // Links that it leaves are not followed.
        let (made, secret) = (work.join("made"), place.join("secret"));
        assert!(
            run(&format!("ln -sf {} made; ln -s {} folder", secret.display(), place.display())).0
        );
        for path in [&made, &work.join("folder/secret"), &work] {
            let read = sandbox.read(path);
            assert!(matches!(read, Err(ModuleBuildError::Link { .. })), "{read:?}");
        }
    }

    /// Check that nothing that a build starts is left when it has ended.
    #[test]
    fn nothing_goes_on() {
        let place = tempfile::tempdir().unwrap();
        let never = AtomicBool::new(false);
        let sandbox = match Sandbox::new(place.path(), &[], &never) {
            Ok(sandbox) => sandbox,
            Err(why) => return netplumb_testkit::skip(&why.to_string()),
        };
        let script = "(trap '' TERM HUP; while sleep 0.05; do date +%N >tick; done) >/dev/null 2>&1 &\nsleep 0.3";
        let arguments = ["-c".into(), script.into()];
        let ran = sandbox.run("bash", &arguments, place.path(), &[]).unwrap();
        assert!(ran.status.success(), "{}", ran.output);
        let tick = || fs::read_to_string(place.path().join("tick")).unwrap();
        let before = tick();
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert_eq!(tick(), before);
    }
}
