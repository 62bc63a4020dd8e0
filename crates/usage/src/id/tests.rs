use proptest::prelude::*;
use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Vectors {
    source_event_ids: Vec<EventVector>,
}

#[derive(Deserialize)]
struct EventVector {
    name: String,
    input: Input,
    sorted: String,
    fixed_order: String,
    #[serde(default)]
    refused: bool,
}

#[derive(Deserialize)]
struct Input {
    usage_date: String,
    provider: String,
    model: String,
    app_id: Option<String>,
    user_id: Option<String>,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../../tests/vectors/event-ids.json")).unwrap()
}

fn parts<'a>(provider: &'a str, model: &'a str, app_id: &'a str, user_id: &'a str) -> Parts<'a> {
    Parts {
        usage_date: jiff::civil::date(2025, 12, 1),
        provider,
        model,
        app_id,
        user_id,
        tenant: "t",
        user_kind: UserKind::EndUser,
        currency: "USD",
        period: Period::Daily,
    }
}

#[test]
fn ids_match_the_vectors() {
    let vectors = vectors().source_event_ids;
    assert_eq!(vectors.len(), 10);
    assert_eq!(vectors.iter().filter(|vector| vector.refused).count(), 2);
    for EventVector { name, input, sorted, fixed_order, refused } in vectors {
        let parts = Parts {
            usage_date: input.usage_date.parse().unwrap(),
            provider: &input.provider,
            model: &input.model,
            app_id: input.app_id.as_deref().unwrap_or_default(),
            user_id: input.user_id.as_deref().unwrap_or_default(),
            ..parts("", "", "", "")
        };
        for (scheme, expected) in [(Scheme::Sorted, &sorted), (Scheme::FixedOrder, &fixed_order)] {
            match event_id(scheme, &parts) {
                Ok(id) => assert!(!refused && id == *expected, "{name}: {id}"),
                Err(error) => {
                    assert!(refused && matches!(error, Error::Ambiguous { .. }), "{name}: {error}");
                }
            }
            assert!(scheme.matches(expected), "{name}");
        }
    }
}

/// Joined with `|`, the pairs (`a|b`, `c`) and (`a`, `b|c`) are the same text.
#[test]
fn bar_in_a_value_is_refused_unless_the_scheme_is_v2() {
    let (one, other) = (parts("openai", "gpt-4.1", "a|b", "c"), parts("openai", "gpt-4.1", "a", "b|c"));
    for scheme in [Scheme::Sorted, Scheme::FixedOrder] {
        let refusal = event_id(scheme, &one).unwrap_err().to_string();
        assert!(refusal.starts_with("app_id: ") && refusal.contains("ambiguous"), "{refusal}");
        assert!(event_id(scheme, &other).unwrap_err().to_string().starts_with("user_id: "));
    }
    assert_ne!(event_id(Scheme::V2, &one), event_id(Scheme::V2, &other));
}

/// Each of these parts changes the id under v2, but not under the older schemes.
#[test]
fn v2_distinguishes_every_part() {
    let first = parts("openai", "gpt-4.1", "a", "u");
    let others = [
        Parts { tenant: "t2", ..first },
        Parts { user_kind: UserKind::Account, ..first },
        Parts { currency: "JPY", ..first },
        Parts { period: Period::Weekly, ..first },
        Parts { app_id: "u", user_id: "a", ..first },
    ];
    let mut ids: Vec<String> =
        others.iter().chain([&first]).map(|parts| event_id(Scheme::V2, parts).unwrap()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 6);
    for other in &others {
        assert_eq!(event_id(Scheme::Sorted, &first), event_id(Scheme::Sorted, other));
    }
}

/// Receivers remember these ids, so they must never change.
#[test]
fn id_of_v2_never_changes() {
    let mut text = b"ichido-usage-2".to_vec();
    let values = ["t", "2025-12-01", "openai", "gpt-4.1", "a", "end_user", "u", "USD", "daily_sum"];
    for value in values {
        text.extend([0, 0, 0, u8::try_from(value.len()).unwrap()]);
        text.extend(value.as_bytes());
    }
    let hash: String = Sha256::digest(&text).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let id = event_id(Scheme::V2, &parts("openai", "gpt-4.1", "a", "u")).unwrap();
    assert_eq!(id, format!("dify-2025-12-01-openai-gpt-4.1-{hash}"));
}

