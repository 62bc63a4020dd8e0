//! The servers that the tests use.
//!
//! They start concurrently, all from the main thread, as [`crate::process`] requires. Each child module covers one
//! kind of server: how to start it, its URL, and when it is ready.

mod dynamodb;
mod plan;
mod postgres;
mod redis;

use std::env;
use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Context, Result};

use crate::certificates::Certificates;
use crate::install::Missing;
use crate::phase::Phase;
use crate::process::Server;
use crate::scratch::Temporary;
use crate::workspace;

pub(crate) use self::plan::Plan;
use self::plan::Role;

/// Environment variables with the addresses of the servers, for the processes that use them.
pub(crate) type Environment = Vec<(&'static str, OsString)>;

/// A server that was started and may not be ready yet.
struct Starting {
    server: Server,
    url: String,
    ready: Box<dyn FnMut() -> bool>,
}

/// Running servers. Dropping this stops them and removes their files.
pub(crate) struct Servers {
    servers: Vec<Server>,
    environment: Environment,
    // Declared after the servers, because fields are dropped in this order.
    scratch: Temporary,
}

impl Servers {
    /// Starts every server of the plan and waits until all of them are ready.
    pub(crate) fn start(plan: &Plan) -> Result<Self> {
        let phase = Phase::begin("started servers");
        let mut servers = Self::empty(Temporary::directory(&env::temp_dir())?);
        let certificates = match plan.needs_tls() {
            true => Some(Certificates::create(servers.scratch.path())?),
            false => None,
        };
        let mut starting = Vec::new();
        for role in plan.roles() {
            starting.push((role, servers.launch(role, certificates.as_ref())?));
        }
        for (role, server) in starting {
            servers.join(role.variable(), server)?;
        }
        servers.environment.extend(plan.other_variables(certificates.as_ref()));
        phase.end();
        Ok(servers)
    }

    /// Adds the packages that PostgreSQL needs.
    pub(crate) fn needs_postgres(missing: &mut Missing) {
        Role::Postgres.needs(missing);
    }

    /// No servers yet, for benchmarks: their data will be on the disk that holds the target directory.
    pub(crate) fn on_disk() -> Result<Self> {
        Ok(Self::empty(Temporary::directory(&workspace::target().join("xtask-bench"))?))
    }

    /// Starts a Redis that syncs every write.
    pub(crate) fn add_durable_redis(&mut self, variable: &'static str) -> Result<()> {
        let [port] = free_ports()?;
        let redis = redis::start_durable(port, self.scratch.path())?;
        self.join(variable, redis)
    }

    /// Starts a Redis that writes nothing to disk.
    pub(crate) fn add_plain_redis(&mut self, variable: &'static str) -> Result<()> {
        let [port] = free_ports()?;
        let redis = redis::start_plain(port, self.scratch.path())?;
        self.join(variable, redis)
    }

    /// Starts a DynamoDB that writes nothing to disk. Fetches it unless it is cached.
    pub(crate) fn add_dynamodb(&mut self, variable: &'static str) -> Result<()> {
        if !dynamodb::DYNOXIDE.is_cached() {
            dynamodb::DYNOXIDE.fetch()?;
        }
        let dynamodb = self.launch(Role::DynamoDb, None)?;
        self.join(variable, dynamodb)
    }

    /// Starts a PostgreSQL that syncs every commit.
    pub(crate) fn add_postgres(&mut self, variable: &'static str) -> Result<()> {
        let certificates = Certificates::create(self.scratch.path())?;
        let postgres = self.launch(Role::Postgres, Some(&certificates))?;
        self.join(variable, postgres)
    }

    pub(crate) fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Stops the servers and removes their files. First reports those that have exited, with their logs, because that
    /// may be why a test failed.
    pub(crate) fn stop(mut self) {
        for exit_report in self.servers.iter_mut().filter_map(Server::exit_report) {
            eprintln!("xtask: {exit_report}");
        }
        let phase = Phase::begin("stopped servers");
        drop(self);
        phase.end();
    }

    fn empty(scratch: Temporary) -> Self {
        Self { servers: Vec::new(), environment: Vec::new(), scratch }
    }

    fn launch(&self, role: Role, certificates: Option<&Certificates>) -> Result<Starting> {
        let scratch = self.scratch.path();
        let [port, bus_port] = free_ports()?;
        let certificates = || certificates.context("no certificates were created");
        match role {
            Role::Postgres => postgres::start(port, certificates()?, scratch),
            Role::Redis => redis::start_plain(port, scratch),
            Role::RedisCluster => redis::start_cluster(port, bus_port, scratch),
            Role::RedisTls => redis::start_tls(port, certificates()?, scratch),
            Role::DynamoDb => dynamodb::start_dynoxide(port, scratch),
            Role::DynamoDbLocal => dynamodb::start_local(port, scratch),
        }
    }

    fn join(&mut self, variable: &'static str, mut starting: Starting) -> Result<()> {
        starting.server.wait_until(&mut starting.ready)?;
        self.servers.push(starting.server);
        self.environment.push((variable, starting.url.into()));
        Ok(())
    }
}

/// Finds free ports. All are bound until the last is found, so that they differ. Another process may still take one
/// before its server does; the server then fails to start with an error.
fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut listeners = Vec::new();
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no loopback port is free")?;
        *port = listener.local_addr()?.port();
        listeners.push(listener);
    }
    Ok(ports)
}
