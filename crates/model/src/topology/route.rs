//! Routes, in the words of `ip route add`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::class::Family;

/// A route of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Route {
    /// The destination; none for all.
    pub to: Option<IpNet>,
    /// The gateway.
    pub via: Option<IpAddr>,
    /// The device.
    pub dev: Option<String>,
}

impl Route {
    /// Its address family; none if only the device is known.
    pub fn family(&self) -> Option<Family> {
        let address = self.to.map(|to| to.addr()).or(self.via)?;
        Some(if address.is_ipv4() { Family::V4 } else { Family::V6 })
    }
}

impl FromStr for Route {
    type Err = String;

    fn from_str(text: &str) -> Result<Route, String> {
        let wrong = |why: String| {
            let text: String = text.chars().take(80).collect();
            format!(
                "invalid route `{text}`: {why}; expected like `default via 198.18.1.1` or `198.18.2.0/24 dev wg0`"
            )
        };
        let mut words = text.split_whitespace();
        let to = match words.next() {
            Some("default") => None,
            Some(to) => {
                let net: Result<IpNet, _> = to.parse();
                let host = || to.parse().map(|address: IpAddr| IpNet::from(address));
                let net = net.or_else(|_| host());
                Some(net.map_err(|_| wrong("not a prefix".into()))?)
            }
            None => return Err(wrong("empty".into())),
        };
        let mut route = Route { to, via: None, dev: None };
        while let Some(word) = words.next() {
            match (word, words.next()) {
                ("via", Some(gateway)) if route.via.is_none() => {
                    let gateway = gateway.parse().map_err(|_| wrong("not a gateway".into()))?;
                    route.via = Some(gateway);
                }
                ("dev", Some(device)) if route.dev.is_none() => route.dev = Some(device.into()),
                ("via" | "dev", None) => return Err(wrong(format!("{word} needs a value"))),
                ("via" | "dev", Some(_)) => return Err(wrong(format!("{word} is given twice"))),
                _ => return Err(wrong(format!("unknown word `{word}`"))),
            }
        }
        match (&route.to, &route.via, &route.dev) {
            (_, None, None) => Err(wrong("no gateway or device".into())),
            (Some(to), Some(via), _) if to.addr().is_ipv4() != via.is_ipv4() => {
                Err(wrong("the gateway is of another family".into()))
            }
            _ => Ok(route),
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to {
            Some(to) => write!(f, "{to}")?,
            None => f.write_str("default")?,
        }
        if let Some(via) = self.via {
            write!(f, " via {via}")?;
        }
        match &self.dev {
            Some(dev) => write!(f, " dev {dev}"),
            None => Ok(()),
        }
    }
}

impl TryFrom<String> for Route {
    type Error = String;

    fn try_from(text: String) -> Result<Route, String> {
        text.parse()
    }
}

impl From<Route> for String {
    fn from(route: Route) -> String {
        route.to_string()
    }
}
