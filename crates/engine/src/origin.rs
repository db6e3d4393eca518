//! The origin of runs: a guest that has booted and paused, saved once for each kernel, command line
//! and set of devices.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use netplumb_agent::facts;
use netplumb_instruments::exact;
use netplumb_kernel::config::KernelConfig;
use netplumb_kernel::kallsyms::SymbolTable;
use netplumb_kernel::modules::ModuleError;
use netplumb_kernel::signature;
use netplumb_lab::channel;
use netplumb_lab::vm::agent;
use netplumb_lab::vm::files::Program;
use netplumb_lab::vm::initramfs::{self, Module};
use netplumb_lab::vm::kernels::KernelEntry;
use netplumb_lab::vm::machine::{self, Machine};
use netplumb_lab::vm::process::{Extra, Guest, Start, VmError};
use netplumb_lab::vm::requested;
use netplumb_lab::vm::saved::{self, About, Content, Key, Saved, SavedStates, WhoseState};
use netplumb_lab::vm::trial::release::{self, Release};
use netplumb_lab::vm::trial::{self, QemuMissing};
use netplumb_model::arch::Arch;
use netplumb_model::class::{Link, Proto};
use netplumb_model::message::{Reply, Request, RunPlan};
use netplumb_model::recording::{Arm, env};
use netplumb_model::topology::TopologySpec;
use netplumb_sys::memory::memfd;
use netplumb_sys::threads::{self, Task};

use crate::error::EngineError;
use crate::extras;
use crate::kernel_lines::Booted;
use crate::plan::GuestPlan;
use crate::run::{Options, Progress, fetching};
use crate::symbols::Symbols;

/// A kernel on a machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Boot<'a> {
    pub(crate) guest: &'a GuestPlan,
    pub(crate) kernel: &'a KernelEntry,
    pub(crate) options: &'a Options,
}

/// The origin of runs: a saved guest at its first pause, after which it prepares for a plan, or at
/// its second, after that.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) machine: Machine,
    /// The symbols, if they are known before the guest runs.
    pub(crate) symbols: Option<Symbols>,
    pub(crate) facts: BTreeMap<String, String>,
    from: From,
    /// The user's modules, by their names.
    own: BTreeMap<String, PathBuf>,
    /// The kernel that its guests boot.
    kernel: KernelEntry,
    /// The plan to prepare for.
    plan: RunPlan,
    /// An archive of the modules that its guests' kernel may request.
    requested: Option<OwnedFd>,
}

#[derive(Debug)]
enum From {
    /// At the second pause: prepared.
    Prepared(Saved),
    /// At the first pause.
    Booted(Saved),
    /// Before both pauses: every run boots.
    Root(Vec<u8>),
}

impl Origin {
    /// Whether it is the origin of a plan.
    pub(crate) fn is_for(&self, plan: &RunPlan) -> bool {
        self.plan == preparation(plan)
    }

    /// What is between sender and receiver in its guests.
    pub(crate) fn topology(&self) -> &TopologySpec {
        &self.plan.topology.spec
    }

    /// The user's own parts of an arm: the text of a topology that is no preset, and the hashes of BPF objects.
    pub(crate) fn own_facts(&self, arm: &Arm) -> Result<BTreeMap<String, String>, EngineError> {
        let mut facts = BTreeMap::new();
        let spec = self.topology();
        if TopologySpec::preset(&spec.name).as_ref() != Some(spec) {
            let text = spec.to_toml();
            let mut hash = Key::default();
            hash.add("topology", text.as_bytes());
            facts.insert(env::TOPOLOGY.into(), format!("{} {}", spec.name, hash.finish()));
            facts.insert("topology.text".into(), text);
        }
        let mut objects = Vec::new();
        for program in extras::objects(arm)? {
            let mut hash = Key::default();
            hash.add("object", &program.object);
            objects.push(format!("{}.{} {}", program.hook, program.device, hash.finish()));
        }
        if !objects.is_empty() {
            facts.insert(env::OBJECTS.into(), objects.join(", "));
        }
        Ok(facts)
    }

