//! A temporary certificate authority and a certificate for `localhost`, created with openssl.
//!
//! The tests read the authority from its file, so they verify certificates as a deployment does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::run_quietly;

/// The extensions of both certificates. The system's openssl.cnf is not used because it may add others.
const CONFIG: &str = "\
[req]
distinguished_name = name
prompt = no
[name]
CN = ichido test
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = DNS:localhost, IP:127.0.0.1
";

const NEW_KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

/// The files that a TLS server and its clients need.
pub(crate) struct Certificates {
    pub(crate) authority: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Certificates {
    /// Creates the files in `directory`. The certificates are valid for a week.
    pub(crate) fn create(directory: &Path) -> Result<Self> {
        fs::write(directory.join("openssl.cnf"), CONFIG).context("cannot write openssl.cnf")?;
        let openssl = |command: &[&str], args: &[&str]| {
            run_quietly(Command::new("openssl").args(command).args(args).current_dir(directory))
        };
        let authority = ["-config", "openssl.cnf", "-extensions", "authority", "-days", "7"];
        openssl(
            &["req", "-x509", "-keyout", "ca.key", "-out", "ca.pem"],
            &[&authority[..], &NEW_KEY].concat(),
        )?;
        let request = ["-config", "openssl.cnf", "-subj", "/CN=localhost"];
        openssl(&["req", "-keyout", "server.key", "-out", "server.csr"], &[&request[..], &NEW_KEY].concat())?;
        openssl(
            &["x509", "-req", "-in", "server.csr", "-out", "server.pem", "-days", "7"],
            &[
                "-CA",
                "ca.pem",
                "-CAkey",
                "ca.key",
                "-set_serial",
                "1",
                "-extfile",
                "openssl.cnf",
                "-extensions",
                "server",
            ],
        )?;
        Ok(Self {
            authority: directory.join("ca.pem"),
            certificate: directory.join("server.pem"),
            key: directory.join("server.key"),
        })
    }
}
