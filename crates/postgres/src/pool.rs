//! Connection pools.

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};

use crate::address::Address;
use crate::error::{Error, Result};
use crate::tls;

/// A pool that opens connections when they are needed.
pub fn pool(address: &Address) -> Result<Pool> {
    let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_config(address.config.clone(), tls::connector(address)?, config);
    let builder = Pool::builder(manager).max_size(address.connections).runtime(Runtime::Tokio1);
    builder.build().map_err(|error| {
        Error::new("connecting to PostgreSQL", "cannot create the connection pool").caused_by(error)
    })
}
