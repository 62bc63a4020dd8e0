//! `gateway.trusted_proxies`: peers whose `X-Forwarded-*` and `Forwarded` fields are believed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use ichido_serve::Failure;

/// Networks of proxies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedProxies(Vec<IpNet>);

impl Default for TrustedProxies {
    /// Loopback.
    fn default() -> Self {
        let v4 = Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8);
        let v6 = Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128);
        Self(vec![v4.into(), v6.into()])
    }
}

impl TrustedProxies {
    pub(super) fn check(given: Option<Vec<String>>) -> Result<Self, Failure> {
        given.map_or_else(
            || Ok(Self::default()),
            |list| list.iter().map(|text| network(text)).collect::<Result<_, _>>().map(Self),
        )
    }

    pub fn contains(&self, ip: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&ip))
    }
}

/// A network, or one address.
fn network(text: &str) -> Result<IpNet, Failure> {
    let parsed = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    parsed.map_err(|_| {
        Failure::usage(format!(
            "gateway.trusted_proxies contains {text:?}; expected networks or addresses such as \"10.0.0.0/8\" or \"::1\""
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_replaces_the_default() {
        let check =
            |list: &[&str]| TrustedProxies::check(Some(list.iter().map(|&text| text.to_owned()).collect()));
        let trusts = |proxies: &TrustedProxies, ip: &str| proxies.contains(ip.parse().unwrap());
        let loopback = TrustedProxies::check(None).unwrap();
        assert!(
            trusts(&loopback, "127.8.9.10") && trusts(&loopback, "::1") && !trusts(&loopback, "10.1.2.3")
        );
        let own = check(&["10.0.0.0/8", "fd00::/8", "192.0.2.1"]).unwrap();
        assert!(["10.1.2.3", "fd00::7", "192.0.2.1"].iter().all(|ip| trusts(&own, ip)));
        assert!(["127.0.0.1", "::1", "192.0.2.2"].iter().all(|ip| !trusts(&own, ip)));
        assert!(!trusts(&check(&[]).unwrap(), "127.0.0.1"));
        for bad in ["10.0.0.0/33", "proxy.example", ""] {
            assert!(check(&[bad]).unwrap_err().to_string().contains("gateway.trusted_proxies"), "{bad}");
        }
    }
}