#[test]
fn values_that_the_pattern_forbids_are_refused() {
    for scheme in Scheme::ALL {
        let id = |parts: &Parts<'_>| event_id(*scheme, parts);
        assert_eq!(id(&parts("", "m", "a", "u")), Err(Error::Empty("provider")));
        assert_eq!(id(&parts("p", "", "a", "u")), Err(Error::Empty("model")));
        assert_eq!(id(&parts("p", "m\n", "a", "u")), Err(Error::Unprintable("model")));
        assert_eq!(id(&parts("p\u{2028}", "m", "a", "u")), Err(Error::Unprintable("provider")));
        assert_eq!(id(&parts("p", "m", "\0", "u")), Err(Error::Unprintable("app_id")));
        let year = Parts { usage_date: Date::MIN, ..parts("p", "m", "a", "u") };
        assert_eq!(id(&year), Err(Error::Year));
    }
}

#[test]
fn id_has_a_limit() {
    let free = ID_MAX_BYTES - "dify-2025-12-01-p--".len() - 12;
    let fits = "m".repeat(free);
    assert_eq!(event_id(Scheme::Sorted, &parts("p", &fits, "a", "u")).unwrap().len(), ID_MAX_BYTES);
    let long = "m".repeat(free + 1);
    assert_eq!(event_id(Scheme::Sorted, &parts("p", &long, "a", "u")), Err(Error::TooLong(ID_MAX_BYTES + 1)));
}

#[test]
fn patterns_distinguish_schemes() {
    let hash = "0123456789abcdef0123456789abcdef";
    let id = |digits: usize| format!("dify-2025-12-01-openai-gpt-4-{}", &hash[..digits]);
    assert!(Scheme::Sorted.matches(&id(12)) && !Scheme::V2.matches(&id(12)));
    assert!(Scheme::V2.matches(&id(32)) && !Scheme::Sorted.matches(&id(32)));
    for text in [
        "",
        "dify-2025-12-01-0123456789ab",
        "dify-2025-12-01--0123456789ab",
        "dify-20251201-openai-gpt-0123456789ab",
        "dify-2025-12-01-openai-gpt-0123456789aB",
        "dify-2025-12-01-openai-g\npt-0123456789ab",
        "DIFY-2025-12-01-openai-gpt-0123456789ab",
    ] {
        assert!(!Scheme::Sorted.matches(text), "{text:?}");
    }
}

proptest! {
    #[test]
    fn ids_are_deterministic_and_match_their_pattern(
        provider in ".{1,20}", model in ".{1,40}", app in ".{0,40}", user in ".{0,40}", scheme in 0_usize..3,
    ) {
        let scheme = Scheme::ALL[scheme];
        let parts = parts(&provider, &model, &app, &user);
        let mut writer = Writer::new(scheme);
        let first = writer.write(&parts).map(str::to_owned);
        prop_assert_eq!(&first, &writer.write(&parts).map(str::to_owned));
        prop_assert_eq!(&first, &event_id(scheme, &parts));
        if let Ok(id) = first {
            prop_assert!(scheme.matches(&id) && id.len() <= ID_MAX_BYTES, "{}", id);
        }
    }

    /// Moving text from one value to the next always changes what v2 hashes.
    #[test]
    fn v2_never_hashes_different_values_to_the_same_text(one in "[ab|]{0,6}", other in "[ab|]{0,6}", cut in 0_usize..7) {
        let text = format!("{one}{other}");
        let cut = cut.min(text.len());
        let moved = parts("p", "m", &text[..cut], &text[cut..]);
        let first = parts("p", "m", &one, &other);
        let same = moved.app_id == first.app_id;
        prop_assert_eq!(event_id(Scheme::V2, &moved) == event_id(Scheme::V2, &first), same);
    }
}
