//! Connections to a server.

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};

use crate::address::Address;
use crate::error::{Error, Result};
use crate::tls;

/// Connections to a server, made when they are needed.
pub fn pool(address: &Address) -> Result<Pool> {
    let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_config(address.config.clone(), tls::connector(address)?, config);
    let builder = Pool::builder(manager).max_size(address.connections).runtime(Runtime::Tokio1);
    builder.build().map_err(|error| Error::new("setting up connections", "no pool").caused_by(error))
}
