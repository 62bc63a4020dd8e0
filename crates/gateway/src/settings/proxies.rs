//! `gateway.trusted_proxies`: peers whose `X-Forwarded-*` and `Forwarded` fields are believed.

use std::net::IpAddr;

use ipnet::IpNet;

use ichido_settings::Invalid;

/// Networks of proxies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedProxies(Vec<IpNet>);

impl TrustedProxies {
    pub(crate) fn check(list: &[String]) -> Result<Self, Invalid> {
        list.iter().map(|text| network(text)).collect::<Result<_, _>>().map(Self)
    }

    /// Whether the address belongs to a trusted proxy.
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&ip))
    }
}

/// A network, or one address.
fn network(text: &str) -> Result<IpNet, Invalid> {
    let parsed = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    parsed.map_err(|_| {
        Invalid::new(
            "gateway.trusted_proxies",
            format!("contains {text:?}; expected networks or addresses such as \"10.0.0.0/8\" or \"::1\""),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_replaces_the_default() {
        let check = |list: &[&str]| {
            TrustedProxies::check(&list.iter().map(|&text| text.to_owned()).collect::<Vec<_>>())
        };
        let trusts = |proxies: &TrustedProxies, ip: &str| proxies.contains(ip.parse().unwrap());
        let loopback = TrustedProxies::check(&super::super::Raw::default().trusted_proxies).unwrap();
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
