package dedupe

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// Row returns the durable row of that key which Options.Rows gave, and whether there is one. The bytes are the caller's.
func (s *Store) Row(key []byte) (value []byte, found bool, err error) {
	value, err = apart(s, func(db *pebble.DB) ([]byte, error) {
		v, c, err := db.Get(callerKey(key))
		switch {
		case errors.Is(err, pebble.ErrNotFound):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("dedupe: reading: %w", err)
		}
		value := append(make([]byte, 0, len(v)), v...) // not nil where it is empty
		return value, c.Close()
	})
	return value, value != nil, err
}

// EachRow calls f with the durable rows whose keys begin so, in the order of their keys, until it returns false. The slices
// are good for the call only.
func (s *Store) EachRow(prefix []byte, f func(key, value []byte) bool) error {
	if err := s.ended(); err != nil {
		return err
	}
	s.dbMu.RLock()
	defer s.dbMu.RUnlock()
	if s.db == nil {
		return ErrUnavailable
	}
	lower := callerKey(prefix)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: []byte{callerPrefix + 1}})
	if err != nil {
		return fmt.Errorf("dedupe: reading: %w", err)
	}
	defer s.iters.close(it)
	for ok := it.First(); ok && bytes.HasPrefix(it.Key(), lower); ok = it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return fmt.Errorf("dedupe: reading: %w", err)
		}
		if !f(it.Key()[1:], v) {
			break
		}
	}
	return it.Error()
}

// DeleteRow deletes a row and waits until that is durable. Should Options.Rows give it in the same group, it stays. The errors
// are those of Flush.
func (s *Store) DeleteRow(ctx context.Context, key []byte) error {
	k := callerKey(key)
	return s.enqueue(ctx, &op{apply: func(b *pebble.Batch) error { return b.Delete(k, nil) }}, nil)
}

// Forget takes the mark of a key back and waits until that is durable: the next claim of it is Mine. Marks that were given
// to Mark before are taken back, too; a key that is held stays held and may be marked afterwards. The errors are those of Flush;
// after one, the mark may be gone or not.
func (s *Store) Forget(ctx context.Context, keys ...Key) error {
	items := make([]Completion, len(keys))
	for i, k := range keys {
		items[i].Claim = Claim{key: k, token: forgetToken}
	}
	for c := range slices.Chunk(items, max(1, s.o.MaxGroup/2)) {
		if err := s.enqueue(ctx, nil, c); err != nil {
			return err
		}
	}
	s.forgets.Add(uint64(len(keys)))
	return nil
}

// ForgetScope takes back all marks of a scope at once, at the price of one row: the scope's keys hash differently from then
// on, in every Scope of that name. The old marks take space until their retention ends. It waits until that is durable. Keys
// that were made before and are marked afterwards are forgotten as well. The errors are those of Flush.
func (s *Store) ForgetScope(ctx context.Context, name string) error {
	s.Scope(name) // so that there is something to change
	var generation uint64
	key := string(generationPrefix) + name
	return s.enqueue(ctx, &op{
		apply: func(b *pebble.Batch) error {
			s.scopeMu.Lock()
			generation = s.generations[name] + 1
			s.scopeMu.Unlock()
			return b.Set([]byte(key), wrap(key, binary.BigEndian.AppendUint64(nil, generation)), nil)
		},
		after: func() {
			s.scopeMu.Lock()
			s.generations[name] = generation
			s.scopes[name].prefix.Store(s.scopePrefix(name, generation))
			s.scopeMu.Unlock()
		},
	}, nil)
}

// Compact brings the store to its smallest size: what waits in memory is written to tables, and what was deleted is
// removed from them. It need not be called; it helps before a copy is taken. It may take seconds.
func (s *Store) Compact(ctx context.Context) error {
	if err := s.Flush(ctx); err != nil {
		return err
	}
	_, err := apart(s, func(db *pebble.DB) (struct{}, error) {
		s.o.hook("compact")
		return struct{}{}, guard(func() error {
			if err := s.flush(db); err != nil {
				return err
			}
			// If a group was written since, this ends the log again. Groups go on meanwhile, so it is no matter for endLog.
			defer s.health.own(atTables)()
			return db.Compact(ctx, []byte{arrivalPrefix}, []byte{sealedPrefix + 1}, false)
		})
	})
	return err
}
