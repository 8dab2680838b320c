package dedupe

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// Key is a business key as the store knows it: 16 bytes of a SHA-256 that nobody outside can predict, because a secret of
// the store goes into it. Make it with Scope.Key. Keys of one store mean nothing to another.
type Key [16]byte

// Scope is a namespace of business keys, such as a topic: equal keys in two scopes are different Keys. Get it from
// Store.Scope. It may be copied, and used by any number of goroutines at once.
type Scope struct{ s *scopeState }

// scopeState is what all copies of a Scope share.
type scopeState struct {
	prefix atomic.Pointer[[16]byte] // stands for salt, name and generation
}

// Scope returns the namespace of that name, which may be any string. Its generation is durable: see ForgetScope.
func (s *Store) Scope(name string) Scope {
	s.scopeMu.Lock()
	defer s.scopeMu.Unlock()
	st := s.scopes[name]
	if st == nil {
		st = &scopeState{}
		st.prefix.Store(s.scopePrefix(name, s.generations[name]))
		s.scopes[name] = st
	}
	return Scope{st}
}

// scopePrefix hashes what all keys of a generation of a scope have in common, so that hashing a key of up to 39 bytes
// takes one block of SHA-256.
func (s *Store) scopePrefix(name string, generation uint64) *[16]byte {
	b := append([]byte("gapless scope\x00"), s.schema.salt[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(len(name)))
	b = append(b, name...)
	b = binary.BigEndian.AppendUint64(b, generation)
	sum := sha256.Sum256(b)
	return (*[16]byte)(sum[:16])
}

// Key hashes a business key. A nil key and an empty one are the same key; whether no key means no dedupe is for the
// caller to decide. The bytes are not kept, and there is no limit on their number. It does not allocate.
func (c Scope) Key(key []byte) (k Key) {
	sum := prefixed(c.s.prefix.Load(), key)
	copy(k[:], sum[:])
	return k
}

// Fingerprint hashes a payload, so that a key that comes again with another payload is told apart from a plain duplicate.
// The store keeps 40 bits of it, which is the part that Claim compares: by chance one other payload in 10^12 has the same. It is
// a fast hash and not a cryptographic one, seeded with a secret of the store so that equal fingerprints can't be computed
// elsewhere; what the payload is compared with was sent under the same business key. It does not allocate. A caller that does not
// care passes the same number for all payloads.
func (s *Store) Fingerprint(payload []byte) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(binary.BigEndian.Uint64(s.schema.salt[8:]))
	_, _ = d.Write(payload)
	return d.Sum64() & fingerprintMask
}

var hashers = sync.Pool{New: func() any { return &hasher{Hash: sha256.New()} }}

type hasher struct {
	hash.Hash
	sum [sha256.Size]byte
}

func prefixed(prefix *[16]byte, b []byte) (sum [sha256.Size]byte) {
	if len(b) <= 240 {
		var buf [256]byte
		copy(buf[:], prefix[:])
		return sha256.Sum256(buf[:16+copy(buf[16:], b)])
	}
	h := hashers.Get().(*hasher)
	h.Reset()
	h.Write(prefix[:])
	h.Write(b)
	h.Sum(h.sum[:0])
	sum = h.sum
	hashers.Put(h)
	return sum
}
