//! Who may use the admin port: tokens, sessions of the console, and protection against foreign pages.

mod gate;
mod sessions;
mod token;
mod visitor;

pub use self::gate::Gate;
pub(crate) use self::gate::{ASSETS_PATH, HOLDER_HEADER, is_health_check};
pub(crate) use self::sessions::Sessions;
pub use self::token::AdminToken;
pub(crate) use self::token::{Access, TOKEN_VARIABLE};
pub(crate) use self::visitor::{Peer, Visitor};
