//! Limits drawn from the seed. A simulated run is far too small to reach the real limits; with small limits it often fills
//! entries, pages and batches.
//!
//! Holds: the relations between the real limits stay. An entry at its soft limit has room for a few more events,
//! a batch for all objects of one entry, a body for a snapshot. Otherwise the checks would report impossible
//! situations as bugs of the engine.

use std::time::Duration;

use wigwag_core::limits::Limits;

use crate::options::{Ingredient, Options};

/// Limits of one world.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Limits of the engine.
    pub limits: Limits,
    /// Keys on a page of a listing.
    pub page: usize,
}

impl Bounds {
    /// Draws the limits of a world, or returns the real ones.
    #[must_use]
    pub fn of(options: &Options) -> Self {
        let mut bounds = Self { limits: Limits::REAL, page: wigwag_store::limits::LIST_PAGE };
        if options.draws_limits() {
            bounds.draw(options, &mut fastrand::Rng::with_seed(options.seed ^ 0xB0_0D5));
        }
        bounds
    }

    /// Draws every value, used or not, so that leaving out one ingredient does not change the others.
    fn draw(&mut self, options: &Options, chance: &mut fastrand::Rng) {
        let mut has = |ingredient, of: u32| chance.u32(..of) == 0 && options.has(ingredient);
        let small_batches = has(Ingredient::SmallBatches, 3);
        // A batch has room for all objects of one entry.
        let few_events = has(Ingredient::FewEvents, 2) || small_batches;
        let small_entries = has(Ingredient::SmallEntries, 2);
        let small_payloads = has(Ingredient::SmallPayloads, 3);
        let small_snapshots = has(Ingredient::SmallSnapshots, 2);
        let small_bodies = has(Ingredient::SmallBodies, 2) && small_entries && small_snapshots;
        let small_pages = has(Ingredient::SmallPages, 2);
        let few_reads = has(Ingredient::FewReads, 2);
        let few_waits = has(Ingredient::FewWaits, 6);
        let few_points = has(Ingredient::FewPoints, 8);
        // An unused draw, which keeps the worlds of all seeds as they are.
        has(Ingredient::ShortTimes, 3);
        let short_times = has(Ingredient::ShortTimes, 4);
        let limits = &mut self.limits;
        let (events, puts, soft) = (chance.usize(2..9), chance.usize(1..6), chance.usize(20..2_000));
        if few_events {
            (limits.entry_events_max, limits.entry_puts_max) = (events, puts);
        }
        self.draw_bytes(chance, small_entries.then_some(soft), small_payloads, small_snapshots);
        let limits = &mut self.limits;
        let (points, waits, senders) = (chance.usize(30..60), chance.usize(3..7), chance.u32(2..6));
        if few_points {
            limits.points_max = points;
        }
        if few_waits {
            limits.waits_max = limits.waits_max.min(waits);
            limits.race_max = 3;
        }
        if few_waits || small_bodies {
            limits.quorum_max = senders;
        }
        let reads = chance.usize(1..4);
        if few_reads {
            limits.signals_read_at_once = reads;
        }
        let room = chance.usize(..12);
        if small_batches {
            // The events of one entry, each with an object before it and one to delete after it; the waits that are
            // closed when the run ends; and the objects of every entry.
            limits.waits_max = limits.waits_max.min(12);
            limits.batch_operations_max = 2 * limits.entry_events_max + limits.waits_max + 24 + room;
        }
        if small_bodies {
            // A snapshot holds the results of recent entries until they are moved out, in addition to the open steps.
            let entries = usize::try_from(limits.snapshot_entries).unwrap_or(usize::MAX);
            limits.body_bytes_max = entries * limits.entry_bytes_max + 12 * 1_024;
            limits.joined_bytes_max = limits.body_bytes_max / 2;
            // A quorum returns its payloads as one array.
            limits.payload_bytes_max = limits.body_bytes_max / limits.quorum_max as usize - 2;
        }
        let page = chance.usize(2..8);
        if small_pages {
            self.page = page;
        }
        self.draw_times(chance, short_times);
    }

    fn draw_bytes(&mut self, chance: &mut fastrand::Rng, soft: Option<usize>, inline: bool, snapshots: bool) {
        let limits = &mut self.limits;
        let (max, by_half) = (chance.usize(10..18) * 1_024, chance.bool());
        let (text, misfits) = (chance.usize(80..300), chance.usize(2..20));
        if let Some(soft) = soft {
            // An entry below its soft limit accepts one more event of any kind, and some kinds name many steps or tasks.
            let half = (max - 5_632) / 2;
            limits.entry_bytes_max = max;
            limits.entry_bytes_soft = if by_half { half } else { soft.min(half) };
            (limits.task_ids_bytes_max, limits.named_steps_bytes_max) = (half, half);
            (limits.error_bytes_max, limits.reason_bytes_max) = (text, text);
            (limits.named_misfits_max, limits.compensation_errors_max) = (misfits, misfits);
            // The waits of a run are closed in one entry, and its input is part of the first one.
            limits.waits_max = max / 160;
            limits.inline_bytes_max = max / 32;
        }
        let bytes = chance.usize(8..200);
        if inline {
            limits.inline_bytes_max = limits.inline_bytes_max.min(bytes);
        }
        let blobs = chance.usize(200..4_000);
        if inline {
            limits.entry_blob_bytes_max = blobs;
        }
        let (bytes, entries, chunk) = (chance.usize(100..400), chance.u64(2..5), chance.usize(400..4_000));
        if snapshots {
            (limits.snapshot_points_bytes_max, limits.snapshot_entries) = (bytes, entries);
            limits.chunk_bytes_max = chunk;
        }
    }

    fn draw_times(&mut self, chance: &mut fastrand::Rng, short: bool) {
        let (memory, patrol) = (chance.u64(60..120), chance.u64(40..80));
        let interruptions = chance.u32(2..5);
        if short {
            let limits = &mut self.limits;
            limits.control_memory = Duration::from_secs(memory);
            limits.controls_remembered_min = 4;
            limits.patrol_first = Duration::from_secs(patrol);
            limits.interruptions_max = interruptions;
            limits.shared_wake_from = 1;
        }
    }
}
