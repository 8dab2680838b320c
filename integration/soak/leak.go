package main

import (
	"os"
	"sync"
	"sync/atomic"
)

// sieve leaks on purpose: it shows that the soak finds what it is there to find.
type sieve struct {
	calls atomic.Int64
	mu    sync.Mutex
	kept  [][]byte
}

// drip leaks a kilobyte, an open file and a goroutine at every so many calls.
func (s *sieve) drip(each int) {
	if s.calls.Add(1)%int64(each) != 0 {
		return
	}
	s.mu.Lock()
	s.kept = append(s.kept, make([]byte, 1024))
	s.mu.Unlock()
	r, w, err := os.Pipe()
	if err != nil {
		return
	}
	go func() {
		_, _ = r.Read(make([]byte, 1)) // for ever
		_ = w.Close()
	}()
}
