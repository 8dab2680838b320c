package engine

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// redacted stands for a secret that is set.
const redacted = "[redacted]"

// shownSASL is what of a SASL may be seen.
type shownSASL struct {
	Mechanism string `json:"mechanism"`
	User      string `json:"user"`
	Password  string `json:"password,omitempty"`
	Token     string `json:"token,omitempty"`
}

func (s SASL) shown() shownSASL {
	v := shownSASL{Mechanism: s.Mechanism, User: s.User}
	if s.password() != "" {
		v.Password = redacted
	}
	if s.Token != nil {
		v.Token = redacted
	}
	return v
}

// seal takes the password out of sight of whatever prints a struct that s is in.
func (s SASL) seal() SASL {
	password := s.password()
	s.Password, s.sealed = "", func() string { return password }
	return s
}

func (s SASL) password() string {
	if s.sealed != nil {
		return s.sealed()
	}
	return s.Password
}

// Format prints s without its password, whatever the verb, so that a Config can be logged. Package fmt calls no methods on what an
// unexported field of another struct holds: keep a Config that is to be printed out of those.
func (s SASL) Format(f fmt.State, verb rune) {
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), s.shown())
}

// MarshalJSON writes s without its password.
func (s SASL) MarshalJSON() ([]byte, error) { return json.Marshal(s.shown()) }

// Format prints the engine's group only: its fields change while it runs, and are nobody's business.
func (e *Engine) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "gapless engine of group "+e.cfg.Group)
}

// keyHider stands in for keys that are not to be seen. Its secret dies with the process: without one, who has a list of the likely
// keys could try them.
type keyHider struct{ secret [32]byte }

func newKeyHider() *keyHider {
	h := &keyHider{}
	_, _ = rand.Read(h.secret[:]) // never fails
	return h
}

func (h *keyHider) hide(key []byte) string {
	mac := hmac.New(sha256.New, h.secret[:])
	mac.Write(key)
	return "hidden-" + hex.EncodeToString(mac.Sum(nil)[:6])
}

// showKeys brings the keys of a status into the form in which they are shown.
func (e *Engine) showKeys(s *PartitionStatus) {
	s.BusiestKey, s.BusiestKeyEncoding = e.shownKey(s.BusiestKey)
	if o := s.Oldest; o != nil {
		o.Key, o.KeyEncoding = e.shownKey(o.Key)
	}
}

func (e *Engine) shownKey(key string) (text, encoding string) {
	switch {
	case key == "":
		return "", ""
	case e.hider != nil:
		return e.hider.hide([]byte(key)), ""
	case !utf8.ValidString(key):
		return base64.StdEncoding.EncodeToString([]byte(key)), "base64"
	}
	return key, ""
}

// hiddenError is an error of the user's code whose text is not to be seen. What it is stays visible to errors.Is and errors.As.
type hiddenError struct{ error }

// Error names the error's type.
func (h *hiddenError) Error() string { return errorType(h.error) + " (its text is hidden: HideErrors)" }

// Unwrap gives the error as it was.
func (h *hiddenError) Unwrap() error { return h.error }

// ownError is an error that the engine made, and a failure of an attempt all the same: its text is not the user's.
type ownError struct{ error }

// Unwrap gives the error as it was.
func (o *ownError) Unwrap() error { return o.error }

// hide takes the text off an error of the user's code, where that is wanted.
func (e *Engine) hide(err error) error {
	var own *ownError
	if !e.cfg.HideErrors || errors.As(err, &own) {
		return err
	}
	return &hiddenError{err}
}
