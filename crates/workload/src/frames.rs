//! A frame generator in the kernel, by XDP test runs.
//!
//! A thread on each CPU lets the kernel run an XDP program with live frames (bpf(2),
//! BPF_F_TEST_XDP_LIVE_FRAMES, since Linux 5.18) until it is stopped; the program makes a frame
//! each time, or none while none is due, and redirects it to the device. The tracepoints
//! `xdp_devmap_xmit` and `xdp_redirect_err` show whether the device accepted it. A device that
//! accepts no frames by XDP gets them by packet sockets.
//!
//! See frames/frames.bpf.c for how frames are made, and frames/stamp.h for timestamps.

mod bounded;
mod calibrate;
mod error;
mod headers;
mod layout;
mod live;
mod maker;
mod plan;
mod sockets;
mod system;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender as Reply, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use netplumb_model::bench::{FRAME_BYTES_LEAST, FrameSize, Generated};

pub use self::bounded::Bounded;
pub use self::calibrate::{Calibration, calibrate};
pub use self::error::GeneratorError;
pub use self::plan::{BATCH, BATCH_MOST, Exit, GeneratorPlan, Method, TTL};

use self::error::doing;
use self::layout::Mode;
use self::live::Live;
use self::sockets::{Done, Sender};

/// Prefix of the names of sending threads.
pub const THREAD: &str = "frames-";
/// Interval of repeating the signal to a thread that was not in its system call yet.
const CALL_AGAIN: Duration = Duration::from_millis(2);

/// Sends frames until it is stopped or dropped.
#[derive(Debug)]
pub struct Generator {
    method: Method,
    facts: BTreeMap<String, String>,
    made: FrameMaker,
    threads: Vec<Thread>,
    stop: Arc<AtomicBool>,
}

/// The method, with its counters.
#[derive(Debug)]
enum FrameMaker {
    InKernel(Arc<Live>),
    Here(Vec<Done>),
}

/// A sending thread on a CPU.
#[derive(Debug)]
struct Thread {
    cpu: u32,
    handle: JoinHandle<Result<(), GeneratorError>>,
    /// Why it ended unexpectedly, if it did.
    failed: Arc<Mutex<Option<String>>>,
}

impl Generator {
    /// Start to send. Returns when all threads are on their CPUs.
    ///
    /// # Errors
    /// [`GeneratorError::Input`] for an invalid plan; other errors if this machine or user can't do
    /// it. Nothing is running then.
    pub fn start(plan: GeneratorPlan) -> Result<Generator, GeneratorError> {
        Generator::start_as(plan, Mode::Full)
    }

    fn start_as(plan: GeneratorPlan, mode: Mode) -> Result<Generator, GeneratorError> {
        plan.check()?;
        plan.check_cpus()?;
        let longest = headers::sizes(&plan).into_iter().max().unwrap_or_default();
        system::check_device(plan.exit.namespace.as_fd(), plan.exit.device, longest)?;
        system::answer_calls()?;
        let why_sockets = match plan.method {
            Some(Method::Sockets) => "asked for".to_string(),
            asked => match Generator::in_kernel(&plan, mode, asked.is_some()) {
                Ok(generator) => return Ok(generator),
                Err(GeneratorError::CannotRun { reason, .. }) if asked.is_none() => reason,
                Err(e) => return Err(e),
            },
        };
        Generator::here(&plan, &why_sockets)
    }

    /// By test runs; unless `asked`, only if the device accepts frames by XDP.
    fn in_kernel(
        plan: &GeneratorPlan,
        mode: Mode,
        asked: bool,
    ) -> Result<Generator, GeneratorError> {
        if !asked {
            live::check_takes_xdp(plan)?;
        }
        let live = Arc::new(Live::load(plan, mode)?);
        if !asked {
            live.try_out(plan)?;
        }
        let mut facts = facts_of(plan, Method::Xdp, if asked { "asked for" } else { "it can" });
        let mut sent = "seen at xdp_devmap_xmit and xdp_redirect_err".to_string();
        if !live.unattached.is_empty() {
            let why: Vec<String> = live
                .unattached
                .iter()
                .map(|(tracepoint, why)| format!("{tracepoint}: {why}"))
                .collect();
            sent = format!(
                "incomplete: without xdp_devmap_xmit every frame counts as sent, without xdp_redirect_err some refusals are missing ({})",
                why.join("; ")
            );
        }
        facts.insert("generator.sent".into(), sent);
        let mut generator = Generator {
            method: Method::Xdp,
            facts,
            made: FrameMaker::InKernel(Arc::clone(&live)),
            threads: Vec::new(),
            stop: Arc::default(),
        };
        generator.spawn(plan, |_, _| {
            let live = Arc::clone(&live);
            Ok(move |ready: Ready, stop: Arc<AtomicBool>| {
                system::hear_calls()?;
                ready.tell();
                live.run(&stop)
            })
        })?;
        Ok(generator)
    }

    /// A generator with packet sockets, and the reason for them.
    fn here(plan: &GeneratorPlan, why: &str) -> Result<Generator, GeneratorError> {
        let mut facts = facts_of(plan, Method::Sockets, why);
        facts.insert(
            "generator.sent".into(),
            "as reported by sendmmsg; later drops by the device are not known".into(),
        );
        let mut done = Vec::new();
        let mut generator = Generator {
            method: Method::Sockets,
            facts,
            made: FrameMaker::Here(Vec::new()),
            threads: Vec::new(),
            stop: Arc::default(),
        };
        generator.spawn(plan, |index, cpu| {
            let sender = Sender::new(plan, index, cpu)?;
            done.push(sender.done());
            Ok(move |ready: Ready, stop: Arc<AtomicBool>| {
                let socket = sender.open()?;
                ready.tell();
                sender.run(&socket, &stop)
            })
        })?;
        generator.made = FrameMaker::Here(done);
        Ok(generator)
    }

