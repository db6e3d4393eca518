//! Knobs: the settings that arms differ in. Under which lab, link and load each can act
//! stands in [`super::acting`].

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer};

use super::nft::{self, Nft};
use super::qdisc;
use crate::class::{Family, Link, Proto, words};
use crate::recording::Arm;

words! {
    /// What a device can do in the kernel's place, as `ethtool -K` calls it.
    Offload, "offload",
    /// Checksums of what is received.
    RxChecksum = "rx-checksum",
    /// Checksums of what is sent.
    TxChecksum = "tx-checksum",
    /// Packets in several pieces of memory.
    Sg = "sg",
    /// TCP segmentation by the device.
    Tso = "tso",
    /// Segmentation as late as can be, by the kernel.
    Gso = "gso",
    /// Packets merged as they are received.
    Gro = "gro",
}

words! {
    /// In which namespaces rules are applied, or on whose egress a queueing discipline is.
    Within, "namespace",
    /// The sender's.
    Tx = "tx",
    /// The receiver's.
    Rx = "rx",
    /// Both ends'.
    Both = "both",
    /// The router's.
    Router = "router",
}

/// Payload of the paper's ping, and of every packet unless asked otherwise.
const DEFAULT_SIZE_BYTES: u32 = 10;

/// A number of bytes: an integer, or a string with a unit ("64K", "1500B").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u32);

impl std::str::FromStr for Bytes {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let digits = s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len());
        let (number, unit) = s.split_at(digits);
        let factor = match unit.trim() {
            "" | "B" => 1,
            "K" | "KiB" => 1 << 10,
            "M" | "MiB" => 1 << 20,
            other => {
                return Err(format!(
                    "`{}` is no unit of bytes: it takes B, K (1,024) or M",
                    other.chars().take(20).collect::<String>()
                ));
            }
        };
        number
            .parse::<u32>()
            .ok()
            .and_then(|n| n.checked_mul(factor))
            .map(Bytes)
            .ok_or_else(|| {
                format!(
                    "`{}` is no number of bytes",
                    s.chars().take(40).collect::<String>()
                )
            })
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Bytes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes, like 1500 or \"64K\"")
            }
            fn visit_i64<E: serde::de::Error>(self, n: i64) -> Result<Bytes, E> {
                u32::try_from(n)
                    .map(Bytes)
                    .map_err(|_| E::custom(format!("{n} is no number of bytes")))
            }
            fn visit_u64<E: serde::de::Error>(self, n: u64) -> Result<Bytes, E> {
                u32::try_from(n)
                    .map(Bytes)
                    .map_err(|_| E::custom(format!("{n} is no number of bytes")))
            }
            fn visit_str<E: serde::de::Error>(self, s: &str) -> Result<Bytes, E> {
                s.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// "on" or "off", as a word or as a boolean.
fn switch<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    one_switch(deserializer).map(Some)
}

fn one_switch<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    struct Visitor;
    impl serde::de::Visitor<'_> for Visitor {
        type Value = bool;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("\"on\" or \"off\"")
        }
        fn visit_bool<E>(self, on: bool) -> Result<bool, E> {
            Ok(on)
        }
        fn visit_str<E: serde::de::Error>(self, s: &str) -> Result<bool, E> {
            match s {
                "on" => Ok(true),
                "off" => Ok(false),
                _ => Err(E::invalid_value(serde::de::Unexpected::Str(s), &self)),
            }
        }
    }
    deserializer.deserialize_any(Visitor)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
