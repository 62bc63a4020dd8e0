//! Combines calls that wait while a round trip is under way into the next one.
//!
//! Most of what a server does for a call, it does once per round trip: it reads from the network, and syncs its log.
//! So callers who ask at the same time share a round trip. While few calls are under way, a call that finds a free lane is
//! sent at once and by itself. Otherwise calls wait, and the next lane that is free takes them all.
//!
//! Each call has its own answer. If the server rejects a batch, its calls are sent one by one, so that one bad call does
//! not fail the others. Where the order of a batch is undefined, two calls on one key never share it.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ichido_core::Index;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::{Effect, Error, Kind, Result};

/// Batches under way at the same time.
const LANES: usize = 2;
/// Bytes of one batch.
const BYTES_MAX: usize = 1 << 20;

/// Calls that can be sent together.
pub(crate) trait Batch: Send + Sync + 'static {
    /// What a caller asks for.
    type Call: Send + Sync + 'static;
    /// What the caller gets.
    type Answer: Send + 'static;

    /// Calls of one batch.
    const CALLS_MAX: usize;

    /// With this many calls under way, a second batch would only make both smaller, and the server does more for the same
    /// calls.
    const MANY: usize;

    /// The key that no other call of the batch may be about.
    fn exclusive_key(call: &Self::Call) -> Option<Index>;

    /// The size of those parts of a call that may be large.
    fn bytes(call: &Self::Call) -> usize;

    /// Sends calls in one round trip. The answers are in the order of the calls.
    fn send(&self, calls: &[Self::Call]) -> impl Future<Output = Result<Vec<Result<Self::Answer>>>> + Send;
}

/// Combines calls.
pub(crate) struct Coalescer<B: Batch>(Arc<Shared<B>>);

struct Shared<B: Batch> {
    batch: B,
    state: Mutex<State<B>>,
}

struct State<B: Batch> {
    waiting: VecDeque<Waiting<B>>,
    lanes_busy: usize,
    /// Calls that were sent and have not ended.
    under_way: usize,
}

struct Waiting<B: Batch> {
    call: B::Call,
    reply: oneshot::Sender<Result<B::Answer>>,
}

impl<B: Batch> Coalescer<B> {
    pub(crate) fn new(batch: B) -> Self {
        let state = Mutex::new(State { waiting: VecDeque::new(), lanes_busy: 0, under_way: 0 });
        Self(Arc::new(Shared { batch, state }))
    }

    /// Makes a call. If the future is dropped, the call may or may not be made.
    pub(crate) async fn call(&self, call: B::Call) -> Result<B::Answer> {
        match self.0.clone().admit(call) {
            Admitted::Now { call, lane } => {
                let answer = self.0.send(std::slice::from_ref(&call)).await.pop();
                drop(lane);
                answer.unwrap_or_else(|| Err(lost()))
            }
            Admitted::Waits(reply) => reply.await.unwrap_or_else(|_| Err(lost())),
        }
    }
}

enum Admitted<B: Batch> {
    Now { call: B::Call, lane: Lane<B> },
    Waits(oneshot::Receiver<Result<B::Answer>>),
}

impl<B: Batch> Shared<B> {
    fn lock(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(self: Arc<Self>, call: B::Call) -> Admitted<B> {
        let mut state = self.lock();
        if state.lanes_busy < LANES && state.under_way < B::MANY {
            state.lanes_busy += 1;
            state.under_way += 1;
            drop(state);
            return Admitted::Now { call, lane: Lane(self) };
        }
        let (reply, answer) = oneshot::channel();
        state.waiting.push_back(Waiting { call, reply });
        Admitted::Waits(answer)
    }

    /// Takes the next batch for a busy lane, without the calls whose callers have left. Frees the lane if nothing waits, or
    /// if another lane has many calls under way: it takes what waits when it is done.
    fn take(&self) -> Option<Vec<Waiting<B>>> {
        let mut state = self.lock();
        if state.under_way >= B::MANY {
            state.lanes_busy -= 1;
            return None;
        }
        let (mut taken, mut bytes, mut keys, mut later) = (Vec::new(), 0, HashSet::new(), Vec::new());
        while let Some(next) = state.waiting.pop_front() {
            if next.reply.is_closed() {
                continue;
            }
            bytes += B::bytes(&next.call);
            if taken.len() == B::CALLS_MAX || (bytes > BYTES_MAX && !taken.is_empty()) {
                state.waiting.push_front(next);
                break;
            }
            match B::exclusive_key(&next.call).is_none_or(|key| keys.insert(key)) {
                true => taken.push(next),
                false => later.push(next),
            }
        }
        for next in later.into_iter().rev() {
            state.waiting.push_front(next);
        }
        if taken.is_empty() {
            state.lanes_busy -= 1;
            return None;
        }
        state.under_way += taken.len();
        Some(taken)
    }

    async fn send(&self, calls: &[B::Call]) -> Vec<Result<B::Answer>> {
        let error = match self.batch.send(calls).await {
            Ok(answers) => return answers,
            Err(error) => error,
        };
        if calls.len() == 1 || !may_concern_one_call(&error) {
            return calls.iter().map(|_| Err(error.clone())).collect();
        }
        let mut answers = Vec::with_capacity(calls.len());
        for call in calls {
            let answer = self.batch.send(std::slice::from_ref(call)).await;
            answers.push(answer.and_then(|mut answers| answers.pop().unwrap_or_else(|| Err(lost()))));
        }
        answers
    }
}

/// Whether the error may be due to one of many calls, none of which had an effect.
fn may_concern_one_call(error: &Error) -> bool {
    let kind = matches!(error.kind(), Kind::Unsupported(_) | Kind::Limit(_) | Kind::Corrupt(_));
    kind && error.effect() == Effect::None
}

/// Nobody answered: the task that sent the batch was ended with its runtime.
fn lost() -> Error {
    Error::new(Kind::Unavailable, "waiting for a call that is sent with others").with_unknown_effect()
}

/// The busy lane of a caller. When the call has ended, the lane takes the calls that wait by then.
struct Lane<B: Batch>(Arc<Shared<B>>);

impl<B: Batch> Drop for Lane<B> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.under_way -= 1;
        match Handle::try_current() {
            Ok(runtime) if !state.waiting.is_empty() => {
                drop(state);
                runtime.spawn(Worker { shared: self.0.clone(), is_busy: true, calls: 0 }.work());
            }
            // Without a runtime nobody waits either.
            _ => state.lanes_busy -= 1,
        }
    }
}

