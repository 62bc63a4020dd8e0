//! A real browser for the tests of the console, and a Japanese font, both from Debian packages.

use std::path::Path;

use crate::install::Missing;

/// The WebDriver server for Chromium.
pub(crate) const DRIVER: &str = "chromedriver";
/// The directory in which the Debian package installs the font.
const FONT: &str = "/usr/share/fonts/truetype/vlgothic";

/// Adds the Debian packages that are missing.
pub(crate) fn needs(missing: &mut Missing) {
    missing.program(DRIVER, "chromium-driver");
    // Any Japanese font would do; this one is small.
    if !Path::new(FONT).exists() {
        missing.package("fonts-vlgothic");
    }
}
