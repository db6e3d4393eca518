//! tracefs, and the function tracer in it.

use std::fs;
use std::io;
use std::path::Path;

use netplumb_model::capability::{Availability, Capability, Group};

use super::btf::FUNCTIONS;
use super::context::{Cap, Context};
use super::explain::{self, Need};
use super::mounts::Tree;
use super::program::Failure;
use super::trial;
use crate::tracefs::Instance;

const TREE: Need = Need { caps: &[Cap::SysAdmin], config: &["CONFIG_TRACING"], since: None };

const TRACER: Need =
    Need { caps: &[Cap::SysAdmin], config: &["CONFIG_FUNCTION_GRAPH_TRACER"], since: None };

/// Try every one of them.
pub(super) fn try_all(context: &Context) -> Vec<Capability> {
    vec![
        trial("tracefs", Group::Stages, "the list of tracepoints (tracefs)", || tracefs(context)),
        trial("function-tracer", Group::Functions, "the kernel's function_graph tracer", || {
            tracer(context)
        }),
    ]
}

fn open(context: &Context, need: &Need) -> Result<Tree, Availability> {
    Tree::open(c"tracefs")
        .map_err(|e| explain::no(context, need, &Failure::io("mounting tracefs", &e)))
}

fn tracefs(context: &Context) -> Availability {
    let tree = match open(context, &TREE) {
        Ok(tree) => tree,
        Err(verdict) => return verdict,
    };
    let events = match fs::read_dir(tree.path().join("events/net")) {
        Ok(folder) => folder.flatten().filter(|e| e.path().is_dir()).count(),
        Err(e) => return explain::no(context, &TREE, &Failure::io("reading tracefs", &e)),
    };
    let detail = format!("{events} tracepoints in net");
    match tree {
        Tree::Mounted(path) => Availability::yes(format!("{detail}, at {}", path.display())),
        Tree::Detached(_) => {
            Availability::yes(format!("{detail}; not mounted, opened without a mount"))
        }
    }
}

fn tracer(context: &Context) -> Availability {
    let tree = match open(context, &TRACER) {
        Ok(tree) => tree,
        Err(verdict) => return verdict,
    };
    let root = tree.path();
    match trace_one(&root) {
        Ok(name) => Availability::yes(format!("traced {name} in an instance of its own")),
        Err(failure) => explain::no(context, &TRACER, &failure),
    }
}

/// What the trial's instance is for: the tracing that others may have under way is not touched.
const PURPOSE: &str = "doctor";

fn trace_one(root: &Path) -> Result<String, Failure> {
    let tracers = fs::read_to_string(root.join("available_tracers"))
        .map_err(|e| Failure::io("reading the list of tracers", &e))?;
    if !tracers.split_whitespace().any(|t| t == "function_graph") {
        return Err(Failure::new("looking for the tracer \"function_graph\"", libc::ENOENT));
    }
    drop(Instance::left(root).into_iter().filter(|(of, _)| of == PURPOSE).collect::<Vec<_>>());
    let instance =
        Instance::make(root, PURPOSE).map_err(|e| Failure::io("making a trace instance", &e))?;
    instance.write("tracing_on", "0").map_err(|e| Failure::io("pausing the instance", &e))?;
    // One function only: switching on all of them stops every processor for a while. Its entries alone: an
    // instance has function_graph since Linux 6.11 only.
    let name = FUNCTIONS
        .iter()
        .filter_map(|name| name.to_str().ok())
        .find(|name| instance.write("set_ftrace_filter", name).is_ok());
    let Some(name) = name else {
        let error = instance.write("set_ftrace_filter", "ip_rcv").err();
        let error = error.unwrap_or_else(|| io::Error::from_raw_os_error(libc::EIO));
        return Err(Failure::io("choosing a function to trace", &error));
    };
    instance
        .write("current_tracer", "function")
        .map_err(|e| Failure::io("switching on the function tracer", &e))?;
    Ok(name.to_owned())
}
