// Package dedupe remembers which business keys were handled, so that a record that a producer sent twice runs once. It also
// keeps small opaque rows for its caller, such as the engine's resume windows, in the same group commits.
//
// A [Store] is a directory. It knows keys, fingerprints and bytes, not Kafka, and works with any consumer loop:
//
//	claim, verdict, err := store.Claim(scope.Key(key), store.Fingerprint(payload), tag)
//	// Mine: run the handler, then Mark or Release; Seen: skip; Busy: wait for OnFree; Differs: decide
//	store.Mark(completions) // never blocks; OnDurable(tags) when they are durable
//
// # Contract
//
// The clause numbers are those of the delivery contract in the engine's documentation.
//
//   - A mark is durable only after it was asked for with Mark, that is after the handler succeeded (C5). OnDurable comes after
//     a synced commit of the group that holds the mark; nothing is ever acknowledged on the strength of a write that was not
//     synced.
//   - Of all claims of a key, one is held at a time. The reservation is made before the store is asked, and ends only when the
//     mark is durable and can be found, so between two copies in flight there is no gap to slip through.
//   - The store never says Seen or Differs for a key that was not marked. A row that cannot be read, has a wrong checksum or an
//     unknown version is an error of that claim, and the key counts neither as seen nor as new.
//   - A mark counts for its retention, from the first mark on, never longer because of a duplicate. Marks age by the earlier of
//     the wall clock and the stream ([Store.Observe]); setting the wall clock expires nothing early and revives nothing.
//   - While the store cannot write, nothing becomes durable and Room blocks. A full disk is waited for. A log whose sync failed
//     is closed and opened anew, and what was waiting is written then. Where that is impossible, OnFatal says so: end the
//     process, and the next start repairs the store.
//   - Losing a store costs duplicates. It does not follow a partition to another host.
//
// What it cannot do: the effect of a handler and its mark are two things. A crash between them runs the handler again, and so
// does one in the milliseconds before a group is synced. A handler whose effects bear repetition, such as an upsert by the
// business key, makes the two together as good as once; see the examples.
//
// # How it is stored
//
// Pebble holds one row for each group, however many marks it has, so the write path costs the same for one mark and for
// thousands. The youngest part of the marks, up to half a million, is in memory as well. When it is full, a background goroutine
// sorts it, writes it as one table, and swaps that for the group rows in one step; such a table is never compacted. Lookups of
// new keys end at a Bloom filter in memory: one for each bucket, and one for each part behind it. A key that was marked
// costs one read of a 4 KB row, or none while it is in the youngest part.
//
// Marks are kept in buckets of a quarter of the retention, so five live at a time, and a bucket that has ended is removed in one
// step without rewriting anything. At open the rows are read once to build the filters.
//
// A mark takes 24.3 bytes on disk and 2.6 bytes of memory. See Estimate.
//
// # Concurrency
//
// All methods may be called from any goroutine. A store has three goroutines of its own and those of Pebble; Close ends them.
package dedupe
