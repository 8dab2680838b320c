package dedupe

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

func TestAStoreHasOneOwner(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	h := newHands()
	o := options(h)
	o.FS = nil
	s := open(t, dir, o)
	if _, err := Open(dir, o); !errors.Is(err, ErrLocked) {
		t.Errorf("a second store: %v", err)
	}
	if _, err := Quarantine(dir, nil); !errors.Is(err, ErrLocked) {
		t.Errorf("quarantine of a store in use: %v", err)
	}
	if _, err := Inspect(dir, nil); !errors.Is(err, ErrLocked) {
		t.Errorf("inspection of a store in use: %v", err)
	}
	mark(t, s, key(s, 1), 1)
	slots := filepath.Join(filepath.Dir(dir), "slots")
	for i := range 3 {
		s, err := OpenSlot(slots, o)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if want := filepath.Join(slots, string(rune('0'+i))); s.Dir() != want {
			t.Errorf("slot %s, want %s", s.Dir(), want)
		}
	}
}

func TestWhatIsNoStoreIsRefusedByName(t *testing.T) {
	h := newHands()
	base := t.TempDir()
	o := options(h)
	o.FS = nil
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", file, filepath.Join(file, "below")} {
		if s, err := Open(dir, o); err == nil {
			s.Close()
			t.Errorf("%q opens", dir)
		} else {
			t.Log(err)
		}
	}
	if _, err := Inspect(filepath.Join(base, "none"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	foreign := filepath.Join(base, "foreign")
	db, err := pebble.Open(foreign, &pebble.Options{Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Set([]byte("a"), []byte("b"), pebble.Sync), db.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = Open(foreign, o)
	if !errors.Is(err, ErrForeign) {
		t.Error(err)
	}
	if os.Getuid() != 0 {
		sealedOff := filepath.Join(base, "off")
		if err := os.Mkdir(sealedOff, 0o500); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(sealedOff, o); !errors.Is(err, fs.ErrPermission) {
			t.Error(err)
		}
	}
}

func TestANewerStoreIsRefused(t *testing.T) {
	h := newHands()
	for what, change := range map[string]func(t *testing.T, s *Store, m *vfs.MemFS){
		"schema": func(t *testing.T, s *Store, m *vfs.MemFS) {
			row := s.schema.encode()
			row[0] = formatVersion + 1
			row = row[:len(row)-4]
			sum := wrapSum(schemaKey, row)
			row = append(row, byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum))
			if err := s.db.Set([]byte(schemaKey), row, pebble.Sync); err != nil {
				t.Fatal(err)
			}
		},
		"format": func(t *testing.T, s *Store, m *vfs.MemFS) {
			names, _ := m.List("d")
			for _, name := range names {
				if strings.HasPrefix(name, "marker.format-version.") {
					if err := m.Rename("d/"+name, "d/marker.format-version.000099.099"); err != nil {
						t.Fatal(err)
					}
				}
			}
		},
	} {
		o := options(h)
		m := vfs.NewMem()
		o.FS = m
		s := open(t, "d", o)
		mark(t, s, key(s, 1), 1)
		if what == "schema" {
			change(t, s, m)
		}
		s.Close()
		if what == "format" {
			change(t, s, m)
		}
		if _, err := Open("d", o); !errors.Is(err, ErrNewer) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestALostMarkerIsNotAnEmptyStore(t *testing.T) {
	h := newHands()
	o := options(h)
	m := vfs.NewMem()
	o.FS = m
	s := open(t, "d", o)
	mark(t, s, key(s, 1), 1)
	s.Close()
	names, _ := m.List("d")
	for _, name := range names {
		if strings.HasPrefix(name, "marker.") {
			if err := m.Remove("d/" + name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := Open("d", o); !errors.Is(err, ErrDamaged) {
		t.Fatal(err)
	}
	path, err := Quarantine("d", m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Stat(path); err != nil {
		t.Error(err)
	}
	open(t, "d", o)
}

func TestInspectAndVerify(t *testing.T) {
	h := newHands()
	o := options(h)
	o.partSize = 100
	s := open(t, "d", o)
	for i := range 1000 {
		mark(t, s, key(s, i), 1)
		if i%300 == 0 {
			h.pass(10 * time.Minute)
		}
	}
	settle(s)
	calls := 0
	r, err := s.Verify(t.Context(), func(done, total int64) { calls++ })
	if err != nil || len(r.Problems) > 0 || r.Marks != 1000 || calls == 0 {
		t.Errorf("%+v, %v, %d calls", r, err, calls)
	}
	if err := s.Compact(t.Context()); err != nil {
		t.Error(err)
	}
	for i := range 1000 {
		claim(t, s, key(s, i), 1, Seen)
	}
	st := s.Stats()
	s.Close()
	info, err := Inspect("d", o.FS)
	if err != nil || info.ID != s.ID() || info.Seq != st.Seq+1 || len(info.Buckets) != st.Buckets {
		t.Errorf("%+v, %v", info, err)
	}
	s = open(t, "d", o)
	if again := s.Stats(); again.Keys != st.Keys || again.Buckets != st.Buckets {
		t.Errorf("%+v became %+v", st, again)
	}
	// A row that does not match its sum, and one that is missing.
	live := *s.buckets.Load()
	b := live[len(live)-1]
	var buf [13]byte
	p := (*b.parts.Load())[len(*b.parts.Load())-1]
	k := putSealedKey(&buf, b.serial, p.no, 0)
	v, c, err := s.db.Get(k)
	if err != nil {
		t.Fatal(err)
	}
	bad := append([]byte(nil), v...)
	c.Close()
	bad[20]++
	if err := s.db.Set(k, bad, pebble.Sync); err != nil {
		t.Fatal(err)
	}
	s.iters.epoch.Add(1)
	if r, err = s.Verify(t.Context(), nil); err != nil || len(r.Problems) == 0 {
		t.Errorf("%+v, %v", r, err)
	}
	damaged := 0
	for i := range 1000 {
		if _, v, err := s.Claim(key(s, i), 1, Tag{}); errors.Is(err, ErrDamaged) && v == 0 {
			damaged++
		} else if err != nil || v != Seen {
			t.Fatal(v, err)
		}
	}
	if damaged == 0 {
		t.Error("the damage was not seen")
	}
}

func TestAfterCloseEverythingSaysSo(t *testing.T) {
	var told []Tag
	o := options(newHands())
	o.OnDurable = func(tags []Tag, err error) {
		if err != nil {
			told = append(told, tags...)
			if !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		}
	}
	s := open(t, "d", o)
	k := key(s, 1)
	c := claim(t, s, k, 1, Mine)
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s.Mark([]Completion{{c, Tag{1, 2}}})
	s.Touch()
	s.Release(c)
	if len(told) != 1 || told[0] != (Tag{1, 2}) {
		t.Errorf("told of %v", told)
	}
	_, _, err1 := s.Claim(k, 1, Tag{})
	_, _, err2 := s.Get(k)
	_, _, err3 := s.Row(nil)
	for _, err := range []error{err1, err2, err3, s.Room(t.Context()), s.Flush(t.Context()), s.Forget(t.Context(), k)} {
		if !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
}
