package settings_test

import (
	"strings"
	"testing"

	"github.com/gaplesshq/gapless/cmd/gapless/internal/settings"
)

// FuzzFile: whatever a settings file and the environment hold, they are taken or refused in words; a password in either is not
// repeated.
func FuzzFile(f *testing.F) {
	for _, s := range []string{
		"", "workers: 3", "retry: {max: 1s}", "retry:\n  max: 1m\n", "workers: [1, 2]", "- a", "a: &a [*a]", "a: &a\n  b: *a", "workers: !!binary AA==", "? [a]: b",
		"workers: 3\nworkers: 4", "tls: yes", "\xff", "\x00", "%YAML 9.9\n---\n", "client-id: |\n  x\n", "a: {b: {c: {d: 1}}}", "<<: {workers: 1}", "workers: ~", "--- 1\n--- 2",
		"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c]",
	} {
		f.Add(s, "GAPLESS_WORKERS=3")
		f.Add(s, "GAPLESS_MAX_BYTES=x")
	}
	f.Fuzz(func(t *testing.T, file, env string) {
		var v values
		path := write(t, file)
		_, err := settings.Apply(flagSet(&v), []string{env}, path, foreign)
		if err != nil && strings.TrimSpace(err.Error()) == "" {
			t.Fatal("refused without words")
		}
		secret := "sasl-password: planted-secret\n"
		if _, err := settings.Apply(flagSet(&v), nil, write(t, secret+file), foreign); err != nil && strings.Contains(err.Error(), "planted-secret") && !strings.Contains(file, "planted") {
			t.Fatalf("the password is repeated: %v", err)
		}
	})
}

// FuzzSizes: a size that is read is written so that it is read again as the same.
func FuzzSizes(f *testing.F) {
	for _, s := range []string{"0", "1", "64k", "1MiB", "2 GB", "-1", "1.5MiB", "9223372036854775807", "8589934592GiB", "KiB", " 1 b ", "１"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var b, again settings.Bytes
		if err := b.Set(s); err == nil {
			if err := again.Set(b.String()); err != nil || again != b || b < 0 {
				t.Fatalf("%q is %d, written as %q, read as %d, %v", s, b, b.String(), again, err)
			}
		}
		if d, err := settings.ParseDuration(s); err == nil {
			w := settings.Duration(d)
			if back, err := settings.ParseDuration(w.String()); err != nil || back != d || d < 0 {
				t.Fatalf("%q is %v, written as %q, read as %v, %v", s, d, w.String(), back, err)
			}
		}
	})
}
