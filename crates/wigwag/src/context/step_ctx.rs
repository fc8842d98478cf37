//! The context of a graph step or a task.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use wigwag_core::{Path, Payload};

use super::Ctx;
use crate::engine_core::lock;
use crate::failure::{Failure, permanent};
use crate::scope::Scope;

/// The context of a graph step or a task. It is also a [`Ctx`], whose steps are below the
/// step's own path.
///
/// `S` is the type of the run's input and data.
#[derive(Debug)]
pub struct StepCtx<S> {
    ctx: Ctx,
    of: PhantomData<fn() -> S>,
}

impl<S> Clone for StepCtx<S> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.ctx.scope))
    }
}

impl<S> Deref for StepCtx<S> {
    type Target = Ctx;

    fn deref(&self) -> &Ctx {
        &self.ctx
    }
}

impl<S> StepCtx<S> {
    pub(crate) fn new(scope: Arc<Scope>) -> Self {
        Self { ctx: Ctx { scope }, of: PhantomData }
    }

    /// Attempt number, starting at 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.ctx.scope.attempt
    }

    /// Idempotency key of this step: the same at every attempt, and of no other step.
    #[must_use]
    pub fn idempotency_key(&self) -> String {
        let point = self.ctx.scope.point().map(Path::as_str).unwrap_or_default();
        format!("{}:{point}", self.ctx.scope.run.id)
    }

    /// Returns the result of an earlier step.
    pub async fn output<T: DeserializeOwned>(&self, step: &str) -> Result<T, Failure> {
        let path = Path::new(step)?;
        let data = lock(&self.ctx.scope.outputs).get(&path).cloned();
        let data = data.ok_or_else(|| permanent(format!("step `{step}` has no result")))?;
        Ok(self.ctx.scope.payload(&path, &data).await.read()?)
    }

    /// The input as JSON text.
    #[must_use]
    pub fn input_payload(&self) -> &Payload {
        &self.ctx.scope.input
    }

    /// Returns a copy of the run's data as it was when the step began, with the changes of this step.
    #[must_use]
    pub fn data_map(&self) -> serde_json::Map<String, serde_json::Value> {
        lock(&self.ctx.scope.data).clone()
    }

    /// Changes the run's data. Top-level fields that differ are recorded when the step is completed.
    pub fn change_data(&self, change: impl FnOnce(&mut serde_json::Map<String, serde_json::Value>)) {
        change(&mut lock(&self.ctx.scope.data));
    }
}

impl<S: Serialize + DeserializeOwned> StepCtx<S> {
    /// Returns the input of the run.
    pub fn input(&self) -> Result<S, Failure> {
        Ok(self.ctx.scope.input.read()?)
    }

    /// Returns the run's data: the input, with the changes that steps made.
    pub fn data(&self) -> Result<S, Failure> {
        let data = self.data_map();
        if data.is_empty() {
            return self.input();
        }
        Ok(Payload::of(&data)?.read()?)
    }

    /// Changes the run's data. Top-level fields that differ are recorded when the step is completed.
    pub fn update(&self, change: impl FnOnce(&mut S)) -> Result<(), Failure> {
        let mut data = self.data()?;
        change(&mut data);
        match serde_json::to_value(&data)? {
            serde_json::Value::Object(map) => {
                self.change_data(|data| *data = map);
                Ok(())
            }
            _ => Err(permanent("a run's data is a JSON object")),
        }
    }
}
