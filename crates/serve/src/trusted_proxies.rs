//! Proxies that a listener trusts: what they say about a client is believed.

use std::net::IpAddr;

use ichido_settings::Invalid;
use ipnet::IpNet;

/// Networks of proxies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedProxies(Vec<IpNet>);

impl TrustedProxies {
    /// Checks the list of networks and addresses in `setting`.
    pub fn check(setting: &str, list: &[String]) -> Result<Self, Invalid> {
        list.iter().map(|text| network(setting, text)).collect::<Result<_, _>>().map(Self)
    }

    /// Whether the address belongs to a trusted proxy.
    pub fn contains(&self, ip: IpAddr) -> bool {
        // On an IPv6 socket, an IPv4 client has a mapped address.
        let ip = ip.to_canonical();
        self.0.iter().any(|network| network.contains(&ip))
    }
}

/// A network, or one address.
fn network(setting: &str, text: &str) -> Result<IpNet, Invalid> {
    let parsed = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    parsed.map_err(|_| {
        let expected = "expected networks or addresses such as \"10.0.0.0/8\" or \"::1\"";
        Invalid::new(setting, format!("contains {text:?}; {expected}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_and_addresses_are_trusted_and_others_are_not() {
        let check = |list: &[&str]| {
            let list: Vec<_> = list.iter().map(|&text| text.to_owned()).collect();
            TrustedProxies::check("gateway.trusted_proxies", &list)
        };
        let trusts = |proxies: &TrustedProxies, ip: &str| proxies.contains(ip.parse().unwrap());
        let proxies = check(&["10.0.0.0/8", "fd00::/8", "192.0.2.1"]).unwrap();
        for ip in ["10.1.2.3", "::ffff:10.1.2.3", "fd00::7", "192.0.2.1"] {
            assert!(trusts(&proxies, ip), "{ip}");
        }
        for ip in ["127.0.0.1", "::1", "192.0.2.2", "::ffff:11.1.2.3"] {
            assert!(!trusts(&proxies, ip), "{ip}");
        }
        assert!(!trusts(&check(&[]).unwrap(), "127.0.0.1"));
        for bad in ["10.0.0.0/33", "proxy.example", ""] {
            assert!(check(&[bad]).unwrap_err().to_string().contains("gateway.trusted_proxies"), "{bad}");
        }
    }
}