struct Switch(#[serde(deserialize_with = "one_switch")] bool);

fn switches<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<bool>, D::Error> {
    Ok(Vec::<Switch>::deserialize(deserializer)?
        .into_iter()
        .map(|s| s.0)
        .collect())
}

fn switch_table<'de, D: Deserializer<'de>>(d: D) -> Result<BTreeMap<Offload, bool>, D::Error> {
    let table = BTreeMap::<Offload, Switch>::deserialize(d)?;
    Ok(table.into_iter().map(|(k, s)| (k, s.0)).collect())
}

fn switches_table<'de, D: Deserializer<'de>>(
    d: D,
) -> Result<BTreeMap<Offload, Vec<bool>>, D::Error> {
    let table = BTreeMap::<Offload, Vec<Switch>>::deserialize(d)?;
    Ok(table
        .into_iter()
        .map(|(k, levels)| (k, levels.into_iter().map(|s| s.0).collect()))
        .collect())
}

/// Settings of an arm; what is not set is inherited or the default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Knobs {
    /// What is sent. Default udp.
    pub proto: Option<Proto>,
    /// Over which IP. Default ipv4.
    pub family: Option<Family>,
    /// Over what. Default veth.
    pub link: Option<Link>,
    /// Whether a router stands between the ends. Default off.
    #[serde(deserialize_with = "switch")]
    pub forward: Option<bool>,
    /// Payload of a packet. Default 10.
    pub size_bytes: Option<Bytes>,
    /// MTU of the links. Default: the device's own.
    pub mtu_bytes: Option<Bytes>,
    /// Which kernel: a name that `plumb kernel show` knows. Default: debian.
    pub kernel: Option<String>,
    /// CPU vulnerability mitigations. Default off.
    #[serde(deserialize_with = "switch")]
    pub mitigations: Option<bool>,
    /// More words for the kernel's command line.
    pub cmdline: Option<String>,
    /// Settings below /proc/sys, with dots, for every namespace.
    pub sysctl: BTreeMap<String, String>,
    /// Offloads of every device on the path. Default: the device's own.
    #[serde(deserialize_with = "switch_table")]
    pub offload: BTreeMap<Offload, bool>,
    /// Rules of nftables. Default none: then nf_tables is not even loaded.
    #[serde(deserialize_with = "nft::from_toml")]
    pub nft: Option<Nft>,
    /// Where they are applied. Default: where the sender is.
    pub nft_in: Option<Within>,
    /// A queueing discipline, as `tc qdisc replace dev DEVICE root` takes it; empty for
    /// the device's own, which is the default.
    pub qdisc: Option<String>,
    /// On whose egress it is. Default: the sender's.
    pub qdisc_in: Option<Within>,
    /// A module's file in place of the kernel's own; empty for that one.
    pub module: Option<String>,
    /// Where the guest's random numbers begin. Default 1.
    pub seed: Option<u32>,
}

impl Knobs {
    /// These, and what `below` sets where these say nothing.
    pub fn over(&self, below: &Knobs) -> Knobs {
        let mut sysctl = below.sysctl.clone();
        sysctl.extend(self.sysctl.clone());
        let mut offload = below.offload.clone();
        offload.extend(self.offload.clone());
        Knobs {
            proto: self.proto.or(below.proto),
            family: self.family.or(below.family),
            link: self.link.or(below.link),
            forward: self.forward.or(below.forward),
            size_bytes: self.size_bytes.or(below.size_bytes),
            mtu_bytes: self.mtu_bytes.or(below.mtu_bytes),
            kernel: self.kernel.clone().or_else(|| below.kernel.clone()),
            mitigations: self.mitigations.or(below.mitigations),
            cmdline: self.cmdline.clone().or_else(|| below.cmdline.clone()),
            sysctl,
            offload,
            nft: self.nft.clone().or_else(|| below.nft.clone()),
            nft_in: self.nft_in.or(below.nft_in),
            qdisc: self.qdisc.clone().or_else(|| below.qdisc.clone()),
            qdisc_in: self.qdisc_in.or(below.qdisc_in),
            module: self.module.clone().or_else(|| below.module.clone()),
            seed: self.seed.or(below.seed),
        }
    }

    /// What is set, in words.
    pub fn describe(&self) -> String {
        let on = |b: bool| if b { "on" } else { "off" };
        let mut words = Vec::new();
        words.extend(self.proto.map(|v| v.to_string()));
        words.extend(self.family.map(|v| v.to_string()));
        words.extend(self.link.map(|v| v.to_string()));
        words.extend(self.forward.map(|v| format!("forward={}", on(v))));
        words.extend(self.size_bytes.map(|v| format!("size={}", v.0)));
        words.extend(self.mtu_bytes.map(|v| format!("mtu={}", v.0)));
        words.extend(self.kernel.as_ref().map(|v| format!("kernel={v}")));
        words.extend(self.mitigations.map(|v| format!("mitigations={}", on(v))));
        words.extend(self.cmdline.as_ref().map(|v| format!("cmdline={v}")));
        words.extend(self.sysctl.iter().map(|(k, v)| format!("{k}={v}")));
        words.extend(self.offload.iter().map(|(k, v)| format!("{k}={}", on(*v))));
        words.extend(self.nft.as_ref().map(Nft::describe));
        words.extend(self.nft_in.map(|v| format!("nft_in={v}")));
        words.extend(self.qdisc.as_deref().map(|v| {
            let text = qdisc::normal(v);
            format!("qdisc={}", if text.is_empty() { "own" } else { &text })
        }));
        words.extend(self.qdisc_in.map(|v| format!("qdisc_in={v}")));
        words.extend(self.module.as_deref().map(|v| {
            let file = v.rsplit('/').next().unwrap_or(v);
            format!("module={}", if file.is_empty() { "own" } else { file })
        }));
        words.extend(self.seed.map(|v| format!("seed={v}")));
        if words.is_empty() {
            "all".into()
        } else {
            words.join(" ")
        }
    }

