//! The page's declarations in TypeScript, as `web/src/types.ts` has them.

use std::collections::BTreeMap;
use std::path::Path;

use netplumb_testkit::golden;
use ts_rs::{Config, TS, TypeVisitor};

use super::Page;

/// Declarations by name.
struct Declarations<'c> {
    config: &'c Config,
    by_name: BTreeMap<String, String>,
}

impl TypeVisitor for Declarations<'_> {
    fn visit<T: TS + 'static + ?Sized>(&mut self) {
        if T::output_path().is_none() || self.by_name.contains_key(&T::ident(self.config)) {
            return;
        }
        let docs = T::docs().unwrap_or_default();
        let declared = format!("{docs}export {}\n", T::decl(self.config));
        self.by_name.insert(T::ident(self.config), declared);
        T::visit_dependencies(self);
    }
}

/// Check that the page's sources have the declarations of its data, made of these here.
#[test]
fn declarations_are_the_same_in_typescript() {
    let config = Config::new().with_large_int("number");
    let mut all = Declarations { config: &config, by_name: BTreeMap::new() };
    all.visit::<Page>();
    let text: Vec<String> = all.by_name.into_values().collect();
    let text = format!(
        "/** The data of a page: made of crates/report/src/page.rs, by its test in types.rs. */\n\n{}",
        text.join("\n")
    );
    golden(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/src/types.ts"), &text);
}