    /// The architecture of its guests.
    pub(crate) fn arch(&self) -> Arch {
        self.kernel.arch
    }

    /// The release of the kernel that its guests boot.
    pub(crate) fn release(&self) -> &str {
        let known = self.facts.get(env::KERNEL);
        known.map_or("of the guest", String::as_str)
    }

    /// Whose source lines its code has.
    pub(crate) fn booted<'a>(&'a self, options: &'a Options) -> Booted<'a> {
        Booted {
            kernel: &self.kernel,
            own: &self.own,
            cache: &options.cache,
            cancel: &options.cancel,
        }
    }

    /// The symbols, for a guest that was started from a saved state.
    pub(crate) fn table(&self) -> Option<&SymbolTable> {
        self.symbols.as_ref()?.table()
    }

    /// What QEMU reports about a guest's CPU, if it is not among the facts, which come from a saved state.
    pub(crate) fn cpu_facts(
        &self,
        guest: &mut Guest,
    ) -> Result<BTreeMap<String, String>, EngineError> {
        match self.from {
            From::Root(_) => cpu_facts(guest),
            From::Booted(_) | From::Prepared(_) => Ok(BTreeMap::new()),
        }
    }

    /// The symbols, if no modules come after they were read: then a guest is asked for them at its end.
    pub(crate) fn final_symbols(&self) -> Option<&Symbols> {
        self.symbols.as_ref().filter(|_| self.requested.is_none())
    }

    /// What QEMU needs for the modules that the guest's kernel may request.
    fn with_modules(&self, extra: Extra) -> Result<Extra, EngineError> {
        let Some(archive) = &self.requested else {
            return Ok(extra);
        };
        let archive = archive.try_clone().map_err(EngineError::host("hold modules"))?;
        Ok(extra.and(Extra {
            args: requested::qemu_args(archive.as_raw_fd()),
            fds: vec![archive],
            cpu: None,
        }))
    }

    /// Start a guest that will carry out `requests`, and run it to its second pause.
    pub(crate) fn start(
        &self,
        requests: &[Request],
        extra: Extra,
        options: &Options,
    ) -> Result<Guest, EngineError> {
        let first = frames(&[Request::Prepare(self.plan.clone()), Request::Rest])?;
        let second = frames(requests)?;
        let from = match &self.from {
            From::Prepared(state) | From::Booted(state) => Start::Saved { state, memory: None },
            From::Root(initramfs) => Start::Boot { initramfs, memory: None },
        };
        let cancel = options.cancel.clone();
        let requests = [&first[..], &second[..]];
        let limit = options.timeout;
        let extra = self.with_modules(extra)?;
        let mut guest = Guest::start(&self.machine, from, requests, extra, limit, cancel)
            .map_err(EngineError::of_start)?;
        let ready = guest.wait_ready(limit);
        ready.map_err(|error| extras::of_boot(error, &self.own))?;
        if !matches!(self.from, From::Prepared(_)) {
            prepare(&mut guest, options)?;
        }
        if let Some(symbols) = &self.symbols {
            symbols.wait()?;
        }
        Ok(guest)
    }
}

/// Check the requirements of an architecture's guests, before anything is measured; returns QEMU. If instructions are
/// counted, the plugin is tried in an untested QEMU.
pub(crate) fn check(options: &Options, arch: Arch, counts: bool) -> Result<PathBuf, EngineError> {
    program(options, arch)?;
    let qemu = trial::find_qemu(arch).map_err(VmError::QemuMissing)?;
    let version = trial::version(&qemu, options.timeout, &options.cancel);
    if let (true, Ok(version)) = (counts, version)
        && Release::from_version(&version) == Release::Untested
    {
        passes(options, (&qemu, &version), exact::PLUGIN, || {
            trial::plugin_loads(&qemu, arch, exact::PLUGIN).map_err(EngineError::Plugin)
        })?;
    }
    Ok(qemu)
}