    /// The arm that these make, defaults filled in.
    pub fn arm(&self, name: String) -> Arm {
        let mut knobs = BTreeMap::new();
        let on = |b: bool| if b { "on" } else { "off" }.to_string();
        knobs.insert(
            "kernel".into(),
            self.kernel.clone().unwrap_or_else(|| "debian".into()),
        );
        knobs.insert("mitigations".into(), on(self.mitigations.unwrap_or(false)));
        if let Some(cmdline) = &self.cmdline {
            knobs.insert("cmdline".into(), cmdline.clone());
        }
        if let Some(mtu) = self.mtu_bytes {
            knobs.insert("mtu_bytes".into(), mtu.0.to_string());
        }
        for (key, value) in &self.sysctl {
            knobs.insert(format!("sysctl.{key}"), value.clone());
        }
        for (offload, value) in &self.offload {
            knobs.insert(format!("offload.{offload}"), on(*value));
        }
        if let Some(nft) = &self.nft {
            nft.set_knobs(&mut knobs);
            let within = self.nft_in.unwrap_or(Within::Tx);
            knobs.insert("nft_in".into(), within.to_string());
        }
        let qdisc = self.qdisc.as_deref().map(qdisc::normal);
        if let Some(qdisc) = qdisc.filter(|text| !text.is_empty()) {
            knobs.insert("qdisc".into(), qdisc);
            if let Some(within) = self.qdisc_in {
                knobs.insert("qdisc_in".into(), within.to_string());
            }
        }
        if let Some(module) = self.module.as_ref().filter(|m| !m.is_empty()) {
            knobs.insert("module".into(), module.clone());
        }
        if let Some(seed) = self.seed {
            knobs.insert("seed".into(), seed.to_string());
        }
        Arm {
            name,
            proto: self.proto.unwrap_or(Proto::Udp),
            family: self.family.unwrap_or(Family::V4),
            link: self.link.unwrap_or(Link::Veth),
            forward: self.forward.unwrap_or(false),
            size_bytes: self.size_bytes.map_or(DEFAULT_SIZE_BYTES, |b| b.0),
            knobs,
        }
    }
}

/// Lists of levels; their product makes the arms.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Vary {
    /// See [`Knobs::proto`].
    pub proto: Vec<Proto>,
    /// See [`Knobs::family`].
    pub family: Vec<Family>,
    /// See [`Knobs::link`].
    pub link: Vec<Link>,
    /// See [`Knobs::forward`].
    #[serde(deserialize_with = "switches")]
    pub forward: Vec<bool>,
    /// See [`Knobs::size_bytes`].
    pub size_bytes: Vec<Bytes>,
    /// See [`Knobs::mtu_bytes`].
    pub mtu_bytes: Vec<Bytes>,
    /// See [`Knobs::kernel`].
    pub kernel: Vec<String>,
    /// See [`Knobs::mitigations`].
    #[serde(deserialize_with = "switches")]
    pub mitigations: Vec<bool>,
    /// See [`Knobs::cmdline`].
    pub cmdline: Vec<String>,
    /// See [`Knobs::sysctl`].
    pub sysctl: BTreeMap<String, Vec<String>>,
    /// See [`Knobs::offload`].
    #[serde(deserialize_with = "switches_table")]
    pub offload: BTreeMap<Offload, Vec<bool>>,
    /// See [`Knobs::nft`].
    #[serde(deserialize_with = "nft::list_from_toml")]
    pub nft: Vec<Nft>,
    /// See [`Knobs::nft_in`].
    pub nft_in: Vec<Within>,
    /// See [`Knobs::qdisc`].
    pub qdisc: Vec<String>,
    /// See [`Knobs::qdisc_in`].
    pub qdisc_in: Vec<Within>,
    /// See [`Knobs::module`].
    pub module: Vec<String>,
    /// See [`Knobs::seed`].
    pub seed: Vec<u32>,
}