/// A busy lane that sends what is waiting, until nothing is.
///
/// If it is dropped before, because it panicked or the runtime is shutting down, its lane is free, and takes what is
/// waiting after the next call.
struct Worker<B: Batch> {
    shared: Arc<Shared<B>>,
    is_busy: bool,
    /// Those that it has under way.
    calls: usize,
}

impl<B: Batch> Worker<B> {
    async fn work(mut self) {
        while let Some(taken) = self.shared.take() {
            let (calls, mut replies): (Vec<_>, Vec<_>) =
                taken.into_iter().map(|Waiting { call, reply }| (call, reply)).unzip();
            self.calls = calls.len();
            // Dropping the call discards its connection, which may no longer answer.
            let answers = while_wanted(self.shared.send(&calls), &mut replies).await;
            self.end_calls();
            for (reply, answer) in replies.into_iter().zip(answers.into_iter().flatten()) {
                // A caller that has left needs no answer.
                let _ = reply.send(answer);
            }
        }
        self.is_busy = false;
    }

    fn end_calls(&mut self) {
        self.shared.lock().under_way -= std::mem::take(&mut self.calls);
    }
}

impl<B: Batch> Drop for Worker<B> {
    fn drop(&mut self) {
        if self.is_busy {
            self.end_calls();
            self.shared.lock().lanes_busy -= 1;
        }
    }
}

