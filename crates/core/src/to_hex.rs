//! Bytes as text.

/// The bytes in lower-case hex. Much faster than `hex::encode`, which collects the digits one character at a time.
pub fn to_hex(bytes: &[u8]) -> String {
    let mut digits = vec![0; 2 * bytes.len()];
    match hex::encode_to_slice(bytes, &mut digits) {
        // Hex digits are ASCII, and the buffer has room for two of them per byte.
        Ok(()) => String::from_utf8(digits).unwrap_or_default(),
        Err(_) => hex::encode(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_hex_crate() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(to_hex(&bytes), hex::encode(&bytes));
        assert_eq!(to_hex(&[]), "");
    }
}