/// Try a plugin in this QEMU of this version, unless it passed before. An empty file in the cache directory
/// records each pass; its name is a hash of QEMU, the version and the plugin.
pub(crate) fn passes(
    options: &Options,
    (qemu, version): (&Path, &str),
    plugin: &[u8],
    trial: impl FnOnce() -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let mut key = Key::default();
    let content = Content::of_file(qemu).map_err(EngineError::host("read QEMU"))?;
    key.add_content("qemu", &content);
    // The program named as QEMU may be a script.
    key.add("version", version.as_bytes());
    key.add("plugin", plugin);
    let folder = options.cache.join("trials");
    let passed = folder.join(key.finish());
    if !passed.exists() {
        trial()?;
        // Without the file it is tried again, which costs some tenths of a second.
        let _ = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(passed, []));
    }
    Ok(())
}

/// The program that is init of guests of an architecture.
pub(crate) fn program(options: &Options, arch: Arch) -> Result<PathBuf, EngineError> {
    match &options.agent {
        Some(path) if arch == Arch::OWN => Ok(path.clone()),
        _ => Ok(agent::program(arch)?.into_path()),
    }
}

/// Run a guest from the first pause to the second.
fn prepare(guest: &mut Guest, options: &Options) -> Result<(), EngineError> {
    guest.go_on()?;
    guest.answers(options.timeout, |_| Ok(()))?;
    guest.answers(options.timeout, |_| Ok(()))?;
    Ok(guest.wait_again(options.timeout)?)
}

/// Requests, framed for the guest to read when it resumes.
pub(crate) fn frames(requests: &[Request]) -> Result<Vec<u8>, EngineError> {
    let mut frames = Vec::new();
    for request in requests {
        channel::send(&mut frames, request).map_err(EngineError::host("write the requests"))?;
    }
    Ok(frames)
}

