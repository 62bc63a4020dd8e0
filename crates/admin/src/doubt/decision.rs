//! What follows from the answers of a service: a pure function of the answers and of the times at which they came.

use std::time::Duration;

use ichido_http::{Answer, Asked, Automatic, Schedule};

use crate::operator::describe;

/// Questions before a claim is left to a person. If the effect may still happen then, the service is asked until it cannot.
const QUESTIONS: u32 = 8;
/// The longest pause between two questions, and the shortest.
const PAUSE_MAX: Duration = Duration::from_secs(3_600);
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// What to do after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Resolve the claim as the answer says.
    Settle,
    /// Ask again later.
    AskAgain,
    /// Ask no more.
    LeaveToAPerson,
}

/// How far the questions about one claim have come. Times are those of the steady clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// There will be another question.
    Open(Open),
    /// It was left to a person.
    Left { questions: u32, reason: String },
    /// It is resolved, or no longer in doubt.
    Settled,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Open {
    /// When this process learned of the doubt.
    since: Duration,
    next: Duration,
    questions: u32,
    /// How many of the last answers were `absent`, one after the other.
    absent: u32,
    reason: String,
}

impl Progress {
    /// A doubt that this process has just learned of.
    pub(super) fn new(now: Duration, schedule: &Schedule) -> Self {
        let open =
            Open { since: now, next: now + schedule.after, questions: 0, absent: 0, reason: String::new() };
        Self::Open(open)
    }

    /// When the next question is due.
    pub(super) fn due(&self) -> Option<Duration> {
        match self {
            Self::Open(open) => Some(open.next),
            Self::Left { .. } | Self::Settled => None,
        }
    }

    pub(super) fn is_settled(&self) -> bool {
        *self == Self::Settled
    }

    /// The number of questions, and what the last one showed.
    pub(super) fn summary(&self) -> (u32, &str) {
        match self {
            Self::Open(Open { questions, reason, .. }) | Self::Left { questions, reason } => {
                (*questions, reason)
            }
            Self::Settled => (0, ""),
        }
    }

    /// Notes an answer.
    pub(super) fn answered(&mut self, asked: &Asked, now: Duration, schedule: &Schedule) -> Next {
        let Self::Open(open) = self else { return Next::LeaveToAPerson };
        open.questions += 1;
        open.reason = describe(asked);
        open.absent = match &asked.answer {
            Answer::Absent => open.absent + 1,
            Answer::Done(_) | Answer::Undecided(_) => 0,
        };
        let is_past = now >= open.since + schedule.settle;
        let is_believed = match (&asked.answer, schedule.automatic) {
            (Answer::Done(_), Automatic::Done | Automatic::Both) => true,
            (Answer::Absent, Automatic::Both) => is_past && open.absent >= 2,
            (Answer::Absent, Automatic::Done) | (Answer::Undecided(_), _) | (_, Automatic::Off) => false,
        };
        if is_believed {
            // In case that it cannot be resolved now.
            open.pause(now, schedule);
            return Next::Settle;
        }
        self.wait(now, schedule)
    }

    /// The last answer is not believed after all. A person decides if that does not change.
    pub(super) fn distrusted(&mut self, why: &str, now: Duration, schedule: &Schedule) -> Next {
        let Self::Open(open) = self else { return Next::LeaveToAPerson };
        open.absent = 0;
        open.reason = format!("{}; {why}", open.reason);
        self.wait(now, schedule)
    }

    fn wait(&mut self, now: Duration, schedule: &Schedule) -> Next {
        let Self::Open(open) = self else { return Next::LeaveToAPerson };
        let may_happen = schedule.automatic == Automatic::Both && now < open.since + schedule.settle;
        if open.questions >= QUESTIONS && !may_happen {
            *self = Self::Left { questions: open.questions, reason: std::mem::take(&mut open.reason) };
            return Next::LeaveToAPerson;
        }
        open.pause(now, schedule);
        Next::AskAgain
    }
}

