//! Fuzzes the `Idempotency-Key` parser: no input may panic, yield an invalid key, or be ambiguous.
#![no_main]

use ichido_http::key::{MAX_CHARS, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|value: &[u8]| {
    let (strict, lenient) = (parse(value, true), parse(value, false));
    for key in strict.iter().chain(&lenient) {
        assert!((1..=MAX_CHARS).contains(&key.len()));
        assert!(key.bytes().all(|byte| (0x20..0x7f).contains(&byte)));
        // Quoted, which both modes accept, it is the same key.
        let quoted = format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""));
        assert_eq!(parse(quoted.as_bytes(), true).as_ref(), Ok(key));
        assert_eq!(parse(quoted.as_bytes(), false).as_ref(), Ok(key));
    }
    // A key that strict rules accept is the same key for lenient rules.
    if let Ok(key) = &strict {
        assert_eq!(lenient.as_ref(), Ok(key));
    }
});
