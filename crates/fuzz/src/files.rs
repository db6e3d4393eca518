//! Binary files.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use netplumb_import::Options;
use netplumb_instruments::image::Image;
use netplumb_kernel::btf::Btf;
use netplumb_kernel::deb;
use netplumb_kernel::image::KernelImage;
use netplumb_model::arch::Arch;
use netplumb_report::{analysis, json, together};
use netplumb_sys::memory::memfd;

/// A file in memory, by a path that lasts as long as it does.
fn in_memory(data: &[u8]) -> Option<(File, PathBuf)> {
    let file: File = memfd("netplumb-fuzz", data).ok()?.into();
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Some((file, path.into()))
}

pub(crate) fn recording(data: &[u8]) -> bool {
    // SQLite has files beside it.
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return false };
    let path = folder.path().join("x.plumb");
    let written = File::create(&path).and_then(|mut file| file.write_all(data));
    let Ok(recording) =
        written.map_err(drop).and_then(|()| netplumb_store::read(&path).map_err(drop))
    else {
        return false;
    };
    let views = analysis::classes(&recording);
    let _ = json::render(&recording, &views, None, &together::CrossQuantity::default());
    true
}

pub(crate) fn deb(data: &[u8]) -> bool {
    let Some((_file, path)) = in_memory(data) else { return false };
    let control = deb::control(&path);
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return false };
    let unpacked = deb::unpack(&path, &folder.path().join("into"), &|| false);
    control.is_ok() && unpacked.is_ok()
}

pub(crate) fn image(data: &[u8]) -> bool {
    let Ok(image) = KernelImage::parse(data.to_vec()) else { return false };
    let _ = image.btf();
    true
}

pub(crate) fn elf(data: &[u8]) -> bool {
    let debug = Image::read("x", data, Some(data));
    let Ok(image) = Image::read("x", data, None) else { return false };
    let _ = (image.has_symbols(), image.function(0x1000), image.address_of(0x1000));
    debug.is_ok()
}

pub(crate) fn btf(data: &[u8]) -> bool {
    let Ok(types) = Btf::parse(data.to_vec(), None) else { return false };
    let _ = types.prototype("g", Arch::X86_64);
    true
}

pub(crate) fn perf_data(data: &[u8]) -> bool {
    let Some((_file, path)) = in_memory(data) else { return false };
    let options = Options {
        blocks: 4,
        // Neither this machine's symbols nor files that it names are looked up.
        kallsyms: Some(
            concat!(env!("CARGO_MANIFEST_DIR"), "/../kernel/testdata/kallsyms-6.1-small.txt")
                .into(),
        ),
        symfs: Some(Path::new("/nonexistent").into()),
        cache: None,
    };
    netplumb_import::perf_data_of(|| File::open(&path), &path, &options).is_ok()
}