    /// Start a thread on each CPU; if one fails, all are stopped.
    fn spawn<F>(
        &mut self,
        plan: &GeneratorPlan,
        mut work: impl FnMut(u32, u32) -> Result<F, GeneratorError>,
    ) -> Result<(), GeneratorError>
    where
        F: FnOnce(Ready, Arc<AtomicBool>) -> Result<(), GeneratorError> + Send + 'static,
    {
        for (index, cpu) in (0..).zip(plan.cpus.iter().copied()) {
            let work = work(index, cpu)?;
            let namespace = plan.exit.namespace.try_clone();
            let namespace = namespace.map_err(doing("open a network namespace"))?;
            let (reply, is_ready) = channel();
            let failed: Arc<Mutex<Option<String>>> = Arc::default();
            let (stop, tell) = (Arc::clone(&self.stop), Arc::clone(&failed));
            let handle = std::thread::Builder::new()
                .name(format!("{THREAD}{cpu}"))
                .spawn(move || {
                    // The namespace goes with the thread.
                    let result = system::pin(cpu)
                        .and_then(|()| system::enter(namespace.as_fd()))
                        .and_then(|()| work(Ready(reply), stop));
                    if let Err(e) = &result {
                        let mut failure = tell.lock().unwrap_or_else(PoisonError::into_inner);
                        *failure = Some(e.to_string());
                    }
                    result
                })
                .map_err(doing("start a thread"))?;
            self.threads.push(Thread { cpu, handle, failed });
            // No reply: it has ended with an error.
            if is_ready.recv().is_err() {
                return self.end().and(Err(GeneratorError::System {
                    doing: format!("send from CPU {cpu}"),
                    source: io::Error::other("the thread ended unexpectedly"),
                }));
            }
        }
        Ok(())
    }

    /// How frames are sent: the method that was chosen at the start.
    pub fn method(&self) -> Method {
        self.method
    }

    /// The method with the reason, and unknown facts; for users.
    pub fn facts(&self) -> &BTreeMap<String, String> {
        &self.facts
    }

    /// The counters so far, by CPU. While it sends, up to a batch of frames on each CPU is made and
    /// neither sent nor refused yet.
    ///
    /// # Errors
    /// A thread has failed, or the counts can't be read.
    pub fn counts(&self) -> io::Result<Vec<Generated>> {
        for thread in &self.threads {
            let failed = thread.failed.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(why) = failed.as_ref() {
                return Err(io::Error::other(format!(
                    "sending from CPU {} stopped: {why}",
                    thread.cpu
                )));
            }
        }
        self.made.counts()
    }

    /// Stop sending. When it returns, all frames were sent or refused.
    ///
    /// # Errors
    /// A thread has failed, or the counts can't be read.
    pub fn stop(mut self) -> Result<Vec<Generated>, GeneratorError> {
        self.end()?;
        self.made.counts().map_err(doing("read the generator's counts"))
    }

    fn end(&mut self) -> Result<(), GeneratorError> {
        self.stop.store(true, Ordering::Release);
        let mut result = Ok(());
        let in_kernel = matches!(self.made, FrameMaker::InKernel(_));
        for thread in &self.threads {
            while in_kernel && !thread.handle.is_finished() {
                // It has not been joined, so its id is valid. It may end meanwhile, which is not an
                // error.
                let _ = nix::sys::pthread::pthread_kill(
                    thread.handle.as_pthread_t() as _,
                    system::CALL_BACK,
                );
                std::thread::sleep(CALL_AGAIN);
            }
        }
        for thread in self.threads.drain(..) {
            let ended = thread.handle.join().unwrap_or_else(|_| {
                Err(GeneratorError::System {
                    doing: format!("send from CPU {}", thread.cpu),
                    source: io::Error::other("the thread panicked"),
                })
            });
            result = result.and(ended);
        }
        result
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        // Errors are reported by `stop`.
        let _ = self.end();
    }
}

impl FrameMaker {
    fn counts(&self) -> io::Result<Vec<Generated>> {
        match self {
            FrameMaker::InKernel(live) => live.counts(),
            FrameMaker::Here(done) => Ok(done.iter().map(|d| sockets::lock(d).clone()).collect()),
        }
    }
}

/// A thread's signal that it is on its CPU and in its namespace.
struct Ready(Reply<()>);

impl Ready {
    fn tell(self) {
        // The receiver may be gone.
        let _ = self.0.send(());
    }
}

fn facts_of(plan: &GeneratorPlan, method: Method, why: &str) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let mut tell = |what: &str, how: String| facts.insert(format!("generator.{what}"), how);
    tell("method", format!("{} ({why})", method.name()));
    tell("batch", plan.batch.to_string());
    let sizes = headers::sizes(plan);
    let shortest = sizes.first().copied().unwrap_or_default();
    if plan.frames.size == FrameSize::Imix && shortest > FRAME_BYTES_LEAST {
        tell("imix", format!("the shortest frames are {shortest} bytes, as the headers need"));
    }
    facts
}
