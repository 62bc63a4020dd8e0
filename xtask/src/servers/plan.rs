//! Decides which servers to start, and what must be installed for them.

use std::env;
use std::path::PathBuf;

use anyhow::Result;

use super::{Environment, dynamodb, postgres};
use crate::certificates::Certificates;
use crate::fetch::Package;
use crate::install::{Missing, find_on_path};
use crate::phase::Phase;
use crate::{browser, node, packages, python};

const CA_FILE: &str = "ICHIDO_TEST_CA_FILE";
const CREDENTIALS: [(&str, &str); 3] =
    [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test"), ("AWS_REGION", "us-east-1")];

/// The role of a server in the tests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Role {
    Postgres,
    Redis,
    RedisCluster,
    RedisTls,
    /// dynoxide: fast, and returns the old item when a condition fails.
    DynamoDb,
    /// Amazon's DynamoDB Local: slow, and does not return the old item.
    DynamoDbLocal,
}

impl Role {
    /// In start order: those that take longest come first.
    const ALL: [Self; 6] = [
        Self::DynamoDbLocal,
        Self::Postgres,
        Self::Redis,
        Self::RedisCluster,
        Self::RedisTls,
        Self::DynamoDb,
    ];

    /// The environment variable with its URL.
    pub(super) fn variable(self) -> &'static str {
        match self {
            Self::Postgres => "ICHIDO_TEST_POSTGRES_URL",
            Self::Redis => "ICHIDO_TEST_REDIS_URL",
            Self::RedisCluster => "ICHIDO_TEST_REDIS_CLUSTER_URL",
            Self::RedisTls => "ICHIDO_TEST_REDIS_TLS_URL",
            Self::DynamoDb => "ICHIDO_TEST_DYNAMODB_URL",
            Self::DynamoDbLocal => "ICHIDO_TEST_DYNAMODB_LOCAL_URL",
        }
    }

    pub(super) fn needs(self, missing: &mut Missing) {
        match self {
            Self::Postgres => {
                if postgres::program_directory().is_none() {
                    missing.package("postgresql");
                }
                missing.program("openssl", "openssl");
            }
            Self::Redis | Self::RedisCluster => needs_redis(missing),
            Self::RedisTls => {
                needs_redis(missing);
                missing.program("openssl", "openssl");
            }
            Self::DynamoDb => needs_package(&dynamodb::DYNOXIDE, missing),
            Self::DynamoDbLocal => {
                missing.program("java", "default-jre-headless");
                needs_package(&dynamodb::LOCAL, missing);
            }
        }
    }
}

fn needs_redis(missing: &mut Missing) {
    missing.program("redis-server", "redis-server");
    missing.program("redis-cli", "redis-tools");
}

fn needs_package(package: &Package, missing: &mut Missing) {
    if !package.is_cached() {
        missing.program("npm", "nodejs");
        missing.program("npm", "npm");
    }
}

/// The servers to start: those whose variable is not set.
pub(crate) struct Plan(Vec<Role>);

impl Plan {
    pub(crate) fn from_environment() -> Self {
        Self(Role::ALL.into_iter().filter(|role| !is_set(role.variable())).collect())
    }

    /// The Debian packages that the servers and the tests need and that are not installed.
    pub(crate) fn missing(&self) -> Missing {
        let mut missing = Missing::default();
        for role in &self.0 {
            role.needs(&mut missing);
        }
        python::needs(&mut missing);
        node::needs(&mut missing);
        browser::needs(&mut missing);
        missing.program("curl", "curl");
        missing.program("nginx", "nginx");
        missing.program("npm", "npm");
        missing.program("openssl", "openssl");
        missing.program("promtool", "prometheus");
        missing.program("pgbouncer", "pgbouncer");
        missing.program("systemd-analyze", "systemd");
        missing.program("lintian", "lintian");
        missing.program("objdump", "binutils");
        missing
    }

    /// Downloads the servers that Debian does not package, and the Python and Node packages that tests use.
    pub(crate) fn fetch(&self) -> Result<()> {
        for (role, package) in
            [(Role::DynamoDb, &dynamodb::DYNOXIDE), (Role::DynamoDbLocal, &dynamodb::LOCAL)]
        {
            if self.0.contains(&role) && !package.is_cached() {
                let phase = Phase::begin(format!("fetched {}", package.spec));
                package.fetch()?;
                phase.end();
            }
        }
        python::fetch()?;
        node::fetch()?;
        packages::fetch()
    }

    pub(super) fn roles(&self) -> impl Iterator<Item = Role> {
        self.0.iter().copied()
    }

    pub(super) fn needs_tls(&self) -> bool {
        self.0.contains(&Role::Postgres) || self.0.contains(&Role::RedisTls)
    }

    /// The variables in addition to the URLs: the certificate authority, programs that tests run, and credentials,
    /// which local servers require but do not check.
    pub(super) fn other_variables(&self, certificates: Option<&Certificates>) -> Environment {
        let mut environment = Environment::new();
        let mut set = |variable, path: Option<PathBuf>| {
            environment.extend(path.map(|path| (variable, path.into_os_string())));
        };
        if self.0.contains(&Role::RedisTls) || !is_set(CA_FILE) {
            set(CA_FILE, certificates.map(|certificates| certificates.authority.clone()));
        }
        set("ICHIDO_TEST_XTASK", env::current_exe().ok());
        set("ICHIDO_TEST_REDIS_SERVER", find_on_path("redis-server"));
        set("ICHIDO_TEST_PYTHON", Some(python::interpreter()));
        set("ICHIDO_TEST_SCHEMATHESIS", Some(python::schemathesis()));
        set("ICHIDO_TEST_UVICORN", Some(python::uvicorn()));
        set("ICHIDO_TEST_CFN_LINT", Some(python::cfn_lint()));
        set("ICHIDO_TEST_PYTHON_PACKAGE", Some(python::package_interpreter()));
        set("ICHIDO_TEST_VALIDATORS", Some(python::validators()));
        set("ICHIDO_TEST_NODE", Some(node::program()));
        set("ICHIDO_TEST_NPM_LIBRARY", Some(packages::npm_library_home()));
        set("ICHIDO_TEST_NODE_MODULES", Some(node::modules()));
        set("ICHIDO_TEST_CHROMEDRIVER", find_on_path(browser::DRIVER));
        set("ICHIDO_TEST_PG_BINDIR", postgres::program_directory());
        set("ICHIDO_TEST_PGBOUNCER", find_on_path("pgbouncer"));
        // A DynamoDB of the user may need the credentials in the environment.
        let starts_all = self.0.contains(&Role::DynamoDb) && self.0.contains(&Role::DynamoDbLocal);
        for (variable, dummy) in CREDENTIALS {
            if starts_all || !is_set(variable) {
                environment.push((variable, dummy.into()));
            }
        }
        environment
    }
}

fn is_set(variable: &str) -> bool {
    env::var_os(variable).is_some_and(|value| !value.is_empty())
}