impl Vary {
    /// Whether nothing varies.
    pub fn is_empty(&self) -> bool {
        *self == Vary::default()
    }

    /// What tells one combination from the others: the knobs with more than one
    /// level, or what is sent where there is nothing to tell.
    pub fn describe(&self, combination: &Knobs) -> String {
        let mut telling = combination.clone();
        fn only_if<T, U>(levels: &[T], knob: &mut Option<U>) {
            if levels.len() < 2 {
                *knob = None;
            }
        }
        only_if(&self.proto, &mut telling.proto);
        only_if(&self.family, &mut telling.family);
        only_if(&self.link, &mut telling.link);
        only_if(&self.forward, &mut telling.forward);
        only_if(&self.size_bytes, &mut telling.size_bytes);
        only_if(&self.mtu_bytes, &mut telling.mtu_bytes);
        only_if(&self.kernel, &mut telling.kernel);
        only_if(&self.mitigations, &mut telling.mitigations);
        only_if(&self.cmdline, &mut telling.cmdline);
        telling
            .sysctl
            .retain(|key, _| self.sysctl.get(key).is_some_and(|l| l.len() > 1));
        telling
            .offload
            .retain(|key, _| self.offload.get(key).is_some_and(|l| l.len() > 1));
        only_if(&self.nft, &mut telling.nft);
        only_if(&self.nft_in, &mut telling.nft_in);
        only_if(&self.qdisc, &mut telling.qdisc);
        only_if(&self.qdisc_in, &mut telling.qdisc_in);
        only_if(&self.module, &mut telling.module);
        only_if(&self.seed, &mut telling.seed);
        match (telling == Knobs::default(), combination.proto) {
            (true, Some(proto)) => proto.to_string(),
            _ => telling.describe(),
        }
    }

    /// Every combination, the first knob outermost; stops one past `limit`.
    pub fn combinations(&self, limit: usize) -> Vec<Knobs> {
        let mut all = vec![Knobs::default()];
        fn by<T: Clone>(
            all: &mut Vec<Knobs>,
            limit: usize,
            levels: &[T],
            set: impl Fn(&mut Knobs, T),
        ) {
            if levels.is_empty() || all.len() > limit {
                return;
            }
            *all = std::mem::take(all)
                .iter()
                .flat_map(|base| {
                    levels
                        .iter()
                        .map(move |level| (base.clone(), level.clone()))
                })
                .take(limit + 1)
                .map(|(mut knobs, level)| {
                    set(&mut knobs, level);
                    knobs
                })
                .collect();
        }
        by(&mut all, limit, &self.kernel, |k, v| k.kernel = Some(v));
        by(&mut all, limit, &self.module, |k, v| k.module = Some(v));
        by(&mut all, limit, &self.seed, |k, v| k.seed = Some(v));
        by(&mut all, limit, &self.mitigations, |k, v| {
            k.mitigations = Some(v)
        });
        by(&mut all, limit, &self.cmdline, |k, v| k.cmdline = Some(v));
        by(&mut all, limit, &self.link, |k, v| k.link = Some(v));
        by(&mut all, limit, &self.family, |k, v| k.family = Some(v));
        by(&mut all, limit, &self.proto, |k, v| k.proto = Some(v));
        by(&mut all, limit, &self.forward, |k, v| k.forward = Some(v));
        by(&mut all, limit, &self.size_bytes, |k, v| {
            k.size_bytes = Some(v)
        });
        by(&mut all, limit, &self.mtu_bytes, |k, v| {
            k.mtu_bytes = Some(v)
        });
        for (key, levels) in &self.sysctl {
            by(&mut all, limit, levels, |k, v| {
                k.sysctl.insert(key.clone(), v);
            });
        }
        for (offload, levels) in &self.offload {
            by(&mut all, limit, levels, |k, v| {
                k.offload.insert(*offload, v);
            });
        }
        by(&mut all, limit, &self.nft_in, |k, v| k.nft_in = Some(v));
        by(&mut all, limit, &self.nft, |k, v| k.nft = Some(v));
        by(&mut all, limit, &self.qdisc_in, |k, v| k.qdisc_in = Some(v));
        by(&mut all, limit, &self.qdisc, |k, v| k.qdisc = Some(v));
        all
    }
}
