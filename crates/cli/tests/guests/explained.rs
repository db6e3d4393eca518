//! Why one path takes longer than another: the instructions of a packet along each, counted in
//! a guest, the same in every run.

use crate::common::explained::{document, function, path};
use crate::common::{Place, has_guests, prints};
use serde_json::Value;

/// Check that what a packet costs along XDP, rules and a socket is counted to the same
/// instruction twice, that every packet is among it, and that the functions are theirs.
#[test]
fn explained_twice_is_the_same() {
    if !has_guests() {
        return;
    }
    let place = Place::new();
    // A batch that the socket's buffer has room for.
    let words = "bench drop --path xdp,nft-raw,socket --batch 32 --lab vm --explain --blocks 1 \
                 --time 100ms --warmup 50ms --quiet";
    let runs: Vec<Value> = ["one", "two"]
        .iter()
        .map(|name| {
            // How a short block of rates ends is not what this is about.
            let ran = place.run(&format!("{words} --json --output {name}.plumb"));
            document(&ran)["explained"].clone()
        })
        .collect();
    assert_eq!(runs[0], runs[1]);
    let mut insns = Vec::new();
    for (name, of_it, of_others) in [
        ("xdp", "xdp_drop", "nft_do_chain"),
        ("nft-raw", "nft_do_chain", "xdp_drop"),
        ("socket", "udp_queue_rcv_one_skb", "nft_do_chain"),
    ] {
        let path = path(&runs[0], name);
        assert!(path["packets"].as_u64().unwrap() > 1_000, "{path:#}");
        assert_eq!(path["packets"], path["handled"], "{path:#}");
        assert!(function(path, of_it) > 5.0, "{path:#}");
        assert_eq!(function(path, of_others), 0.0, "{path:#}");
        let all = path["own"].as_f64().unwrap();
        let layers = path["layers"].as_object().unwrap().values();
        let layers: f64 = layers.map(|insns| insns.as_f64().unwrap()).sum();
        assert!((layers - all).abs() < 1e-6, "{path:#}");
        let unnamed = function(path, "[unknown]");
        assert!(unnamed < all / 100.0, "{path:#}");
        insns.push(all);
    }
    // Packets are read by system calls: their part is the path's.
    assert!(function(path(&runs[0], "socket"), "udp_recvmsg") > 5.0);
    assert!(insns[0] * 2.0 < insns[1] && insns[1] < insns[2], "{insns:?}");
    let again = place.run("report one.plumb");
    let words = ["why: kernel instructions of each packet", "nft-raw against xdp: +"];
    prints(again.code(0), &words);
    place.run("diff one.plumb two.plumb").code(0);
    place.nothing_runs();
}