impl Open {
    fn pause(&mut self, now: Duration, schedule: &Schedule) {
        let doublings = self.questions.saturating_sub(1).min(16);
        let pause = schedule.after.max(PAUSE_MIN).saturating_mul(1 << doublings).min(PAUSE_MAX);
        self.next = now + pause;
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use ichido_core::Outcome;

    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn schedule(automatic: Automatic) -> Schedule {
        Schedule { automatic, after: seconds(60), settle: seconds(300) }
    }

    fn done() -> Asked {
        let outcome = Outcome::Tombstone(String::new());
        Asked { status: Some(StatusCode::OK), answer: Answer::Done(outcome) }
    }

    fn absent() -> Asked {
        Asked { status: Some(StatusCode::NOT_FOUND), answer: Answer::Absent }
    }

    fn error() -> Asked {
        Asked::undecided("500 is no answer")
    }

    /// Answers a doubt that began at 0, each when it is due, until one of them settles it or it is left to a person.
    fn ask_until_the_end(automatic: Automatic, answer: impl Fn(u32) -> Asked) -> (Next, u32, Duration) {
        let schedule = schedule(automatic);
        let mut progress = Progress::new(seconds(0), &schedule);
        for number in 1..1_000 {
            let now = progress.due().unwrap();
            match progress.answered(&answer(number), now, &schedule) {
                Next::AskAgain => {}
                next @ (Next::Settle | Next::LeaveToAPerson) => return (next, number, now),
            }
        }
        panic!("there is no end")
    }

    #[test]
    fn done_is_believed_at_once() {
        assert_eq!(ask_until_the_end(Automatic::Done, |_| done()), (Next::Settle, 1, seconds(60)));
    }

    #[test]
    fn effect_that_shows_late_is_found() {
        let late = |number| if number < 4 { absent() } else { done() };
        assert_eq!(ask_until_the_end(Automatic::Both, late), (Next::Settle, 4, seconds(480)));
    }

    #[test]
    fn absent_is_left_to_a_person_unless_the_operator_opted_in() {
        let (next, number, _) = ask_until_the_end(Automatic::Done, |_| absent());
        assert_eq!((next, number), (Next::LeaveToAPerson, QUESTIONS));
    }

    #[test]
    fn absent_is_not_believed_while_the_effect_may_still_happen() {
        let (next, _, at) = ask_until_the_end(Automatic::Both, |_| absent());
        assert_eq!((next, at), (Next::Settle, seconds(480)));
    }

    #[test]
    fn absent_is_not_believed_once() {
        let schedule = Schedule { after: seconds(600), ..schedule(Automatic::Both) };
        let mut progress = Progress::new(seconds(0), &schedule);
        assert_eq!(progress.answered(&absent(), seconds(600), &schedule), Next::AskAgain);
        assert_eq!(progress.answered(&error(), seconds(1_200), &schedule), Next::AskAgain);
        assert_eq!(progress.answered(&absent(), seconds(2_400), &schedule), Next::AskAgain);
        assert_eq!(progress.answered(&absent(), seconds(4_800), &schedule), Next::Settle);
    }

    #[test]
    fn answer_that_fails_the_control_begins_anew() {
        let schedule = schedule(Automatic::Both);
        let mut progress = Progress::new(seconds(0), &schedule);
        for at in [400, 500] {
            let _ = progress.answered(&absent(), seconds(at), &schedule);
        }
        assert_eq!(progress.distrusted("not trusted", seconds(500), &schedule), Next::AskAgain);
        assert_eq!(progress.answered(&absent(), seconds(600), &schedule), Next::AskAgain);
        assert_eq!(progress.answered(&absent(), seconds(700), &schedule), Next::Settle);
    }

    #[test]
    fn errors_decide_nothing_and_are_left_to_a_person_with_the_reason() {
        for automatic in [Automatic::Done, Automatic::Both] {
            let (next, number, _) = ask_until_the_end(automatic, |_| error());
            assert_eq!((next, number), (Next::LeaveToAPerson, QUESTIONS), "{automatic:?}");
        }
        let schedule = schedule(Automatic::Done);
        let mut progress = Progress::new(seconds(0), &schedule);
        while progress.due().is_some() {
            let _ = progress.answered(&error(), progress.due().unwrap(), &schedule);
        }
        assert_eq!(progress.summary(), (QUESTIONS, "500 is no answer"));
    }

    #[test]
    fn pauses_grow_up_to_an_hour() {
        let schedule = Schedule { settle: seconds(86_400), ..schedule(Automatic::Both) };
        let mut progress = Progress::new(seconds(0), &schedule);
        let mut times = Vec::new();
        while let Some(due) = progress.due() {
            times.push(due.as_secs());
            let _ = progress.answered(&error(), due, &schedule);
        }
        assert_eq!(times[..8], [60, 120, 240, 480, 960, 1_920, 3_840, 7_440]);
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] <= 3_600));
        assert!(*times.last().unwrap() >= 86_400, "asked until the effect cannot happen any more");
    }
}
