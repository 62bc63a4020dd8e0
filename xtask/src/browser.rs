//! A real browser for the tests of the console, and a font that has Japanese letters: both from Debian.

use std::path::Path;

use crate::install::Missing;

/// The program that drives Chromium.
pub(crate) const DRIVER: &str = "chromedriver";
/// Where the font's package puts it.
const FONT: &str = "/usr/share/fonts/truetype/vlgothic";

/// Asks for what Debian must give.
pub(crate) fn needs(missing: &mut Missing) {
    missing.program(DRIVER, "chromium-driver");
    // Any font with Japanese letters would do; this one is small.
    if !Path::new(FONT).exists() {
        missing.package("fonts-vlgothic");
    }
}
