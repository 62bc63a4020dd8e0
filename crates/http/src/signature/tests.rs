use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::Signer;
use hmac::KeyInit;
use http::HeaderName;

use super::scheme::{
    GITHUB_SIGNATURE, SLACK_SIGNATURE, SLACK_TIMESTAMP, STRIPE_SIGNATURE, WEBHOOK_ID, WEBHOOK_SIGNATURE,
    WEBHOOK_TIMESTAMP,
};
use super::*;

/// The example in Slack's documentation.
const SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";
const TIME: u64 = 1_531_420_618;
const BODY: &str = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
const SIGNED: &str = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";

fn signature(scheme: Scheme, secrets: &[&str]) -> Signature {
    let secrets: Vec<_> = secrets.iter().map(|secret| Secret::new(*secret).unwrap()).collect();
    Signature::new(scheme, &secrets).unwrap().unwrap()
}

fn slack() -> Signature {
    signature(Scheme::Slack, &[SECRET])
}

fn header_map(pairs: &[(&HeaderName, &str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| ((*name).clone(), value.parse().unwrap())).collect()
}

fn verify(signature: &Signature, headers: &HeaderMap, body: &str, seconds: u64) -> Result<(), Kind> {
    let mut verification =
        signature.begin_verification(headers, Timestamp(seconds * 1000)).map_err(|problem| problem.kind)?;
    // A body may arrive in chunks.
    let (first, second) = body.split_at(body.len() / 2);
    verification.update(first.as_bytes());
    verification.update(second.as_bytes());
    verification.finish().map_err(|problem| problem.kind)
}

#[test]
fn the_example_of_slacks_documentation_is_accepted_within_five_minutes() {
    let headers = header_map(&[(&SLACK_TIMESTAMP, &TIME.to_string()), (&SLACK_SIGNATURE, SIGNED)]);
    for now in [TIME, TIME + 300, TIME - 300] {
        assert_eq!(verify(&slack(), &headers, BODY, now), Ok(()));
    }
    for now in [TIME + 301, TIME - 301, 0] {
        assert_eq!(verify(&slack(), &headers, BODY, now), Err(Kind::TimestampRefused));
    }
}

#[test]
fn a_different_body_timestamp_secret_or_signature_is_refused() {
    let time = TIME.to_string();
    let headers = header_map(&[(&SLACK_TIMESTAMP, &time), (&SLACK_SIGNATURE, SIGNED)]);
    assert_eq!(verify(&slack(), &headers, &BODY[1..], TIME), Err(Kind::SignatureRefused));
    let other = signature(Scheme::Slack, &["other"]);
    assert_eq!(verify(&other, &headers, BODY, TIME), Err(Kind::SignatureRefused));
    let later = header_map(&[(&SLACK_TIMESTAMP, "1531420619"), (&SLACK_SIGNATURE, SIGNED)]);
    assert_eq!(verify(&slack(), &later, BODY, TIME), Err(Kind::SignatureRefused));
    for wrong in ["", "v0=", "v1=a2", SIGNED.trim_start_matches("v0="), &SIGNED[..SIGNED.len() - 2], "v0=zz"]
    {
        let headers = header_map(&[(&SLACK_TIMESTAMP, &time), (&SLACK_SIGNATURE, wrong)]);
        assert_eq!(verify(&slack(), &headers, BODY, TIME), Err(Kind::SignatureRefused), "{wrong}");
    }
    let mut twice = headers;
    twice.append(&SLACK_SIGNATURE, SIGNED.parse().unwrap());
    assert_eq!(verify(&slack(), &twice, BODY, TIME), Err(Kind::SignatureRefused));
    let unsigned = header_map(&[(&SLACK_TIMESTAMP, &time)]);
    assert_eq!(verify(&slack(), &unsigned, BODY, TIME), Err(Kind::SignatureRefused));
    for wrong in [None, Some(""), Some("+5"), Some("now"), Some("1531420618.0")] {
        let mut headers = header_map(&[(&SLACK_SIGNATURE, SIGNED)]);
        wrong.into_iter().for_each(|time| {
            headers.insert(&SLACK_TIMESTAMP, time.parse().unwrap());
        });
        assert_eq!(verify(&slack(), &headers, BODY, TIME), Err(Kind::TimestampRefused), "{wrong:?}");
    }
}

#[test]
fn the_example_of_githubs_documentation_is_accepted() {
    let signature = signature(Scheme::GitHub, &["It's a Secret to Everybody"]);
    let signed = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let headers = header_map(&[(&GITHUB_SIGNATURE, signed)]);
    assert_eq!(verify(&signature, &headers, "Hello, World!", 0), Ok(()));
    assert_eq!(verify(&signature, &headers, "Hello, World?", 0), Err(Kind::SignatureRefused));
    assert_eq!(verify(&signature, &HeaderMap::new(), "Hello, World!", 0), Err(Kind::SignatureRefused));
}

#[test]
fn a_secret_is_not_printed() {
    assert_eq!(format!("{:?}", slack()), "Signature { scheme: Slack, keys: [Key(…)] }");
    assert!(Secret::new("").is_none());
}

const STRIPE_BODY: &str = r#"{"id":"evt_1","object":"event"}"#;

/// Signs as Stripe's libraries do.
fn stripe_v1(secret: &str, time: u64, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(format!("{time}.{body}").as_bytes());
    format!("v1={}", hex::encode(mac.finalize().into_bytes()))
}

fn stripe(secrets: &[&str], line: &str, body: &str, now: u64) -> Result<(), Kind> {
    verify(&signature(Scheme::Stripe, secrets), &header_map(&[(&STRIPE_SIGNATURE, line)]), body, now)
}

#[test]
fn one_of_stripes_signatures_must_match_one_of_our_secrets() {
    let (old, new) = (stripe_v1("whsec_old", TIME, STRIPE_BODY), stripe_v1("whsec_new", TIME, STRIPE_BODY));
    let line = |signatures: &str| format!("t={TIME},{signatures}");
    for (secrets, line) in [
        (&["whsec_old"][..], line(&old)),
        (&["whsec_new", "whsec_old"], line(&old)),
        (&["whsec_new"], line(&format!("{old},{new}"))),
        (&["whsec_new"], line(&format!("v0=00,{new}"))),
        (&["whsec_new"], format!("{new}, t={TIME}")),
    ] {
        assert_eq!(stripe(secrets, &line, STRIPE_BODY, TIME + 300), Ok(()), "{line}");
        assert_eq!(stripe(secrets, &line, STRIPE_BODY, TIME + 301), Err(Kind::TimestampRefused));
        assert_eq!(stripe(secrets, &line, "{}", TIME), Err(Kind::SignatureRefused), "{line}");
        assert_eq!(stripe(&["other"], &line, STRIPE_BODY, TIME), Err(Kind::SignatureRefused));
    }
    let later = format!("t={},{old}", TIME + 1);
    assert_eq!(stripe(&["whsec_old"], &later, STRIPE_BODY, TIME), Err(Kind::SignatureRefused));
}

#[test]
fn a_stripe_signature_without_timestamp_or_v1_is_refused() {
    let good = stripe_v1("s", TIME, STRIPE_BODY);
    for line in [
        String::new(),
        good.clone(),
        format!("t={TIME}"),
        format!("t={TIME},t={TIME},{good}"),
        format!("t=+{TIME},{good}"),
        format!("t={TIME},v1=zz"),
        format!("t={TIME},{}", good.replace("v1=", "v0=")),
    ] {
        assert_eq!(stripe(&["s"], &line, STRIPE_BODY, TIME), Err(Kind::SignatureRefused), "{line}");
    }
    let unsigned = verify(&signature(Scheme::Stripe, &["s"]), &HeaderMap::new(), STRIPE_BODY, TIME);
    assert_eq!(unsigned, Err(Kind::SignatureRefused));
}

/// The example in the documentation of Standard Webhooks' libraries.
const WEBHOOK_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const WEBHOOK_BODY: &str = r#"{"test": 2432232314}"#;
const WEBHOOK_TIME: u64 = 1_614_265_330;
const WEBHOOK_SIGNED: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

fn webhook(secrets: &[&str], signatures: &str, body: &str, now: u64) -> Result<(), Kind> {
    let headers = header_map(&[
        (&WEBHOOK_ID, "msg_p5jXN8AQM9LWM0D4loKWxJek"),
        (&WEBHOOK_TIMESTAMP, &WEBHOOK_TIME.to_string()),
        (&WEBHOOK_SIGNATURE, signatures),
    ]);
    verify(&signature(Scheme::StandardWebhooks, secrets), &headers, body, now)
}

#[test]
fn the_example_of_standard_webhooks_is_accepted() {
    let without_prefix = WEBHOOK_SECRET.trim_start_matches("whsec_");
    let rotated = ["whsec_bmV3ZXIgc2VjcmV0", WEBHOOK_SECRET];
    for secrets in [&[WEBHOOK_SECRET][..], &[without_prefix], &rotated] {
        for line in [WEBHOOK_SIGNED, &format!("v1,AAAA v2,AAAA {WEBHOOK_SIGNED}")] {
            assert_eq!(webhook(secrets, line, WEBHOOK_BODY, WEBHOOK_TIME + 300), Ok(()), "{line}");
            assert_eq!(webhook(secrets, line, "{}", WEBHOOK_TIME), Err(Kind::SignatureRefused));
            let late = webhook(secrets, line, WEBHOOK_BODY, WEBHOOK_TIME + 301);
            assert_eq!(late, Err(Kind::TimestampRefused));
        }
    }
    for wrong in ["", "v1", "v1,", "v1,!", "v1a,g0hM", &WEBHOOK_SIGNED.replace("v1,", "v1a,")] {
        let refused = webhook(&[WEBHOOK_SECRET], wrong, WEBHOOK_BODY, WEBHOOK_TIME);
        assert_eq!(refused, Err(Kind::SignatureRefused), "{wrong}");
    }
    let without_id =
        header_map(&[(&WEBHOOK_TIMESTAMP, &WEBHOOK_TIME.to_string()), (&WEBHOOK_SIGNATURE, WEBHOOK_SIGNED)]);
    let signature = signature(Scheme::StandardWebhooks, &[WEBHOOK_SECRET]);
    assert_eq!(verify(&signature, &without_id, WEBHOOK_BODY, WEBHOOK_TIME), Err(Kind::SignatureRefused));
}

#[test]
fn an_ed25519_signature_is_verified_with_the_public_key() {
    let private = ed25519_dalek::SigningKey::from_bytes(&[7; 32]);
    let public = format!("whpk_{}", STANDARD.encode(private.verifying_key().as_bytes()));
    let signed = format!("msg_p5jXN8AQM9LWM0D4loKWxJek.{WEBHOOK_TIME}.{WEBHOOK_BODY}");
    let line = format!("v1a,{}", STANDARD.encode(private.sign(signed.as_bytes()).to_bytes()));
    assert_eq!(webhook(&[&public], &line, WEBHOOK_BODY, WEBHOOK_TIME), Ok(()));
    assert_eq!(webhook(&[WEBHOOK_SECRET, &public], &line, WEBHOOK_BODY, WEBHOOK_TIME), Ok(()));
    assert_eq!(webhook(&[&public], &line, "{}", WEBHOOK_TIME), Err(Kind::SignatureRefused));
    assert_eq!(webhook(&[WEBHOOK_SECRET], &line, WEBHOOK_BODY, WEBHOOK_TIME), Err(Kind::SignatureRefused));
    assert_eq!(webhook(&[&public], WEBHOOK_SIGNED, WEBHOOK_BODY, WEBHOOK_TIME), Err(Kind::SignatureRefused));
}

#[test]
fn a_rule_describes_any_header_encoding_and_signed_text() {
    let rule = SignatureRule {
        header: "x-sig".parse().unwrap(),
        prefix: "v0=".to_owned(),
        algorithm: Algorithm::HmacSha256,
        encoding: Encoding::Base64,
        timestamp: Some("x-time".parse().unwrap()),
        signed: "v0:{X-Time}:{X-Account}:{body}".parse().unwrap(),
    };
    let sign = |signed: &str| {
        let mut mac = Hmac::<Sha256>::new_from_slice(b"s").unwrap();
        mac.update(signed.as_bytes());
        format!("v0={}", STANDARD.encode(mac.finalize().into_bytes()))
    };
    let signature = signature(Scheme::Other(rule), &["s"]);
    let names = ["x-sig", "x-time", "x-account"].map(|name| name.parse::<HeaderName>().unwrap());
    let check = |signed: &str, time: &str, account: Option<&str>| {
        let mut headers = header_map(&[(&names[0], &sign(signed)), (&names[1], time)]);
        account.map(|account| headers.insert(&names[2], account.parse().unwrap()));
        verify(&signature, &headers, "{}", 1000)
    };
    assert_eq!(check("v0:1000:a:{}", "1000", Some("a")), Ok(()));
    assert_eq!(check("v0:1000:a:{}", "1000", Some("b")), Err(Kind::SignatureRefused));
    assert_eq!(check("v0:1000:a:{}", "1000", None), Err(Kind::SignatureRefused));
    assert_eq!(check("v0:99:a:{}", "99", Some("a")), Err(Kind::TimestampRefused));
    assert_eq!(check("1000:a:{}", "1000", Some("a")), Err(Kind::SignatureRefused));
}
