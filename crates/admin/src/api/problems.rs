//! Responses that several operations of the API share.

use std::collections::BTreeMap;

use utoipa::IntoResponses;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{ContentBuilder, HeaderBuilder, Ref, RefOr, Response, ResponseBuilder};

const INVALID: &str = "Invalid";
const TOKEN_REFUSED: &str = "TokenRefused";
const FOREIGN_ORIGIN: &str = "ForeignOrigin";
const MISDIRECTED: &str = "Misdirected";
const BODY_LATE: &str = "BodyLate";
const BODY_TOO_LARGE: &str = "BodyTooLarge";
const NOT_JSON: &str = "NotJson";
const LEDGER_FAILED: &str = "LedgerFailed";
const LEDGER_UNAVAILABLE: &str = "LedgerUnavailable";
const UNPROCESSABLE: &str = "Unprocessable";
const NO_SUCH_CLAIM: &str = "NoSuchClaim";
const NO_SUCH_EVENT: &str = "NoSuchEvent";
const LEFT_AS_IT_IS: &str = "LeftAsItIs";
const UNSUPPORTED: &str = "Unsupported";
const HISTORY_UNAVAILABLE: &str = "HistoryUnavailable";

const PROBLEMS: [(&str, &str); 15] = [
    (
        INVALID,
        "The request is invalid, or a value is outside its limits. Nothing was done, and no event was marked. The problem \
         names the field.",
    ),
    (TOKEN_REFUSED, "A valid token is required."),
    (
        FOREIGN_ORIGIN,
        "Pages of other origins may not call this port, and a read-only token may not use the API.",
    ),
    (
        MISDIRECTED,
        "On loopback, the Host header must be an IP address or localhost; or the caller expected another process.",
    ),
    (BODY_LATE, "The body took too long to arrive."),
    (BODY_TOO_LARGE, "The body is larger than 32 MiB, or 1 MiB for an operator's request."),
    (NOT_JSON, "The body must be application/json."),
    (
        LEDGER_FAILED,
        "The ledger failed, or an operator's action was carried out and its result not recorded.",
    ),
    (
        LEDGER_UNAVAILABLE,
        "The ledger is not available, or the audit log of operators cannot be written. Nothing was done.",
    ),
    (UNPROCESSABLE, "The values do not fit together, or one is outside its limits."),
    (NO_SUCH_CLAIM, "There is no such claim."),
    (NO_SUCH_EVENT, "There is no such event."),
    (LEFT_AS_IT_IS, "Several claims have this key, or the state of the claim does not allow this."),
    (HISTORY_UNAVAILABLE, "Nothing is recorded (history.dir is off), or a history file cannot be read."),
    (UNSUPPORTED, "Only file: ledgers support this. Use the tools of the database server."),
];

/// The component for each problem, by name.
pub(super) fn components() -> impl Iterator<Item = (&'static str, Response)> {
    PROBLEMS.into_iter().map(|(name, description)| {
        let schema = Ref::from_schema_name("Problem");
        let content = ContentBuilder::new().schema(Some(schema)).build();
        let response =
            ResponseBuilder::new().description(description).content("application/problem+json", content);
        let response = match name {
            LEDGER_UNAVAILABLE => response.header("Retry-After", retry_after()),
            _ => response,
        };
        (name, response.build())
    })
}

fn retry_after() -> utoipa::openapi::Header {
    let seconds = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1));
    HeaderBuilder::new().schema(Some(seconds)).description(Some("Seconds.")).build()
}

macro_rules! responses {
    ($($(#[$doc:meta])* $name:ident { $($status:literal => $response:expr,)+ })+) => {
        $(
            $(#[$doc])*
            pub(super) struct $name;

            impl IntoResponses for $name {
                fn responses() -> BTreeMap<String, RefOr<Response>> {
                    BTreeMap::from([$(($status.to_owned(), Ref::from_response_name($response).into()),)+])
                }
            }
        )+
    };
}

responses! {
    /// Problems of every path that needs no token.
    OriginProblems {
        "403" => FOREIGN_ORIGIN,
        "421" => MISDIRECTED,
    }
    /// Problems of every path that needs a token.
    AccessProblems {
        "401" => TOKEN_REFUSED,
        "403" => FOREIGN_ORIGIN,
        "421" => MISDIRECTED,
    }
    /// Problems of every path that uses the ledger.
    LedgerProblems {
        "400" => INVALID,
        "500" => LEDGER_FAILED,
        "503" => LEDGER_UNAVAILABLE,
    }
    /// Problems of every path that reads the history.
    HistoryProblems {
        "400" => INVALID,
        "503" => HISTORY_UNAVAILABLE,
    }
    /// Problems of every path that has parameters.
    ParameterProblems {
        "400" => INVALID,
    }
    /// Problems of every path that reads a body.
    BodyProblems {
        "408" => BODY_LATE,
        "413" => BODY_TOO_LARGE,
        "415" => NOT_JSON,
    }
    /// Problems of every path that is about the files of the ledger.
    FileProblems {
        "501" => UNSUPPORTED,
    }
    /// Problems of a path that names a directory.
    DirectoryProblems {
        "422" => UNPROCESSABLE,
    }
    /// Problems of every path that is about one event, for operators.
    EventProblems {
        "404" => NO_SUCH_EVENT,
        "422" => UNPROCESSABLE,
    }
    /// Problems of every path that is about one claim, for operators.
    ClaimProblems {
        "404" => NO_SUCH_CLAIM,
        "409" => LEFT_AS_IT_IS,
        "422" => UNPROCESSABLE,
    }
}
