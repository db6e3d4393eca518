//! Why a name finds no kernel, or several: what there is, and how to add it.

use netplumb_model::arch::Arch;

use super::asked::DebianRequest;
use super::{KernelEntry, KernelSource, KernelStoreError};

/// The error that a name matches none of these kernels.
pub(super) fn unknown(name: String, kernels: &[KernelEntry]) -> KernelStoreError {
    KernelStoreError::Unknown { remedy: how_to_add(&name), name, kernels: lines(kernels) }
}

/// The error that a name matches all of these kernels.
pub(super) fn ambiguous(name: String, kernels: &[KernelEntry]) -> KernelStoreError {
    KernelStoreError::Ambiguous { name, kernels: lines(kernels) }
}

/// The command that adds a kernel of this name, if its source follows from the name.
fn how_to_add(name: &str) -> String {
    if let Some(error) =
        (name.strip_prefix("debian:")).and_then(|asked| DebianRequest::parse(asked).err())
    {
        return error.to_string();
    }
    let is_source = KernelSource::parse(name, None).is_ok();
    let of_debian = Arch::ALL.iter().any(|arch| name.ends_with(&format!("-{}", arch.debian())))
        && name.starts_with(|c: char| c.is_ascii_digit());
    let of_debian = DebianRequest::parse(name).ok().filter(|_| of_debian);
    match of_debian {
        _ if is_source => format!("`plumb kernel add {name}` adds it"),
        Some(asked) => {
            let source = asked.source();
            format!("if it is Debian's, `plumb kernel add {source}` adds it")
        }
        None => "`plumb kernel add` takes `debian`, `debian:VERSION`, `debian:arm64`, a .deb, a \
                 vmlinuz or a kernel build directory"
            .to_owned(),
    }
}

/// A line for each kernel.
fn lines(kernels: &[KernelEntry]) -> Vec<String> {
    let line = |kernel: &KernelEntry| {
        let labels = kernel.labels().map(|label| format!(", label {label}"));
        format!(
            "  {}  {}  {}  {}{}",
            kernel.short(),
            kernel.arch,
            kernel.release,
            kernel.source(),
            labels.collect::<String>()
        )
    };
    kernels.iter().map(line).collect()
}
