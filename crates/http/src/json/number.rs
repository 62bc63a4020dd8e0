//! The canonical form of a number, with all its digits.

/// More zeros than this are written as an exponent.
const ZEROS_MAX: usize = 20;

/// The canonical form of a number: `digits × 10^exponent`, without zeros at either end of the digits.
pub(super) fn canonical(token: &str) -> Option<String> {
    let (sign, token) = token.strip_prefix('-').map_or(("", token), |token| ("-", token));
    let (mantissa, exponent) = token.split_once(['e', 'E']).unwrap_or((token, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return Some("0".to_owned());
    }
    let dropped = i64::try_from(digits.len() - significant.len()).ok()?;
    let exponent =
        exponent.parse::<i64>().ok()?.checked_add(dropped)?.checked_sub(fraction.len().try_into().ok()?)?;
    Some(match usize::try_from(exponent) {
        Ok(zeros) if zeros <= ZEROS_MAX => format!("{sign}{significant}{}", "0".repeat(zeros)),
        Ok(_) => format!("{sign}{significant}e{exponent}"),
        Err(_) => {
            let places = usize::try_from(exponent.unsigned_abs()).ok()?;
            if places < significant.len() {
                let (whole, fraction) = significant.split_at(significant.len() - places);
                format!("{sign}{whole}.{fraction}")
            } else if places - significant.len() <= ZEROS_MAX {
                format!("{sign}0.{}{significant}", "0".repeat(places - significant.len()))
            } else {
                format!("{sign}{significant}e{exponent}")
            }
        }
    })
}