impl Boot<'_> {
    pub(crate) fn machine(&self) -> Result<Machine, EngineError> {
        let qemu = trial::find_qemu(self.kernel.arch).map_err(VmError::QemuMissing)?;
        Ok(Machine {
            arch: self.kernel.arch,
            qemu,
            kernel: self.kernel.boot_image(),
            pvh: self.kernel.pvh,
            link: self.guest.link,
            host: self.guest.host,
            forward: self.guest.topology.links() > 1,
            icount: !self.options.quick,
            mitigations: self.guest.mitigations,
            cmdline: match self.guest.programs.contains(&Program::Nginx) {
                true => format!("{} {}", machine::large_root(self.kernel.arch), self.guest.cmdline),
                false => self.guest.cmdline.clone(),
            },
            seed: self.guest.seed,
            memory_mib: self.guest.memory_mib,
        })
    }

    /// The program that is init of the guest.
    fn init(&self) -> Result<PathBuf, EngineError> {
        program(self.options, self.kernel.arch)
    }

    pub(crate) fn initramfs(
        &self,
        machine: &Machine,
        tell: &dyn Fn(Progress),
    ) -> Result<Vec<u8>, EngineError> {
        // Only the modules that it loads, below.
        let lists = |path: &Path| !path.starts_with("modules/kernel");
        let store = self.options.kernels();
        let mut fetched = fetching("guests", tell);
        store.mend(self.kernel, &lists, &mut fetched)?;
        let init =
            std::fs::read(self.init()?).map_err(EngineError::host("read the guest's program"))?;
        let (tree, own) = extras::module_tree(self.kernel, self.guest)?;
        let mut more = extras::modules(self.guest, self.kernel, &tree)?;
        more.extend(own.iter().map(String::as_str));
        let of_link = |link: Link| {
            let machine = Machine { link, ..machine.clone() };
            tree.resolve(&machine.link_modules())
        };
        if let Err(ModuleError::Missing { name, .. }) = of_link(machine.link) {
            let of_hosts = machine.host.is_some();
            let is_one =
                |link: &Link| (!of_hosts || link.declared().hosts) && of_link(*link).is_ok();
            let others = Link::listed(|link| is_one(&link));
            return Err(EngineError::NoDriver {
                kernel: self.kernel.release.clone(),
                link: machine.link,
                module: name,
                remedy: match others.is_empty() {
                    true => "use another kernel".into(),
                    false => {
                        format!("use --link with one that it has ({others}), or another kernel")
                    }
                },
            });
        }
        let resolve = || tree.resolve(&[machine.link_modules(), more.clone()].concat());
        let needed = match resolve() {
            Ok(needed) => needed,
            Err(_) => {
                // A module that can't be read may be damaged.
                store.mend(self.kernel, &|_| true, &mut fetched)?;
                resolve()?
            }
        };
        // A module that was built here has no signature, and checking one takes time and memory: then
        // nothing after that is where, and when, it is in a guest with the kernel's own.
        let signed = extras::insists_on_signatures(self.kernel, &machine.kernel_cmdline());
        // Without a driver for the agent's port, the guest uses the serial port.
        let modules =
            tree.resolve(&[machine.modules(), more].concat()).unwrap_or_else(|_| needed.clone());
        let of_tree = |path: &Path| {
            let path = self.kernel.folder.join(path);
            modules.iter().any(|module| module.path == path)
        };
        store.mend(self.kernel, &of_tree, &mut fetched)?;
        let modules = modules
            .into_iter()
            .map(|m| {
                let bytes = m.read()?;
                Ok(Module {
                    bytes: match signed {
                        true => bytes,
                        false => signature::unsigned(&bytes).to_vec(),
                    },
                    required: m.required && needed.contains(&m),
                    options: extras::options_of(self.guest, &m.name).unwrap_or_default(),
                    name: m.name,
                })
            })
            .collect::<Result<Vec<_>, ModuleError>>()?;
        extras::check_loaded(self.guest, &modules)?;
        let mut archive = initramfs::build(machine.arch, &init, &modules)
            .map_err(EngineError::host("build the initramfs"))?;
        for (_, more) in extras::archives(self.kernel, self.guest, &self.options.cache)? {
            archive.extend(more);
        }
        Ok(archive)
    }

    /// The hash of everything that a saved state of this machine depends on.
    fn key(&self, machine: &Machine) -> Result<String, EngineError> {
        let mut key = Key::default();
        let content = |path: &Path, what| Content::of_file(path).map_err(EngineError::host(what));
        // These are tens of megabytes each, and nothing else can be done yet.
        let program = self.init()?;
        let bytes = |content: Content| content.bytes().to_vec();
        let parts = threads::each(vec![
            Box::new(|| content(&program, "read the guest's program").map(bytes)) as Task<'_, _>,
            Box::new(|| content(&machine.qemu, "read QEMU").map(bytes)),
            // The program named as QEMU may be a script.
            Box::new(|| Ok(self.qemu_version()?.into_bytes())),
        ]);
        for (name, part) in ["init", "qemu", "version"].into_iter().zip(parts) {
            key.add(name, &part?);
        }
        key.add("kernel", self.kernel.hash.as_bytes());
        if let Some(dsdt) = machine::dsdt(machine.arch) {
            key.add("dsdt", dsdt);
        }
        for module in machine.modules() {
            key.add("module", module.as_bytes());
        }
        if self.guest.topology.has_bridge() {
            key.add("module", b"bridge");
        }
        let mut modules: Vec<&str> = Vec::from_iter(self.guest.nft.then_some("nf_tables"));
        modules.extend(&self.guest.more_modules);
        modules.extend(self.guest.load.iter().map(String::as_str));
        for module in modules {
            key.add("module", module.as_bytes());
        }
        for module in &self.guest.qdisc_modules {
            key.add("module", module.as_bytes());
        }
        for (_, archive) in extras::archives(self.kernel, self.guest, &self.options.cache)? {
            key.add("files", &archive);
        }
        for module in &self.guest.own_modules {
            key.add_content("own module", &content(Path::new(module), "read the module")?);
        }
        for (module, options) in &self.guest.module_options {
            key.add("options", format!("{module} {options}").as_bytes());
        }
        for word in machine.description() {
            key.add("machine", word.as_bytes());
        }
        Ok(key.finish())
    }

    /// The origin of a plan's runs: an existing saved state, or a new one.
    pub(crate) fn origin(
        &self,
        plan: &RunPlan,
        tell: &dyn Fn(Progress),
    ) -> Result<Origin, EngineError> {
        let programs = extras::programs(self.guest);
        extras::fetch(self.kernel, programs, self.options, tell)?;
        let machine = self.machine()?;
        let plan = preparation(plan);
        let own = extras::own_files(self.kernel, self.guest)?;
        // What the topology needs, a prepared guest has.
        let of_rules = self.guest.requests;
        let of = |state: &Saved| {
            let symbols = Symbols::begin(Arc::clone(&state.symbols), &self.kernel.release);
            (Some(symbols), state.facts.clone())
        };
        let root = |machine: Machine, own, plan, requested| -> Result<Origin, EngineError> {
            let initramfs = self.initramfs(&machine, tell)?;
            Ok(Origin {
                machine,
                symbols: None,
                facts: self.host_facts(self.qemu_version()?)?,
                from: From::Root(initramfs),
                own,
                kernel: self.kernel.clone(),
                plan,
                requested,
            })
        };
        let requested = || extras::requested(self.kernel, self.guest);
        if self.options.cold {
            return root(machine, own, plan, requested()?);
        }
        let states = SavedStates::new(&self.options.cache).within(self.options.cache_bytes);
        let note = &mut |line| tell(Progress::Note(line));
        let base = self.key(&machine)?;
        let mut key = Key::default();
        key.add("state", base.as_bytes());
        key.add("prepared", &frames(&[Request::Prepare(plan.clone())])?);
        let prepared = key.finish();
        if let Some(state) = states.open(&prepared, note) {
            let (symbols, facts) = of(&state);
            return Ok(Origin {
                machine,
                symbols,
                facts,
                from: From::Prepared(state),
                own,
                kernel: self.kernel.clone(),
                plan,
                requested: if of_rules { requested()? } else { None },
            });
        }
        let booted = match states.open(&base, note) {
            Some(state) => state,
            None => match self.boot(&machine, &own, tell)? {
                Some(state) => self.keep(&states, &base, state, tell),
                None => {
                    tell(Progress::Note(
                        "saved states are not supported by this kernel (it lacks \
                         CONFIG_X86_IOPL_IOPERM); booting for each arm"
                            .into(),
                    ));
                    return root(machine, own, plan, requested()?);
                }
            },
        };
        let (symbols, facts) = of(&booted);
        let mut origin = Origin {
            machine,
            symbols,
            facts,
            from: From::Booted(booted),
            own,
            kernel: self.kernel.clone(),
            plan,
            requested: requested()?,
        };
        if origin.machine.can_be_saved_whole() {
            let state = self.advance(&origin)?;
            let state = self.keep(&states, &prepared, state, tell);
            (origin.symbols, origin.facts) = of(&state);
            origin.from = From::Prepared(state);
            origin.requested = origin.requested.filter(|_| of_rules);
        }
        Ok(origin)
    }

    /// Save a state; returns the one to use. If another run has saved one meanwhile, that is used,
    /// as by later runs: two boots are not quite the same.
    fn keep(
        &self,
        states: &SavedStates,
        key: &str,
        state: Saved,
        tell: &dyn Fn(Progress),
    ) -> Saved {
        let about = About {
            kernel: self.kernel.hash.clone(),
            release: self.kernel.release.clone(),
            link: self.guest.link.to_string(),
        };
        match states.keep(key, &about, &state) {
            Ok(WhoseState::Ours) => state,
            Ok(WhoseState::Theirs) => {
                let opened = states.open(key, &mut |line| tell(Progress::Note(line)));
                opened.unwrap_or(state)
            }
            Err(error) => {
                tell(Progress::Note(format!("can't save the state of the booted guest: {error}")));
                state
            }
        }
    }

    /// Boot, save the guest at its first pause, and request the facts that don't change from then
    /// on. None if it can't pause.
    fn boot(
        &self,
        machine: &Machine,
        own: &BTreeMap<String, PathBuf>,
        tell: &dyn Fn(Progress),
    ) -> Result<Option<Saved>, EngineError> {
        tell(Progress::Booting { kernel: self.kernel.release.clone(), link: self.guest.link });
        let began = Instant::now();
        let limit = self.options.timeout;
        let qemu_version = self.qemu_version()?;
        if Release::from_version(&qemu_version) == Release::Untested {
            tell(Progress::Note(format!(
                "QEMU {qemu_version} is untested; {} were tested",
                release::tested("and")
            )));
        }
        let memory = new_memory(u64::from(machine.memory_mib) << 20)?;
        let initramfs = self.initramfs(machine, tell)?;
        let asked = frames(&[Request::Describe, Request::ReadFile("/proc/kallsyms".into())])?;
        let from = Start::Boot { initramfs: &initramfs, memory: Some(&memory) };
        let cancel = self.options.cancel.clone();
        let extra = Extra::default();
        let mut guest = Guest::start(machine, from, [&asked[..], &[]], extra, limit, cancel)
            .map_err(EngineError::of_start)?;
        let ready = guest.wait_ready(limit);
        ready.map_err(|error| extras::of_boot(error, own))?;
        if !guest.rests() {
            return Ok(None);
        }
        let (devices, kept) = save(&mut guest, &memory)?;
        let port = guest.port();
        guest.go_on()?;
        let mut facts = self.host_facts(qemu_version)?;
        facts.extend(cpu_facts(&mut guest)?);
        facts.extend(described_facts(&mut guest, limit)?);
        let symbols = guest.bytes(limit)?;
        tell(Progress::Ready { after: began.elapsed() });
        Ok(Some(Saved { memory: kept, devices, symbols: Arc::new(symbols), port, facts }))
    }

    /// Advance the state from the first pause to the second.
    fn advance(&self, origin: &Origin) -> Result<Saved, EngineError> {
        let From::Booted(state) = &origin.from else {
            return Err(EngineError::Save("no saved state".into()));
        };
        let memory = memory_like(&state.memory)?;
        saved::copy_memory(&state.memory, &memory)
            .map_err(EngineError::host("hold the guest's memory"))?;
        let first = frames(&[Request::Prepare(origin.plan.clone()), Request::Rest])?;
        let mut second = vec![Request::Describe];
        // The modules of its devices have symbols.
        let has_modules = self.guest.topology.needs_requests();
        second.extend(has_modules.then(|| Request::ReadFile("/proc/kallsyms".into())));
        let second = frames(&second)?;
        let from = Start::Saved { state, memory: Some(&memory) };
        let cancel = self.options.cancel.clone();
        let requests = [&first[..], &second[..]];
        let extra = origin.with_modules(Extra::default())?;
        let limit = self.options.timeout;
        let mut guest = Guest::start(&origin.machine, from, requests, extra, limit, cancel)?;
        guest.wait_ready(limit)?;
        prepare(&mut guest, self.options)?;
        let (devices, kept) = save(&mut guest, &memory)?;
        guest.go_on()?;
        let mut facts = state.facts.clone();
        facts.extend(described_facts(&mut guest, limit)?);
        Ok(Saved {
            memory: kept,
            devices,
            symbols: match has_modules {
                true => Arc::new(guest.bytes(limit)?),
                false => Arc::clone(&state.symbols),
            },
            port: state.port,
            facts,
        })
    }

    /// The version of QEMU, which is saved with a state: one that is unknown now would remain so.
    fn qemu_version(&self) -> Result<String, EngineError> {
        let qemu = trial::find_qemu(self.kernel.arch).map_err(VmError::QemuMissing)?;
        let Options { timeout, cancel, .. } = self.options;
        let missing = match trial::version(&qemu, *timeout, cancel) {
            Ok(version) if Release::from_version(&version) == Release::TooOld => {
                QemuMissing::TooOld(qemu, version)
            }
            Ok(version) => return Ok(version),
            Err(_) if cancel.load(Relaxed) => return Err(VmError::Interrupted.into()),
            Err(why) => QemuMissing::NotQemu(qemu, why),
        };
        Err(VmError::QemuMissing(missing).into())
    }

    /// Facts about the guest that the host knows.
    fn host_facts(&self, qemu_version: String) -> Result<BTreeMap<String, String>, EngineError> {
        let mut facts = BTreeMap::new();
        for (key, archive) in extras::archives(self.kernel, self.guest, &self.options.cache)? {
            let mut hash = Key::default();
            hash.add(key, &archive);
            facts.insert(key.into(), hash.finish());
        }
        let program = Content::of_file(&self.init()?)
            .map_err(EngineError::host("read the guest's program"))?;
        let mut hash = Key::default();
        hash.add_content(env::PROGRAM, &program);
        facts.insert(env::PROGRAM.into(), hash.finish());
        facts.insert(env::QEMU.into(), qemu_version);
        let config = self.kernel.config().and_then(|path| std::fs::read_to_string(path).ok());
        if let Some(config) = config.and_then(|text| KernelConfig::parse(&text).ok()) {
            facts.extend(facts::config(&config));
        }
        facts.insert(env::KERNEL.into(), self.kernel.release.clone());
        facts.insert(env::KERNEL_HASH.into(), self.kernel.hash.clone());
        let mitigations = if self.guest.mitigations { "on" } else { "off" };
        facts.insert(env::MITIGATIONS.into(), mitigations.into());
        Ok(facts)
    }
}

