//! What guests send: a kernel is anyone's.

use std::sync::OnceLock;

use netplumb_instruments::exact::{Accountant, StreamReader};
use netplumb_kernel::kallsyms::SymbolTable;
use netplumb_kernel::path_rules::PathRules;
use netplumb_lab::channel::Decoder;
use netplumb_model::message::{Reply, Request};
use netplumb_usb::usbip;

/// Records of a stream that are accounted for: more show nothing new.
const RECORDS: usize = 1 << 16;

pub(crate) fn plugin(data: &[u8]) -> bool {
    static TABLES: OnceLock<(SymbolTable, PathRules)> = OnceLock::new();
    let (symbols, rules) = TABLES.get_or_init(|| {
        let text = "0000000000001000 T udp_sendmsg\n0000000000001100 T ip_output\n0000000000002000 T end\n";
        let symbols = SymbolTable::parse(text.as_bytes()).unwrap_or_default();
        (symbols, PathRules::built_in())
    });
    let mut reader = StreamReader::new(data);
    let mut accountant = Accountant::new(symbols, rules);
    let mut is_whole = false;
    for _ in 0..RECORDS {
        match reader.next() {
            Ok(Some(record)) => drop(accountant.take(record)),
            Ok(None) => {
                is_whole = true;
                break;
            }
            Err(_) => break,
        }
    }
    let _ = accountant.losses();
    is_whole && !accountant.tree().nodes().is_empty()
}

pub(crate) fn frames(data: &[u8]) -> bool {
    let mut decoder = Decoder::default();
    let mut is_any = false;
    // As it arrives: in pieces.
    for piece in data.chunks(97) {
        decoder.push(piece);
        while let Ok(Some(_)) = decoder.take::<Reply>() {
            is_any = true;
        }
    }
    is_any
}

// Behind the checksums of a frame, which no input that is made up has.

pub(crate) fn replies(data: &[u8]) -> bool {
    postcard::from_bytes::<Reply>(data).is_ok()
}

pub(crate) fn requests(data: &[u8]) -> bool {
    postcard::from_bytes::<Request>(data).is_ok()
}

pub(crate) fn usbip(data: &[u8]) -> bool {
    let mut is_any = false;
    let mut rest = data;
    while let Ok(Some((_, bytes))) = usbip::Request::parse(rest) {
        (rest, is_any) = (&rest[bytes..], true);
    }
    rest = data;
    while let Ok(Some((_, bytes))) = usbip::Reply::parse(rest, |number| number % 2 == 0) {
        rest = &rest[bytes..];
    }
    is_any
}
