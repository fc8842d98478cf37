//! Signals through the engine: one test for each sentence of the design that states a behaviour, named as the sentence.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod world;

mod at_once;
mod field_bugs;
mod keys;
mod late;
mod links;
mod on_receive;
mod options;
mod order;
mod over;
mod random;
mod rejections;
mod seeing;
mod sending;
mod separate_senders;
mod several;
mod waiting;
