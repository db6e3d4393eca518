//! What `plumb bench --explain` prints as JSON.

use serde_json::Value;

use super::Ran;

/// The JSON that a run printed.
pub(crate) fn document(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {ran:#?}"))
}

/// The cost of a packet along a path.
pub(crate) fn path<'a>(explained: &'a Value, name: &str) -> &'a Value {
    let mut paths = explained.as_array().unwrap().iter();
    paths
        .find(|path| path["path"] == name)
        .unwrap_or_else(|| panic!("no path {name}: {explained:#}"))
}

/// What a function of a path costs for each packet.
pub(crate) fn function(path: &Value, name: &str) -> f64 {
    let functions = path["functions"].as_array().unwrap().iter();
    functions.filter(|f| f["name"] == name).map(|f| f["own"].as_f64().unwrap()).sum()
}
