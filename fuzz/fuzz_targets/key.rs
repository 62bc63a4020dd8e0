//! The `Idempotency-Key` field: no bytes make the parser panic, give an unfit key, or mean two things.
#![no_main]

use ichido_http::key::{MAX_CHARS, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|value: &[u8]| {
    let (strict, lenient) = (parse(value, true), parse(value, false));
    for key in strict.iter().chain(&lenient) {
        assert!((1..=MAX_CHARS).contains(&key.len()));
        assert!(key.bytes().all(|byte| (0x20..0x7f).contains(&byte)));
        // Written in the one form that both take, it is the same key.
        let quoted = format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""));
        assert_eq!(parse(quoted.as_bytes(), true).as_ref(), Ok(key));
        assert_eq!(parse(quoted.as_bytes(), false).as_ref(), Ok(key));
    }
    // What strict rules take, lenient ones take as the same key.
    if let Ok(key) = &strict {
        assert_eq!(lenient.as_ref(), Ok(key));
    }
});
