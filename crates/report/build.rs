//! Builds the HTML page from web/, so that it is carried inside the binary.

use std::path::Path;
use std::process::{self, Command};
use std::{env, fs};

/// What the page is made of, in web/; the rest there is for its tests.
const INPUTS: [&str; 7] = [
    "build.sh",
    "index.html",
    "package.json",
    "package-lock.json",
    ".npmrc",
    "vite.config.js",
    "src",
];

fn main() {
    let manifest = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    let out = env::var_os("OUT_DIR").unwrap_or_default();
    let web = Path::new(&manifest).join("../../web");
    for input in INPUTS {
        println!("cargo::rerun-if-changed={}", web.join(input).display());
    }
    let folder = Path::new(&out).join("web");
    // Its own words go to the standard error, which cargo shows if it fails.
    let built = Command::new("sh").arg(web.join("build.sh")).arg(&folder).status();
    if !built.is_ok_and(|status| status.success()) {
        fail(
            "the HTML page does not build: that takes Node.js 18 or later and npm (as root: apt-get \
             install nodejs npm), and registry.npmjs.org; above is what happened",
        );
    }
    let page = folder.join("dist/index.html");
    if let Err(error) = fs::copy(&page, Path::new(&out).join("page.html")) {
        fail(&format!("can't copy {}: {error}", page.display()));
    }
}

fn fail(message: &str) -> ! {
    println!("cargo::error={message}");
    process::exit(1);
}
