//! Who may use the admin port: tokens, sessions of the console, users of a proxy, and protection against foreign pages.

mod gate;
mod sessions;
mod token;
mod trusted_user;
mod visitor;

pub use self::gate::Gate;
pub(crate) use self::gate::{ASSETS_PATH, HOLDER_HEADER, is_health_check};
pub(crate) use self::sessions::Sessions;
pub use self::token::{Access, Tokens};
pub(crate) use self::token::{TOKEN_VARIABLE, checked_token};
pub use self::trusted_user::TrustedUser;
pub(crate) use self::visitor::{Peer, Visitor};