/// The result of a call, or `None` once all who wanted it have left.
async fn while_wanted<T, R>(call: impl Future<Output = T>, replies: &mut [oneshot::Sender<R>]) -> Option<T> {
    let all_have_left = async {
        for reply in replies {
            reply.closed().await;
        }
    };
    tokio::select! {
        result = call => Some(result),
        () = all_have_left => None,
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::{Semaphore, mpsc};
    use tokio::task::JoinSet;

    use super::*;

    /// A server that tells which batches it gets, and replies once for each permit.
    struct Server {
        batches: mpsc::UnboundedSender<Vec<u32>>,
        permits: Arc<Semaphore>,
    }

    /// A call for 13 is invalid.
    impl Batch for Server {
        type Call = u32;
        type Answer = u32;

        const CALLS_MAX: usize = 10;
        const MANY: usize = 8;

        /// Calls for the same number exclude each other.
        fn exclusive_key(call: &u32) -> Option<Index> {
            let mut bytes = [0; 32];
            bytes[0] = u8::try_from(*call).ok()?;
            Some(Index::from_bytes(bytes))
        }

        fn bytes(call: &u32) -> usize {
            if *call > 100 { BYTES_MAX } else { 0 }
        }

        async fn send(&self, calls: &[u32]) -> Result<Vec<Result<u32>>> {
            self.batches.send(calls.to_vec()).unwrap();
            self.permits.acquire().await.unwrap().forget();
            match calls.contains(&13) {
                true => Err(Error::new(Kind::Unsupported("thirteen".to_owned()), "testing")),
                false => Ok(calls.iter().map(|call| Ok(call * 2)).collect()),
            }
        }
    }

    struct Test {
        coalescer: Arc<Coalescer<Server>>,
        batches: mpsc::UnboundedReceiver<Vec<u32>>,
        permits: Arc<Semaphore>,
        callers: JoinSet<(u32, Result<u32>)>,
    }

    impl Test {
        /// All lanes are busy, with one call each.
        async fn busy() -> Self {
            let ((sender, batches), permits) = (mpsc::unbounded_channel(), Arc::new(Semaphore::new(0)));
            let coalescer = Arc::new(Coalescer::new(Server { batches: sender, permits: permits.clone() }));
            let mut test = Self { coalescer, batches, permits, callers: JoinSet::new() };
            for lane in 0..LANES {
                test.call(u32::try_from(lane).unwrap()).await;
                assert_eq!(test.batches.recv().await.unwrap().len(), 1, "a free lane sends at once");
            }
            test
        }

        async fn call(&mut self, call: u32) {
            let coalescer = self.coalescer.clone();
            self.callers.spawn(async move { (call, coalescer.call(call).await) });
            tokio::task::yield_now().await;
        }

        /// Lets everything end. Returns the batches that were sent meanwhile, and the failed calls.
        async fn end(mut self) -> (Vec<Vec<u32>>, Vec<u32>) {
            self.permits.add_permits(100);
            let mut failed = Vec::new();
            while let Some(ended) = self.callers.join_next().await {
                match ended.unwrap() {
                    (call, Ok(answer)) => assert_eq!(answer, call * 2, "everyone gets their own answer"),
                    (call, Err(_)) => failed.push(call),
                }
            }
            let mut sent = Vec::new();
            while let Ok(batch) = self.batches.try_recv() {
                sent.push(batch);
            }
            (sent, failed)
        }
    }

    #[tokio::test]
    async fn waiting_calls_leave_together_up_to_the_limits() {
        let mut test = Test::busy().await;
        for call in (20..32).chain([101, 102]) {
            test.call(call).await;
        }
        let (sent, failed) = test.end().await;
        assert_eq!(sent, [(20..30).collect(), vec![30, 31, 101], vec![102]]);
        assert!(failed.is_empty());
    }

    #[tokio::test]
    async fn calls_on_one_key_leave_one_after_another_in_their_order() {
        let mut test = Test::busy().await;
        for call in [10, 10, 11, 10] {
            test.call(call).await;
        }
        let (sent, failed) = test.end().await;
        assert_eq!(sent, [vec![10, 11], vec![10], vec![10]]);
        assert!(failed.is_empty());
    }

    /// Otherwise two batches that halve each other would stay that way as long as there is load.
    #[tokio::test]
    async fn many_calls_under_way_are_not_joined_by_a_second_batch() {
        let mut test = Test::busy().await;
        for call in 20..20 + u32::try_from(Server::MANY).unwrap() {
            test.call(call).await;
        }
        test.permits.add_permits(1);
        assert_eq!(test.batches.recv().await.unwrap().len(), Server::MANY, "one lane has them all");
        // The other lane ends, and leaves the next call to the first one.
        test.call(50).await;
        test.permits.add_permits(1);
        tokio::task::yield_now().await;
        test.call(51).await;
        assert!(test.batches.try_recv().is_err());
        let (sent, failed) = test.end().await;
        assert_eq!(sent, [vec![50, 51]]);
        assert!(failed.is_empty());
    }

    /// Tasks end one after another, while others still wait.
    #[test]
    fn runtime_that_shuts_down_ends_all_calls() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let test = runtime.block_on(async {
            let mut test = Test::busy().await;
            for call in 10..30 {
                test.call(call).await;
            }
            test
        });
        let mut test = test;
        test.callers.detach_all();
        drop(runtime);
        let state = test.coalescer.0.lock();
        assert_eq!((state.lanes_busy, state.under_way), (0, 0));
    }

    #[tokio::test]
    async fn rejected_call_does_not_fail_its_neighbours() {
        let mut test = Test::busy().await;
        for call in [12, 13, 14] {
            test.call(call).await;
        }
        let (sent, failed) = test.end().await;
        assert_eq!(sent, [vec![12, 13, 14], vec![12], vec![13], vec![14]]);
        assert_eq!(failed, [13]);
    }

    /// A batch for which nobody waits must not keep its lane, or a silent server would block all later calls.
    #[tokio::test]
    async fn callers_who_left_free_their_lane() {
        let mut test = Test::busy().await;
        test.call(10).await;
        test.callers.abort_all();
        while test.callers.join_next().await.is_some() {}
        // No permit was given, so all lanes would still be busy.
        for call in 0..u32::try_from(LANES).unwrap() {
            test.call(call).await;
            assert_eq!(test.batches.recv().await.unwrap(), [call], "the call of one who left is not sent");
        }
        test.call(20).await;
        test.permits.add_permits(1);
        assert_eq!(test.batches.recv().await.unwrap(), [20]);
        // The caller of a batch under way leaves; the lane takes what comes next.
        test.callers.abort_all();
        while test.callers.join_next().await.is_some() {}
        test.call(21).await;
        assert_eq!(test.batches.recv().await.unwrap(), [21]);
        let (_, failed) = test.end().await;
        assert!(failed.is_empty());
    }
}