/// The part of a plan that a guest prepares for: what arms of a sweep usually share. Settings are
/// made after the links are set up.
pub(crate) fn preparation(plan: &RunPlan) -> RunPlan {
    RunPlan {
        proto: Proto::Udp,
        size_bytes: 0,
        packets: 0,
        warmup_packets: 0,
        blocks: 0,
        sysctl: BTreeMap::new(),
        offload: BTreeMap::new(),
        nics: Default::default(),
        nft: None,
        qdisc: None,
        programs: Vec::new(),
        from_device: None,
        ..plan.clone()
    }
}

/// What QEMU reports about the CPU.
fn cpu_facts(guest: &mut Guest) -> Result<BTreeMap<String, String>, EngineError> {
    let lacking = guest.lacking_features()?.join(", ");
    let fact = (!lacking.is_empty()).then_some((env::CPU_LACKS.to_owned(), lacking));
    Ok(fact.into_iter().collect())
}

/// Request facts, before the plugin counts.
fn described_facts(
    guest: &mut Guest,
    limit: Duration,
) -> Result<BTreeMap<String, String>, EngineError> {
    let mut facts = BTreeMap::new();
    guest.answers(limit, |reply| {
        if let Reply::Facts(guest_facts) = reply {
            facts.extend(guest_facts);
        }
        Ok(())
    })?;
    Ok(facts)
}

fn new_memory(bytes: u64) -> Result<File, EngineError> {
    let memory = memfd("netplumb-memory", b"").map(File::from);
    memory
        .and_then(|memory| memory.set_len(bytes).map(|()| memory))
        .map_err(EngineError::host("hold the guest's memory"))
}

/// Memory of the same size.
fn memory_like(memory: &File) -> Result<File, EngineError> {
    let known = memory.metadata();
    new_memory(known.map_err(EngineError::host("hold the guest's memory"))?.len())
}

/// Save the devices of a paused guest, and a copy of its memory, in which it will resume.
fn save(guest: &mut Guest, memory: &File) -> Result<(Vec<u8>, File), EngineError> {
    let devices = guest.save_devices()?;
    let kept = memory_like(memory)?;
    saved::copy_memory(memory, &kept).map_err(EngineError::host("hold the guest's memory"))?;
    Ok((devices, kept))
}
