//! Names with types: a constant that is written once, and accepted wherever a name is.
//!
//! The traits say what a name may be: a string, whose types the caller states, or a typed name, which states them itself.

use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::DeserializeOwned;

use crate::client::{Client, RunHandle};
use crate::error::Result;

/// Name of a workflow or task, with the types of its input and its result.
///
/// ```
/// use wigwag::{Ctx, Engine, Failure, Workflow};
///
/// const GREET: Workflow<String, String> = Workflow::new("greet");
///
/// async fn greet(ctx: Ctx, name: String) -> Result<String, Failure> {
///     ctx.step("write", || async { Ok(format!("hello {name}")) }).await
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), wigwag::Error> {
/// let engine = Engine::open("memory:")?.function(GREET, 1, greet).start().await?;
/// let run = engine.client().start(GREET, "ada").await?;
/// assert_eq!(run.result().await?, "hello ada");
/// # Ok(()) }
/// ```
pub struct Workflow<In, Out> {
    name: &'static str,
    types: PhantomData<fn(In) -> Out>,
}

impl<In, Out> Workflow<In, Out> {
    /// Names a workflow or task.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, types: PhantomData }
    }

    /// Returns the name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

/// Name of a signal, with the type of its payload.
///
/// ```
/// use wigwag::{Ctx, Engine, Failure, Signal, Workflow};
///
/// const ORDER: Workflow<(), bool> = Workflow::new("order");
/// const APPROVAL: Signal<bool> = Signal::new("approval");
///
/// async fn order(ctx: Ctx, _: ()) -> Result<bool, Failure> {
///     ctx.wait(APPROVAL).await
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), wigwag::Error> {
/// let engine = Engine::open("memory:")?.function(ORDER, 1, order).start().await?;
/// let run = engine.client().start(ORDER, &()).await?;
/// run.signal(APPROVAL, &true).await?;
/// assert!(run.result().await?);
/// # Ok(()) }
/// ```
pub struct Signal<T> {
    name: &'static str,
    payload: PhantomData<fn() -> T>,
}

impl<T> Signal<T> {
    /// Names a signal.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, payload: PhantomData }
    }

    /// Returns the name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

// Derives would demand the traits of the type parameters too, although no value of them exists.
impl<In, Out> Clone for Workflow<In, Out> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<In, Out> Copy for Workflow<In, Out> {}

impl<In, Out> fmt::Debug for Workflow<In, Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Workflow").field(&self.name).finish()
    }
}

impl<T> Clone for Signal<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Signal<T> {}

impl<T> fmt::Debug for Signal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Signal").field(&self.name).finish()
    }
}

impl<In, Out> From<Workflow<In, Out>> for String {
    fn from(workflow: Workflow<In, Out>) -> Self {
        workflow.name.into()
    }
}

impl<T> From<Signal<T>> for String {
    fn from(signal: Signal<T>) -> Self {
        signal.name.into()
    }
}

/// A key for a workflow of this input and this result: a string, or a [`Workflow`] of these types.
pub trait WorkflowKey<In: ?Sized, Out> {
    /// Returns the name.
    fn name(&self) -> &str;
}

impl<N: AsRef<str>, In: ?Sized, Out> WorkflowKey<In, Out> for N {
    fn name(&self) -> &str {
        self.as_ref()
    }
}

impl<In: Borrow<I>, Out, I: ?Sized> WorkflowKey<I, Out> for Workflow<In, Out> {
    fn name(&self) -> &str {
        self.name
    }
}

/// A key for a workflow that is started with this input: a string, or a [`Workflow`] of it.
pub trait StartKey<In: ?Sized> {
    /// Handle of the started run: a [`TypedRun`] where the type of its result is known.
    type Run: From<RunHandle> + 'static;

    /// Returns the name.
    fn name(&self) -> &str;
}

impl<N: AsRef<str>, In: ?Sized> StartKey<In> for N {
    type Run = RunHandle;

    fn name(&self) -> &str {
        self.as_ref()
    }
}

impl<In: Borrow<I>, Out: 'static, I: ?Sized> StartKey<I> for Workflow<In, Out> {
    type Run = TypedRun<Out>;

    fn name(&self) -> &str {
        self.name
    }
}

/// A key for a signal that is sent with this payload: a string, or a [`Signal`] of it.
pub trait SignalKey<P: ?Sized> {
    /// Returns the name.
    fn name(&self) -> &str;
}

impl<N: AsRef<str>, P: ?Sized> SignalKey<P> for N {
    fn name(&self) -> &str {
        self.as_ref()
    }
}

impl<T: Borrow<P>, P: ?Sized> SignalKey<P> for Signal<T> {
    fn name(&self) -> &str {
        self.name
    }
}

/// A key for a signal that a wait reads as this type: a string, or a [`Signal`] of it.
pub trait WaitKey<T> {
    /// Returns the name.
    fn name(&self) -> &str;
}

impl<N: AsRef<str>, T> WaitKey<T> for N {
    fn name(&self) -> &str {
        self.as_ref()
    }
}

impl<T> WaitKey<T> for Signal<T> {
    fn name(&self) -> &str {
        self.name
    }
}

/// A run whose result has a known type. It is a [`RunHandle`] in all else.
pub struct TypedRun<Out> {
    handle: RunHandle,
    result: PhantomData<fn() -> Out>,
}

impl<Out: DeserializeOwned> TypedRun<Out> {
    /// Waits until the run has ended, and returns its result.
    pub async fn result(&self) -> Result<Out> {
        self.handle.result().await
    }
}

impl<Out> TypedRun<Out> {
    /// Returns the handle without the type.
    #[must_use]
    pub fn into_handle(self) -> RunHandle {
        self.handle
    }
}

impl<Out> Deref for TypedRun<Out> {
    type Target = RunHandle;

    fn deref(&self) -> &RunHandle {
        &self.handle
    }
}

impl<Out> From<RunHandle> for TypedRun<Out> {
    fn from(handle: RunHandle) -> Self {
        Self { handle, result: PhantomData }
    }
}

impl<Out> Clone for TypedRun<Out> {
    fn clone(&self) -> Self {
        self.handle.clone().into()
    }
}

impl<Out> fmt::Debug for TypedRun<Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(f)
    }
}

impl Client {
    /// Returns the run of this id, whose result has the type that the workflow gives.
    pub fn run_of<In, Out>(&self, _: Workflow<In, Out>, id: impl AsRef<str>) -> Result<TypedRun<Out>> {
        Ok(self.run(id)?.into())
    }
}
