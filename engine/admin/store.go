package admin

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"time"
	"unicode/utf8"

	"github.com/gaplesshq/gapless/dedupe"
	"github.com/gaplesshq/gapless/engine"
)

// What is told of a dedupe store, by the running process that has it open and, of a store that nobody has open, by who opens it
// to look: the same in the same form.

// StoreStats is what GET /dedupe/stats answers.
type StoreStats struct {
	Dir              string    `json:"dir"`
	ID               string    `json:"id"`
	Created          time.Time `json:"created,omitzero"` // of a store that was closed only
	Seq              uint64    `json:"seq"`              // of the last group that is durable
	Keys             int64     `json:"keys"`             // with those that were replaced, forgotten, or have expired in a bucket that lives
	RetentionSeconds float64   `json:"retention_seconds"`
	Buckets          int       `json:"buckets"`
	Parts            int       `json:"parts"`
	Unsealed         int       `json:"unsealed"` // parts in memory
	DiskBytes        int64     `json:"disk_bytes"`
	MemoryBytes      int64     `json:"memory_bytes"` // filters and unsealed parts; some 60 MB of Pebble's come on top
	Time             time.Time `json:"time"`         // by which keys expire

	Spans   []StoreSpan          `json:"spans,omitempty"`   // the buckets, the newest first; of a store that was closed only
	Process *engine.DedupeStatus `json:"process,omitempty"` // since the process that has it open was started
}

// StoreSpan is a bucket: the keys that were marked in a span of time.
type StoreSpan struct {
	Start            time.Time `json:"start"`
	End              time.Time `json:"end"`     // the last key was marked before
	Expired          time.Time `json:"expired"` // all of it
	RetentionSeconds float64   `json:"retention_seconds"`
	Parts            int       `json:"parts"`
	Bytes            int64     `json:"bytes"`
}

// StatsOf looks at a store. The retention is that of the keys to come.
func StatsOf(s *dedupe.Store, retention time.Duration) StoreStats {
	st, id := s.Stats(), s.ID()
	return StoreStats{
		Dir: s.Dir(), ID: hex.EncodeToString(id[:]), Seq: st.Seq, Keys: st.Keys, RetentionSeconds: retention.Seconds(), Buckets: st.Buckets,
		Parts: st.Parts, Unsealed: st.Unsealed, DiskBytes: st.DiskBytes, MemoryBytes: st.MemoryBytes, Time: st.Time,
	}
}

// StoreKey is what GET /dedupe/key answers.
type StoreKey struct {
	Scope       string    `json:"scope"`
	Key         string    `json:"key"`
	KeyEncoding string    `json:"key_encoding,omitempty"` // base64, where it is not text
	Marked      bool      `json:"marked"`
	At          time.Time `json:"at,omitzero"`
	Expires     time.Time `json:"expires,omitzero"`
	ExpiresIn   float64   `json:"expires_in_seconds,omitempty"` // by the store's clock
	Fingerprint string    `json:"fingerprint,omitempty"`
}

// LookUp tells what a store knows of a key.
func LookUp(s *dedupe.Store, scope string, key []byte) (StoreKey, error) {
	k := StoreKey{Scope: scope, Key: string(key)}
	if !utf8.Valid(key) {
		k.Key, k.KeyEncoding = base64.StdEncoding.EncodeToString(key), "base64"
	}
	m, found, err := s.Get(s.Scope(scope).Key(key))
	if err != nil || !found {
		return k, err
	}
	k.Marked, k.At, k.Expires = true, m.At.UTC(), m.Expires.UTC()
	k.ExpiresIn = m.Expires.Sub(s.Stats().Time).Seconds()
	k.Fingerprint = hex.EncodeToString([]byte{byte(m.Fingerprint >> 32), byte(m.Fingerprint >> 24), byte(m.Fingerprint >> 16), byte(m.Fingerprint >> 8), byte(m.Fingerprint)})
	return k, nil
}

// Forgotten is what POST /dedupe/forget answers.
type Forgotten struct {
	Scope string `json:"scope"`
	All   bool   `json:"all,omitempty"` // of the scope; how many these were, the store can't tell
	Keys  int    `json:"keys"`
	Known int    `json:"known"` // of the keys; the others had no mark
}

// Forget takes marks back: of keys, or without any of the whole scope.
func Forget(ctx context.Context, s *dedupe.Store, scope string, keys [][]byte) (Forgotten, error) {
	f := Forgotten{Scope: scope, All: len(keys) == 0, Keys: len(keys)}
	if f.All {
		return f, s.ForgetScope(ctx, scope)
	}
	hashed := make([]dedupe.Key, len(keys))
	for i, key := range keys {
		hashed[i] = s.Scope(scope).Key(key)
		_, found, err := s.Get(hashed[i])
		if err != nil {
			return f, err
		}
		if found {
			f.Known++
		}
	}
	return f, s.Forget(ctx, hashed...)
}

// Verified is the last line of what POST /dedupe/verify answers, and VerifyProgress the ones before.
type Verified struct {
	OK       bool     `json:"ok"`
	Buckets  int      `json:"buckets"`
	Parts    int      `json:"parts"`
	Rows     int64    `json:"rows"`
	Keys     int64    `json:"keys"`
	Leftover int64    `json:"leftover"` // rows of buckets that have ended, not removed yet
	Problems []string `json:"problems,omitempty"`
}

// VerifyProgress is how far a verification is, in rows.
type VerifyProgress struct {
	Done  int64 `json:"done"`
	Total int64 `json:"total"` // estimated
}

// Verify reads all of a store.
func Verify(ctx context.Context, s *dedupe.Store, progress func(VerifyProgress)) (Verified, error) {
	r, err := s.Verify(ctx, func(done, total int64) { progress(VerifyProgress{done, total}) })
	v := Verified{OK: err == nil && len(r.Problems) == 0, Buckets: r.Buckets, Parts: r.Parts, Rows: r.Rows, Keys: r.Marks, Leftover: r.Leftover}
	for _, p := range r.Problems {
		v.Problems = append(v.Problems, p.Error())
	}
	return v, err
}

// Compacted is what POST /dedupe/compact answers.
type Compacted struct {
	Before  int64   `json:"before_bytes"`
	After   int64   `json:"after_bytes"`
	Seconds float64 `json:"seconds"`
}

// Compact brings a store to its smallest size.
func Compact(ctx context.Context, s *dedupe.Store) (Compacted, error) {
	began := time.Now()
	c := Compacted{Before: s.Stats().DiskBytes}
	err := s.Compact(ctx)
	c.After, c.Seconds = s.Stats().DiskBytes, time.Since(began).Seconds()
	return c, err
}
